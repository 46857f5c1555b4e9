"""The oracle: float64 evaluation of any term, which is the meaning of the language.

`evaluate` gives terms at chosen positions of their free axes; loads go through a `fetch`, so
tensors need not exist in memory. `lazy` adds definitions that are evaluated where somebody reads
them, and `run` evaluates a whole program on arrays. NaN, infinities, ties, `//` and `%` are as
NumPy has them; positions outside a tensor read as 0; integers and truth values are exact.
"""

from nautile.oracle.answers import Answers
from nautile.oracle.evaluation import Evaluator, Fetch
from nautile.oracle.lookup import arrays_fetch, evaluate, lazy
from nautile.oracle.programs import run

__all__ = ["Answers", "Evaluator", "Fetch", "arrays_fetch", "evaluate", "lazy", "run"]
