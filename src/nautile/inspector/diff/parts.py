"""What of a setting makes the change: figures of a device, rules of a class or a pack.

Sets are found by leaving out what is not needed; every set that is told was checked by saturating
and choosing again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from .cases import Case, Runs, same
from .live import laws_of
from .sides import Side

if TYPE_CHECKING:
    from nautile.extract.device import Device
    from nautile.rules.law import Rule

__all__ = ["detail_of", "mixed"]

T = TypeVar("T")
TRIES = 24  # runs that look for the rules or figures of one cause
# What of a device profile is exchanged together: the cost model's resources.
FIGURES: Mapping[str, tuple[str, ...]] = {
    "memory bandwidth": ("memory_bandwidth", "memory_sms"),
    "L2 cache": ("l2_bandwidth", "l2_bytes"),
    "tensor cores": ("tensor", "path", "architecture"),
    "fp32 rate": ("fp32",),
    "special functions": ("special",),
    "shared memory": ("shared_bytes",),
    "registers": ("registers",),
    "multiprocessors": ("sms",),
    "launch latency": ("launch_seconds", "step_seconds"),
}

# ---- parts of a setting --------------------------------------------------------------------------


def detail_of(name: str, a: Side, b: Side, first: Case, second: Case, runs: Runs) -> dict[str, Any]:
    """The smallest parts of a setting that have its effect on the first run, where some have."""
    goal = runs.side(first.exchanged(name, second))
    if goal is None or same(goal, a):
        return {}
    if name == "target":
        return _figures(goal, first, second, runs)
    if name == "numerics":
        return _class(goal, a, first, second, runs)
    if name in ("rules", "without"):
        return _rules(goal, first, first.exchanged(name, second), runs)
    return {}


def _class(goal: Side, a: Side, first: Case, second: Case, runs: Runs) -> dict[str, Any]:
    """Of a numerics class its rules, or what it says of rounding the operands of tensor cores."""
    other = second.setting.options.numerics
    laws = replace(first, setting=replace(first.setting, law_class=other))
    own = replace(
        first.exchanged("numerics", second).setting, law_class=first.setting.options.numerics
    )
    by_rules, by_rounding = runs.side(laws), runs.side(replace(first, setting=own))
    found: dict[str, Any] = {}
    if by_rounding is not None and not same(by_rounding, a):
        found["rounding"] = "alone" if same(by_rounding, goal) else "in part"
    if by_rules is not None and not same(by_rules, a):
        found |= _rules(by_rules, first, laws, runs)
    return found


def _figures(goal: Side, first: Case, second: Case, runs: Runs) -> dict[str, Any]:
    """The figures of the second device that, put into the first one's profile, have its effect."""
    from nautile import extract

    mine = extract.device(first.setting.options.target)
    theirs = extract.device(second.setting.options.target)

    def holds(names: Sequence[str]) -> bool:
        profile = mixed(mine, theirs, names)
        side = runs.side(replace(first, setting=replace(first.setting, device=profile)))
        return side is not None and same(side, goal)

    names = [n for n, own in FIGURES.items()
             if any(getattr(mine, f) != getattr(theirs, f) for f in own)]  # fmt: skip
    found = _smallest(names, holds)
    return {"figures": list(found), "checked": True} if found else {}


def mixed(mine: Device, theirs: Device, names: Sequence[str]) -> Device:
    known = {f.name for f in fields(mine)}
    taken = [f for n in names for f in FIGURES[n] if f in known]
    return replace(mine, **{f: getattr(theirs, f) for f in taken})


def _rules(goal: Side, first: Case, other: Case, runs: Runs) -> dict[str, Any]:
    """The rules that make the difference: of those that one case has and the other has not, a
    smallest set that, with the rest left out, has the effect."""
    mine, theirs = _laws(first), _laws(other)
    more = [r for r in theirs if r not in mine]
    less = [r for r in mine if r not in theirs]
    if more:

        def holds(names: Sequence[str]) -> bool:
            left_out = frozenset(n for n in more if n not in names)
            setting = replace(other.setting, without=other.setting.without | left_out)
            side = runs.side(replace(other, setting=setting))
            return side is not None and same(side, goal)

        used = [n for n in more if any(n in (k.rules or ()) for k in goal.kernels)]
        found = _smallest(used, holds) if used and holds(used) else _smallest(more, holds)
        return {"rules": list(found), "checked": True} if found else {}

    def lost(names: Sequence[str]) -> bool:
        setting = replace(first.setting, without=first.setting.without | frozenset(names))
        side = runs.side(replace(first, setting=setting))
        return side is not None and same(side, goal)

    start = runs.side(first) or goal
    used = [n for n in less if any(n in (k.rules or ()) for k in start.kernels)]
    alone = next((n for n in used if lost([n])), None)
    if alone is not None:
        return {"rules": [alone], "left_out": True, "checked": True}
    missed = [n for n in used if not _still(first, n, start, runs)]
    return {"missed": missed, "checked": True} if missed else {}


def _still(case: Case, rule: str, start: Side, runs: Runs) -> bool:
    """Whether the case has the same program without a rule."""
    setting = replace(case.setting, without=case.setting.without | {rule})
    side = runs.side(replace(case, setting=setting))
    return side is not None and same(side, start)


def _laws(case: Case) -> dict[str, Rule]:
    """The rules of a case by name."""
    return {r.name: r for r in laws_of(case.setting)}


def _smallest(names: Sequence[T], holds: Callable[[Sequence[T]], bool]) -> tuple[T, ...]:
    """A subset that holds, from which nothing can be left out while tries last: single ones first,
    then halves are left out, then quarters, and so on; empty where all together do not hold."""
    tries = 0
    for name in names if len(names) <= TRIES // 2 else ():
        tries += 1
        if holds([name]):
            return (name,)
    if not names or not holds(names):
        return ()
    kept, size = list(names), max(1, len(names) // 2)
    while tries < TRIES:
        for start in range(0, len(kept), size):
            rest = kept[:start] + kept[start + size :]
            tries += 1
            if rest and holds(rest):
                kept = rest
                break
        else:
            if size == 1:
                break
            size = max(1, size // 2)
    return tuple(kept)
