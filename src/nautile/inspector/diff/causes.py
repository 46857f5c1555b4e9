"""Why two runs of a program differ: what was asked otherwise, exchanged one by one.

For each setting that differs, the first run is made again with the second's (does that alone give
the second's program?), and the second with the first's (does that give back the first's?). Then the
setting is taken apart: of a device the figures, of a numerics class, pack or rule set the rules.
Sets of them are found by leaving out what is not needed; every set that is told was checked by
saturating and choosing again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar

from nautile.errors import InputError, NautileError
from nautile.report import quantity
from nautile.terms import Program

from .compare import changes
from .difference import STRUCTURE, Cause, Difference, compared
from .live import Setting, chosen, laws_of, run, saturated, shape_of, side_of
from .sides import Side

if TYPE_CHECKING:
    from nautile.extract.device import Device
    from nautile.rules.law import Rule
    from nautile.stages import Optimization
    from nautile.worker import Worker

__all__ = ["of_runs", "of_settings"]

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
FACTORS = ("program", "sizes", "target", "numerics", "rules", "accept", "without", "budgets")


@dataclass(frozen=True, slots=True)
class _Case:
    """A program under a setting; a factor of another case may stand in its place."""

    program: Program
    setting: Setting

    def factor(self, name: str) -> Any:
        o = self.setting.options
        return {
            "program": self.program.name,
            "sizes": dict(self.program.sizes),
            "target": o.target,
            "numerics": o.numerics,
            "rules": (o.packs, o.rules),
            "accept": o.accept,
            "without": self.setting.without,
            "budgets": (o.rows, o.seconds, o.memory),
        }[name]

    def exchanged(self, name: str, other: _Case) -> _Case:
        """This case with one factor of the other's."""
        mine, theirs = self.setting.options, other.setting.options
        if name in ("program", "sizes"):
            return replace(self, program=other.program)
        if name == "without":
            return replace(self, setting=replace(self.setting, without=other.setting.without))
        changed = {
            "target": {"target": theirs.target},
            "numerics": {"numerics": theirs.numerics},
            "rules": {"packs": theirs.packs, "rules": theirs.rules, "accept": theirs.accept},
            "accept": {"accept": theirs.accept},
            "budgets": {
                "rows": theirs.rows, "seconds": theirs.seconds, "memory": theirs.memory
            },
        }[name]  # fmt: skip
        options = replace(mine, **changed)  # type: ignore[arg-type]
        return replace(self, setting=replace(self.setting, options=options))


def _key(case: _Case) -> tuple[Any, ...]:
    s = case.setting
    figures = None if s.device is None else repr(s.device)
    return id(case.program), s.options, s.without, figures, s.law_class


class _Runs:
    """Runs of cases, each once, and each choice from equal e-graphs once; sides carry the names of
    one program."""

    def __init__(self, worker: Worker, like: Program) -> None:
        self.worker, self.like = worker, like
        self.known: dict[Any, Side | None] = {}
        self.choices: dict[Any, Side | None] = {}

    def side(self, case: _Case) -> Side | None:
        """The case's run; None where it has no program."""
        key = _key(case)
        if key not in self.known:
            try:
                self.known[key] = self._run(case)
            except NautileError:
                self.known[key] = None
        return self.known[key]

    def _run(self, case: _Case) -> Side | None:
        setting = case.setting
        result = saturated(case.program, setting, self.worker)
        graphs = tuple((tuple(s.classes.items()), tuple(s.made.items())) for s in result.snapshots)
        o = setting.options
        device = None if setting.device is None else repr(setting.device)
        key = (id(case.program), o.target, o.numerics, device, graphs)
        if key not in self.choices:
            self.choices[key] = None
            chosen(result, setting)
            self.choices[key] = side_of(result, "", like=self.like, settings=setting.as_dict())
        return self.choices[key]


def of_runs(a: Optimization, b: Optimization, worker: Worker | None = None) -> Difference:
    """What changed between two optimizations at hand, with causes."""
    from nautile.worker import Worker

    like = a.program
    sides = (
        side_of(a, _label(a, b), like=like),
        side_of(b, _label(b, a), like=like),
    )
    cases = _Case(a.program, Setting(a.options)), _Case(b.program, Setting(b.options))
    own = Worker() if worker is None else None
    with own or nullcontext():
        active = worker or own
        assert active is not None
        runs = _Runs(active, like)
        return _explained(*sides, *cases, runs)


def of_settings(
    a: tuple[Program, Setting], b: tuple[Program, Setting], worker: Worker, *, why: bool = True
) -> Difference:
    """The same for two runs that are still to be made; without causes where `why` is false. Raises
    errors of nautile.errors where one of the two has no program, InputError for a rule to leave out
    that the second run does not have."""
    _check_left_out(b[1])
    cases = _Case(*a), _Case(*b)
    runs = _Runs(worker, a[0])
    sides = []
    for case, other in (cases, cases[::-1]):
        result = run(case.program, case.setting, worker)
        label = _name(case, other)
        side = side_of(result, label, like=a[0], settings=case.setting.as_dict())
        runs.known[_key(case)] = side
        sides.append(side)
    if not why:
        return compared(sides[0], sides[1])
    return _explained(sides[0], sides[1], *cases, runs)


