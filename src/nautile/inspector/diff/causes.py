"""Why two runs of a program differ: what was asked otherwise, exchanged one by one.

For each setting that differs, the first run is made again with the second's (does that alone give
the second's program?), and the second with the first's (does that give back the first's?). Then the
setting is taken apart: of a device the figures, of a numerics class, pack or rule set the rules.
Sets of them are found by leaving out what is not needed; every set that is told was checked by
saturating and choosing again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from nautile.errors import InputError
from nautile.report import quantity
from nautile.terms import Program

from .cases import Case, Runs, key_of, same
from .compare import changes
from .difference import Cause, Difference, compared
from .live import Setting, laws_of, run, shape_of, side_of
from .parts import detail_of
from .sides import Side

if TYPE_CHECKING:
    from nautile.stages import Optimization
    from nautile.worker import Worker

__all__ = ["of_runs", "of_settings"]

FACTORS = ("program", "sizes", "target", "numerics", "rules", "accept", "without", "budgets")


def of_runs(a: Optimization, b: Optimization, worker: Worker | None = None) -> Difference:
    """What changed between two optimizations at hand, with causes."""
    from nautile.worker import Worker

    like = a.program
    sides = (
        side_of(a, _label(a, b), like=like),
        side_of(b, _label(b, a), like=like),
    )
    cases = Case(a.program, Setting(a.options)), Case(b.program, Setting(b.options))
    own = Worker() if worker is None else None
    with own or nullcontext():
        active = worker or own
        assert active is not None
        runs = Runs(active, like)
        return _explained(*sides, *cases, runs)


def of_settings(
    a: tuple[Program, Setting], b: tuple[Program, Setting], worker: Worker, *, why: bool = True
) -> Difference:
    """The same for two runs that are still to be made; without causes where `why` is false. Raises
    errors of nautile.errors where one of the two has no program, InputError for a rule to leave out
    that the second run does not have."""
    _check_left_out(b[1])
    cases = Case(*a), Case(*b)
    runs = Runs(worker, a[0])
    sides = []
    for case, other in (cases, cases[::-1]):
        result = run(case.program, case.setting, worker)
        label = _name(case, other)
        side = side_of(result, label, like=a[0], settings=case.setting.as_dict())
        runs.known[key_of(case)] = side
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
        Case(mine.program, Setting(mine.options)), Case(other.program, Setting(other.options))
    )


def _name(case: Case, other: Case) -> str:
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


def _explained(a: Side, b: Side, first: Case, second: Case, runs: Runs) -> Difference:
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


def _other(a: Case, b: Case) -> bool:
    """Whether the two programs differ in more than names and sizes."""
    return shape_of(a.program) != shape_of(b.program)


def _cause(name: str, a: Side, b: Side, first: Case, second: Case, runs: Runs) -> Cause | None:
    """What one setting does, exchanged alone."""
    there = runs.side(first.exchanged(name, second))
    back = runs.side(second.exchanged(name, first))
    alone = there is not None and same(there, b)
    needed = back is None or not same(back, b)
    before, after = _plain(first.factor(name)), _plain(second.factor(name))
    detail: dict[str, Any] = {}
    if needed or (there is not None and not same(there, a)):
        detail = detail_of(name, a, b, first, second, runs)
    seconds = there.seconds if there is not None else None
    text = _sentence(name, first, second, alone, needed, a, there, detail)
    return Cause(name, before, after, alone, needed, text, seconds, detail)


def _plain(value: Any) -> Any:
    if isinstance(value, frozenset):
        return sorted(value)
    return [_plain(v) for v in value] if isinstance(value, tuple) else value


def _sentence(
    name: str,
    first: Case,
    second: Case,
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
    if same(there, a):
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


def _word(name: str, case: Case) -> str:
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
