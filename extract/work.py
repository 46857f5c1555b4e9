"""What each scalar operation costs, in operations a unit does in one pass.

`vector` counts FMA-pipe instructions (a fused multiply-add does two flops, an addition one),
`special` those of the special-function unit. Figures follow CUDA's `--use_fast_math`-free code for
float32: division is a reciprocal and a Newton step, erf a polynomial with one exponential, tanh a
quotient with an exponential, or a series near 0, of which both are computed.
"""

from __future__ import annotations

from collections.abc import Mapping

from nautile.operations import OPERATIONS
from nautile.terms import Apply, Before, Cast, Const, Index, Load, Online, Reduce, Running, Term

__all__ = ["SPECIAL", "VECTOR", "operation_cost"]

SPECIAL: Mapping[str, int] = {
    **dict.fromkeys(OPERATIONS, 0),
    "div": 1,
    "exp": 1,
    "exp2": 1,
    "log": 1,
    "log2": 1,
    "sqrt": 1,
    "rsqrt": 1,
    "tanh": 2,
    "sigmoid": 2,
    "erf": 1,
    "sin": 1,
    "cos": 1,
    "pow": 2,
}
VECTOR: Mapping[str, int] = {
    **dict.fromkeys(OPERATIONS, 1),
    "div": 3,
    "exp": 2,
    "log": 2,
    "sqrt": 2,
    "rsqrt": 1,
    "tanh": 9,
    "sigmoid": 3,
    "erf": 12,
    "sin": 6,
    "cos": 6,
    "pow": 4,
    "floordiv": 4,
    "mod": 5,
}


def operation_cost(term: Term) -> tuple[int, int]:
    """(vector, special) operations of one evaluation of the term's own head."""
    match term:
        case Apply("div", (_, Const())):
            return VECTOR["div"], 0  # the reciprocal is the compiler's
        case Apply(operation, _):
            return VECTOR[operation], SPECIAL[operation]
        case Cast() | Reduce():
            return 1, 0
        case Online():
            return 2, 0
        case Running():
            return 1, 0
        case Const() | Index() | Load() | Before():
            return 0, 0
    return 1, 0
