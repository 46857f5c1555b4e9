"""Where products are worth rearranging, as an egglog query.

Regrouping the factors of a product changes nothing by itself. It is of use under a reduction (`up`:
the axes of reductions whose body has the product as a factor): a factor that does not vary along
the axis may leave, and two factors that both do may be the operands of a contraction.
"""

from __future__ import annotations

from .law import Call, Pattern, names_of

__all__ = ["parted"]


def parted(left: Pattern, right: Pattern) -> list[str]:
    """Of two factors one varies along an axis of a reduction around them and the other does not; or
    both do, and unlike the factors before they are the operands of a contraction."""
    lookups = [f"(= fv_{n} (fv v_{n}))" for n in names_of(right)]
    one, two = _sides(right)
    alone = f"(& up_e (^ {one} {two}))"
    gained = f"(* {_operands(right)} (- 1 (min 1 {_operands(left)})))"
    return ["(= up_e (up e))", *lookups, f"(!= 0 (| {alone} {gained}))"]


def _operands(product: Pattern) -> str:
    """Not 0 where both factors walk an axis reduced around them, each beside an axis of its own."""
    one, two = _sides(product)
    own = f"(min (& {one} (^ -1 {two})) (& {two} (^ -1 {one})))"
    return f"(min {own} (& up_e (& {one} {two})))"


def _sides(product: Pattern) -> tuple[str, str]:
    """The free axes of both factors."""
    assert isinstance(product, Call)
    one, two = product.arguments
    return _free(one), _free(two)


def _free(pattern: Pattern) -> str:
    """The free axes of an expression of names, once they are looked up."""
    first, *others = (f"fv_{n}" for n in names_of(pattern))
    for other in others:
        first = f"(| {first} {other})"
    return first
