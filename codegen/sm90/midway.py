"""The wait for a chain's second product in the midst of the weights that its next one multiplies.

A chain ends a block with weights (exponentials, which the special-function unit makes slowly) and
their sum. What follows the wait needs no such unit: products are brought to their new reference,
weights are packed. Where the wait stands between the two halves of the weights, that work runs
under the second half. The first half still runs under the products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nautile.codegen.memory import FoldRow, Fragment, Pointwise
from nautile.codegen.sm90.memory import Midway, Operation, Pin

__all__ = ["midway"]


def midway(
    work: Sequence[Operation],
    left: str,
    part: Callable[[Fragment], Fragment],
    pin: Operation,
    after: Sequence[Operation],
) -> list[Operation] | None:
    """The work of a block with `after`, which begins with the wait, between the halves of the
    computed operand `left`. `part` makes the row's value that holds the first half's sum. None
    where the work does not end with that operand and its sum by itself."""
    if len(work) < 2:
        return None
    value, fold = work[-2:]
    if not isinstance(value, Pointwise) or not isinstance(fold, FoldRow):
        return None
    plain = value.whole is None and value.target.columns % 16 == 0 and isinstance(pin, Pin)
    sums = fold.source.name == value.target.name == left and fold.monoid == "sum"
    if not plain or not sums or not fold.carried or fold.settled:
        return None
    assert isinstance(pin, Pin)
    held = part(fold.target)
    between = (Pin(held, pin.never_negative), *after)
    return [*work[:-2], Midway(value, fold, held, value.target.columns // 2, between)]