def _check_left_out(setting: Setting) -> None:
    known = {r.name for r in laws_of(replace(setting, without=frozenset()))}
    for name in sorted(setting.without - known):
        near = get_close_matches(name[:100], sorted(known), 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InputError(f"no rule {name[:100]!r} to leave out{hint}", code="unknown-name")


def _label(mine: Optimization, other: Optimization) -> str:
    return _name(
        _Case(mine.program, Setting(mine.options)), _Case(other.program, Setting(other.options))
    )


def _name(case: _Case, other: _Case) -> str:
    """A run by what sets it apart from the other."""
    o = case.setting.options
    parts = [f"{f} {case.factor(f)}" for f in ("target", "numerics")
             if case.factor(f) != other.factor(f)]  # fmt: skip
    if case.factor("rules") != other.factor("rules"):
        parts.append(f"rules {', '.join(o.rules) or 'shipped'}")
    if case.setting.without != other.setting.without:
        left = ", ".join(sorted(case.setting.without))
        parts.append(f"without {left}" if left else "all rules")
    if case.factor("sizes") != other.factor("sizes"):
        changed = {n: v for n, v in case.program.sizes.items() if other.program.sizes.get(n) != v}
        parts.append(" ".join(f"{n}={v}" for n, v in changed.items()))
    return ", ".join(p for p in parts if p) or case.program.name


# ---- causes --------------------------------------------------------------------------------------


def _explained(a: Side, b: Side, first: _Case, second: _Case, runs: _Runs) -> Difference:
    names = [f for f in FACTORS if first.factor(f) != second.factor(f)]
    if "program" in names or "sizes" in names:
        names = [f for f in names if f != ("sizes" if _other(first, second) else "program")]
    notes = []
    if a.key is not None and not names and a.key != b.key:
        notes.append("what differs is not in the settings: other releases, or other rule packs")
    found = compared(a, b, notes=tuple(notes))
    if found.equal or not names:
        return found
    causes = tuple(
        cause for name in names if (cause := _cause(name, a, b, first, second, runs)) is not None
    )
    return replace(found, causes=causes, notes=(*found.notes, *_together(causes)))


def _other(a: _Case, b: _Case) -> bool:
    """Whether the two programs differ in more than names and sizes."""
    return shape_of(a.program) != shape_of(b.program)


def _cause(name: str, a: Side, b: Side, first: _Case, second: _Case, runs: _Runs) -> Cause | None:
    """What one setting does, exchanged alone."""
    there = runs.side(first.exchanged(name, second))
    back = runs.side(second.exchanged(name, first))
    alone = there is not None and _same(there, b)
    needed = back is None or not _same(back, b)
    before, after = _plain(first.factor(name)), _plain(second.factor(name))
    detail: dict[str, Any] = {}
    if needed or (there is not None and not _same(there, a)):
        detail = _detail(name, a, b, first, second, runs)
    seconds = there.seconds if there is not None else None
    text = _sentence(name, first, second, alone, needed, a, there, detail)
    return Cause(name, before, after, alone, needed, text, seconds, detail)


def _same(a: Side, b: Side) -> bool:
    """Whether two runs have the same kernels, tensors and schedules."""
    return not any(c.kind in STRUCTURE for c in changes(a, b))


def _plain(value: Any) -> Any:
    if isinstance(value, frozenset):
        return sorted(value)
    return [_plain(v) for v in value] if isinstance(value, tuple) else value


def _sentence(
    name: str,
    first: _Case,
    second: _Case,
    alone: bool,
    needed: bool,
    a: Side,
    there: Side | None,
    detail: Mapping[str, Any],
) -> str:
    before, after = _word(name, first), _word(name, second)
    head = f"{name} {before} -> {after}"
    if name == "without":
        head = f"leaving out {after}"
    if there is None:
        return f"{head}: with it alone, the first run has no program"
    if _same(there, a):
        effect = "alone changes nothing in the program"
        if needed:
            effect += ", but the second program needs it"
        if there.seconds is not None and a.seconds is not None:
            old, new = quantity(a.seconds, "s"), quantity(there.seconds, "s")
            effect += f"; it alone moves the prediction {old} -> {new}"
    elif alone:
        effect = "alone makes the whole change"
    else:
        kinds = sorted({c.text for c in changes(a, there) if c.kind.startswith("kernel")})
        effect = "alone makes part of the change" + (f" ({'; '.join(kinds)})" if kinds else "")
    return f"{head}: {effect}{_told(detail)}"


def _word(name: str, case: _Case) -> str:
    value = case.factor(name)
    if name == "without":
        return ", ".join(sorted(value)) or "none"
    if name == "rules":
        return ", ".join(case.setting.options.rules) or "shipped"
    if name == "sizes":
        return " ".join(f"{n}={v}" for n, v in value.items())
    return str(value)


def _told(detail: Mapping[str, Any]) -> str:
    parts = []
    if detail.get("rules"):
        word = "the loss of" if detail.get("left_out") else "of its rules"
        parts.append(f"{word} {', '.join(detail['rules'])}")
    if detail.get("missed"):
        rules = ", ".join(detail["missed"])
        parts.append(f"the loss of rules (the first program is gone without {rules})")
    if detail.get("rounding"):
        parts.append("what the class says of rounding the operands of tensor cores")
    if detail.get("figures"):
        parts.append(f"of the device the {' and the '.join(detail['figures'])}")
    return f"; it takes {', and '.join(parts)}" if parts else ""


def _together(causes: Sequence[Cause]) -> list[str]:
    if len(causes) > 1 and not any(c.alone for c in causes):
        return ["no setting alone makes the whole change: they act together"]
    return []


# ---- parts of a setting --------------------------------------------------------------------------


def _detail(
    name: str, a: Side, b: Side, first: _Case, second: _Case, runs: _Runs
) -> dict[str, Any]:
    """The smallest parts of a setting that have its effect on the first run, where some have."""
    goal = runs.side(first.exchanged(name, second))
    if goal is None or _same(goal, a):
        return {}
    if name == "target":
        return _figures(goal, first, second, runs)
    if name == "numerics":
        return _class(goal, a, first, second, runs)
    if name in ("rules", "without"):
        return _rules(goal, first, first.exchanged(name, second), runs)
    return {}


def _class(goal: Side, a: Side, first: _Case, second: _Case, runs: _Runs) -> dict[str, Any]:
    """Of a numerics class its rules, or what it says of rounding the operands of tensor cores."""
    other = second.setting.options.numerics
    laws = replace(first, setting=replace(first.setting, law_class=other))
    own = replace(
        first.exchanged("numerics", second).setting, law_class=first.setting.options.numerics
    )
    by_rules, by_rounding = runs.side(laws), runs.side(replace(first, setting=own))
    found: dict[str, Any] = {}
    if by_rounding is not None and not _same(by_rounding, a):
        found["rounding"] = "alone" if _same(by_rounding, goal) else "in part"
    if by_rules is not None and not _same(by_rules, a):
        found |= _rules(by_rules, first, laws, runs)
    return found


def _figures(goal: Side, first: _Case, second: _Case, runs: _Runs) -> dict[str, Any]:
    """The figures of the second device that, put into the first one's profile, have its effect."""
    from nautile import extract

    mine = extract.device(first.setting.options.target)
    theirs = extract.device(second.setting.options.target)

    def holds(names: Sequence[str]) -> bool:
        profile = _mixed(mine, theirs, names)
        side = runs.side(replace(first, setting=replace(first.setting, device=profile)))
        return side is not None and _same(side, goal)

    names = [n for n, own in FIGURES.items()
             if any(getattr(mine, f) != getattr(theirs, f) for f in own)]  # fmt: skip
    found = _smallest(names, holds)
    return {"figures": list(found), "checked": True} if found else {}


def _mixed(mine: Device, theirs: Device, names: Sequence[str]) -> Device:
    known = {f.name for f in fields(mine)}
    taken = [f for n in names for f in FIGURES[n] if f in known]
    return replace(mine, **{f: getattr(theirs, f) for f in taken})


def _rules(goal: Side, first: _Case, other: _Case, runs: _Runs) -> dict[str, Any]:
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
            return side is not None and _same(side, goal)

        used = [n for n in more if any(n in (k.rules or ()) for k in goal.kernels)]
        found = _smallest(used, holds) if used and holds(used) else _smallest(more, holds)
        return {"rules": list(found), "checked": True} if found else {}

    def lost(names: Sequence[str]) -> bool:
        setting = replace(first.setting, without=first.setting.without | frozenset(names))
        side = runs.side(replace(first, setting=setting))
        return side is not None and _same(side, goal)

    start = runs.side(first) or goal
    used = [n for n in less if any(n in (k.rules or ()) for k in start.kernels)]
    alone = next((n for n in used if lost([n])), None)
    if alone is not None:
        return {"rules": [alone], "left_out": True, "checked": True}
    missed = [n for n in used if not _still(first, n, start, runs)]
    return {"missed": missed, "checked": True} if missed else {}


def _still(case: _Case, rule: str, start: Side, runs: _Runs) -> bool:
    """Whether the case has the same program without a rule."""
    setting = replace(case.setting, without=case.setting.without | {rule})
    side = runs.side(replace(case, setting=setting))
    return side is not None and _same(side, start)


def _laws(case: _Case) -> dict[str, Rule]:
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
