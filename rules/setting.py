"""The choices that make an instance of a law: extents, what each name depends on, which carriers.

They come from a source of chance (NumPy's generator, or Hypothesis', which can shrink) and are
kept, so that an instance can be made again, printed, and made smaller.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice, product
from typing import Any, Protocol

import numpy as np

from .conditions import Compare, Kind
from .law import Call, Name, Number, Pattern, Rule, Size, axes_of, names_of

__all__ = [
    "Chance",
    "Setting",
    "Source",
    "Unsupported",
    "extents_of",
    "holds",
    "made_extents",
    "number_of",
]

LARGEST = 7  # extents beyond 4 are sampled: the rounding of a sum of constants first shows at 6,
# and NumPy sums in the order of positions up to 7
_SOLUTIONS = 4000
_POSITIONS = 4096  # of all axes of an instance together
_RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "neg": operator.neg,
}


class Unsupported(Exception):
    """The law has a form that no instance is known for."""


class Source(Protocol):
    """Where choices come from."""

    def whole(self, low: int, high: int) -> int:
        """An integer from low to high, both included."""
        ...

    def chance(self, probability: float) -> bool:
        """True with about this probability."""
        ...


@dataclass(slots=True)
class Chance:
    """Choices of a NumPy generator."""

    rng: np.random.Generator

    def whole(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)


@dataclass(slots=True)
class Setting:
    """What was chosen so far. `extents` holds axes and upper-case sizes; `axes` the axes that each
    name depends on; `carriers` the kind and stream of carriers that no condition defines; `twins`
    the name whose term another one shares; `ends` the blocks that streams are taken in."""

    source: Source
    extents: dict[str, int]
    axes: dict[str, frozenset[str]] = field(default_factory=dict)
    carriers: dict[str, tuple[str, str]] = field(default_factory=dict)
    twins: dict[str, str] = field(default_factory=dict)
    aliased: bool = False
    ends: dict[str, list[int]] = field(default_factory=dict)

    def blocks(self, axis: str) -> list[int]:
        """The ends of blocks that cover an axis."""
        if axis not in self.ends:
            extent = self.extents[axis]
            inner = [i for i in range(1, extent) if self.source.chance(0.5)]
            self.ends[axis] = [*inner, extent]
        return self.ends[axis]

    def depends(self, name: str, likely: Mapping[str, float]) -> frozenset[str]:
        """The axes that a name depends on: each with its probability."""
        if name not in self.axes:
            chosen = (a for a, p in likely.items() if p >= 1 or self.source.chance(p))
            self.axes[name] = frozenset(chosen)
        return self.axes[name]

    def carrier(self, name: str, streams: list[str]) -> tuple[str, str]:
        """The kind of a carrier (max, min, mean) and its stream, one of these."""
        if name not in self.carriers:
            kind = ("max", "min", "mean")[self.source.whole(0, 2)]
            self.carriers[name] = kind, streams[self.source.whole(0, len(streams) - 1)]
        return self.carriers[name]


def extents_of(rule: Rule, axes: list[str], source: Source, turn: int | None) -> dict[str, int]:
    """Extents of the law's axes and of `axes`, and its sizes. Turns 0, 1, .. walk the law's own
    extents through all of 1 to 4, up to three of them at once; later ones, and no turn, draw,
    larger ones included.

    Raises Unsupported where the law's conditions leave no extents up to 6.
    """
    own = [a for a in axes if a in _own(rule)]
    large = source.chance(0.3)
    found = {a: source.whole(*((5, LARGEST) if large and a in own else (1, 4))) for a in axes}
    walked = own[:3]
    if turn is not None and turn < 4 ** len(walked):
        for axis in walked:
            turn, rest = divmod(turn, 4)
            found[axis] = 1 + rest
    sizes = {c.name for c in rule.conditions if isinstance(c, Kind) and c.kind == "size"}
    found |= {name: source.whole(1, 6) for name in sorted(sizes)}
    solutions = _solutions(rule)
    if solutions is not None:
        if not solutions:
            raise Unsupported("no extents up to 6 meet the law's conditions")
        found |= dict(solutions[source.whole(0, len(solutions) - 1)])
    found |= made_extents(rule, found)
    return _fitting(found, axes, fixed=solutions is not None)


def made_extents(rule: Rule, extents: Mapping[str, int]) -> dict[str, int]:
    """The extents of axes that are declared by an expression of others."""
    found = dict(extents)
    for axis, extent in rule.extents:
        if extent != Size(axis):
            found[axis] = int(number_of(extent, found))
    return {axis: found[axis] for axis, _ in rule.extents if axis in found}


def _own(rule: Rule) -> set[str]:
    sides = [s for s in (rule.left, rule.right) if s is not None]
    if rule.conclusion is not None:
        sides.append(rule.conclusion.subject)
    return {a for s in sides for a in axes_of(s)}


def _fitting(found: dict[str, int], axes: list[str], *, fixed: bool) -> dict[str, int]:
    """Smaller extents where all together would have too many positions."""
    while np.prod([found[a] for a in axes], dtype=float) > _POSITIONS and not fixed:
        largest = max(axes, key=lambda a: found[a])
        found[largest] -= 1
    return found


@lru_cache(maxsize=64)
def _solutions(rule: Rule) -> tuple[tuple[tuple[str, int], ...], ...] | None:
    """The extents up to 6 that meet the comparisons; None where nothing is asked of extents."""
    asked = [c for c in rule.conditions if isinstance(c, Compare) and _of_extents(rule, c)]
    names = dict.fromkeys(n for c in asked for p in (c.left, c.right) for n in _symbols(p))
    if not names:
        return None
    if len(names) > 5:
        raise Unsupported("too many extents are compared")
    found = []
    for values in islice(product(range(1, 7), repeat=len(names)), 10_000):
        numbers = dict(zip(names, values, strict=True))
        if all(holds(c, numbers) for c in asked):
            found.append(tuple(numbers.items()))
    return tuple(found[:: 1 + len(found) // _SOLUTIONS])


def _of_extents(rule: Rule, condition: Compare) -> bool:
    names = {n for p in (condition.left, condition.right) for n in names_of(p)}
    return all(n[0].isupper() for n in names)


def _symbols(pattern: Pattern) -> Iterator[str]:
    yield from axes_of(pattern)
    yield from names_of(pattern)


def holds(condition: Compare, numbers: Mapping[str, Any]) -> bool:
    """Whether a comparison holds of these extents and constants; it does not where it divides by
    zero."""
    try:
        one, two = (number_of(p, numbers) for p in (condition.left, condition.right))
    except ZeroDivisionError:
        return False
    return bool(_RELATIONS[condition.relation](one, two))


def number_of(pattern: Pattern, numbers: Mapping[str, Any]) -> Any:
    """The number of an expression of extents and constants."""
    match pattern:
        case Number(value):
            return value
        case Size(name) | Name(name):
            return numbers[name]
        case Call(operation, arguments) if operation in _OPERATIONS:
            return _OPERATIONS[operation](*(number_of(a, numbers) for a in arguments))
    raise Unsupported(f"no number for {pattern}")
