"""The oracle: float64 evaluation of any term, which is the meaning of the language.

`evaluate` gives terms at chosen positions of their free axes; loads go through a `fetch`, so
tensors need not exist in memory. `lazy` adds definitions that are evaluated where somebody reads
them, and `run` evaluates a whole program on arrays. NaN, infinities, ties, `//` and `%` are as
NumPy has them; positions outside a tensor read as 0; integers and truth values are exact.
"""

from nautile.oracle.evaluation import Evaluator, Fetch
from nautile.oracle.programs import arrays_fetch, evaluate, lazy, run

__all__ = ["Evaluator", "Fetch", "arrays_fetch", "evaluate", "lazy", "run"]
