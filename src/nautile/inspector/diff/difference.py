"""Two runs of a program: what changed, and why.

```
Difference ::= a, b, settings that differ, changes, totals, causes, notes
Cause      ::= factor, from, to, alone (does it alone make the change?), needed, changes, detail
```
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nautile.errors import InputError
from nautile.report import quantity

from .compare import Change, Totals, changes, totals
from .sides import Side, side_of_record, sides_in

if TYPE_CHECKING:
    from nautile.stages import Optimization

__all__ = ["NO_CAUSES", "Cause", "Difference", "compared", "diff"]

STRUCTURE = frozenset(
    ("kernel-added", "kernel-removed", "kernel-merged", "kernel-split", "kernel-regrouped",
     "stored", "not-stored", "type", "shape", "tile", "streams", "split", "terms", "rules")
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cause:
    """One setting that differs, exchanged alone. `alone`: the first run with this setting of the
    second has the second's program; `needed`: the second run without it has not. `detail` names the
    rules or the figures of the device that do it, each set checked by choosing again."""

    factor: str
    before: Any
    after: Any
    alone: bool
    needed: bool
    text: str
    seconds: float | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return {
            "factor": self.factor,
            "from": self.before,
            "to": self.after,
            "alone": self.alone,
            "needed": self.needed,
            "seconds": self.seconds,
            "text": self.text,
            "detail": dict(self.detail),
        }


@dataclass(frozen=True, slots=True)
class Difference:
    """What changed from run `a` to run `b`."""

    a: Side
    b: Side
    settings: Mapping[str, tuple[Any, Any]]
    changes: tuple[Change, ...]
    totals: Mapping[str, Totals]
    causes: tuple[Cause, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """No kernel, tensor, schedule or figure differs."""
        return not self.changes and not any(t.differs for t in self.totals.values())

    @property
    def same_program(self) -> bool:
        """The kernels, what they store and their schedules are the same; predictions may differ."""
        return not any(c.kind in STRUCTURE for c in self.changes)

    def as_dict(self) -> dict[str, Any]:
        """The difference as plain JSON."""
        return {
            "program": self.b.program,
            "from": _head(self.a),
            "to": _head(self.b),
            "equal": self.equal,
            "same_program": self.same_program,
            "settings": {k: {"from": x, "to": y} for k, (x, y) in self.settings.items()},
            "totals": {k: t.as_dict() for k, t in self.totals.items()},
            "changes": [c.as_dict() for c in self.changes],
            "causes": [c.as_dict() for c in self.causes],
            "notes": list(self.notes),
        }

    def as_text(self) -> str:
        """The difference for people."""
        lines = [f"{self.b.program}: {self.a.label} -> {self.b.label}"]
        lines += [f"  setting    {k}: {_told(x)} -> {_told(y)}"
                  for k, (x, y) in self.settings.items()]  # fmt: skip
        if self.equal:
            return "\n".join([*lines, "  equal: the same kernels, schedules and predictions",
                              *(f"  note       {n}" for n in self.notes)])  # fmt: skip
        lines += [line for name in ("kernels", "seconds", "bytes") for line in self._total(name)]
        lines += self._resources()
        if self.same_program:
            lines.append("  program    the same kernels, tensors and schedules")
        lines += [f"  change     {_short(c.text)}" for c in self.changes if c.kind not in _FIGURES]
        lines += [f"  why        {c.text}" for c in self.causes]
        lines += [f"  note       {n}" for n in self.notes]
        return "\n".join(lines)

    def _total(self, name: str) -> list[str]:
        t = self.totals[name]
        if t.before is None or t.after is None:
            return []
        if name == "kernels":
            return [f"  kernels    {t.before:.0f} -> {t.after:.0f}"]
        unit, word = ("s", "predicted") if name == "seconds" else ("B", "memory")
        ratio = f" ({t.ratio - 1:+.1%})" if t.ratio is not None else ""
        return [f"  {word:<10} {quantity(t.before, unit)} -> {quantity(t.after, unit)}{ratio}"]

    def _resources(self) -> list[str]:
        parts = [
            f"{name.removesuffix(' seconds')} {quantity(t.before, 's')} -> {quantity(t.after, 's')}"
            for name, t in self.totals.items()
            if name.endswith(" seconds") and t.differs and t.before is not None
            and t.after is not None
        ]  # fmt: skip
        return [f"  by resource {', '.join(parts)}"] if parts else []


_FIGURES = ("seconds", "reads_bytes", "writes_bytes")
_LONG = 260


def _short(text: str) -> str:
    return text if len(text) <= _LONG else f"{text[: _LONG - 3]}..."


def _told(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, Mapping):
        return " ".join(f"{k}={v}" for k, v in value.items()) or "none"
    return "none" if value is None else str(value)


def _head(side: Side) -> dict[str, Any]:
    return {
        "label": side.label,
        "origin": side.origin,
        "key": side.key,
        "settings": dict(side.settings),
        "seconds": side.seconds,
        "certificate": side.verdict,
        "error": side.error,
    }


def diff(
    a: Optimization | Mapping[str, Any] | str | Path,
    b: Optimization | Mapping[str, Any] | str | Path,
) -> Difference:
    """What changed from one run to another. Each is an optimization whose choice was made, the
    object of `nautile optimize --json` or `nautile explain --json`, a file of one, or a bundle.

    Where both are optimizations at hand, what differs in their settings is exchanged one by one,
    and the program chosen again, so that causes are told (see causes.py); else the notes say what
    cannot be. Raises InputError (code "not-a-run") for what is none of these.
    """
    from nautile.stages import Optimization

    if isinstance(a, Optimization) and isinstance(b, Optimization):
        from .causes import of_runs

        return of_runs(a, b)
    first = _side(a, "a")
    return compared(first, _side(b, "b"), notes=(NO_CAUSES,))


NO_CAUSES = (
    "causes cannot be told: a file keeps what was chosen, and not what it was chosen from; ask "
    "`nautile diff FILE.nau` with the two settings"
)


def _side(given: Any, label: str) -> Side:
    from nautile.stages import Optimization

    from .live import side_of

    if isinstance(given, Optimization):
        if given.plan is None:
            raise InputError("the program was not chosen yet", code="not-chosen")
        return side_of(given, label)
    if isinstance(given, Mapping):
        return side_of_record(dict(given), label)
    sides = sides_in(Path(given))
    if len(sides) != 1:
        names = ", ".join(s.program for s in sides)
        raise InputError(f"{given}: holds {len(sides)} runs ({names})", code="not-a-run")
    return sides[0]


def compared(
    a: Side, b: Side, *, causes: tuple[Cause, ...] = (), notes: tuple[str, ...] = ()
) -> Difference:
    """The difference of two sides, with what is known of its causes."""
    told = list(notes)
    names = sorted({*a.settings, *b.settings})
    settings = {
        n: (a.settings.get(n), b.settings.get(n))
        for n in names
        if n in a.settings and n in b.settings and a.settings[n] != b.settings[n]
    }
    for side in (a, b):
        if side.error is not None:
            told.append(f"{side.label} has no program: {side.error}")
    if a.program != b.program:
        told.append(f"the programs are called {a.program} and {b.program}")
    told += _untold(a, b)
    return Difference(a, b, settings, changes(a, b), totals(a, b), causes, tuple(told))


def _untold(a: Side, b: Side) -> list[str]:
    """What one of the two does not tell."""
    found = []
    for side, other in ((a, b), (b, a)):
        if side.kernels and side.seconds is None and other.seconds is not None:
            found.append(f"{side.label} tells no predictions")
    silent = [s.label for s in (a, b) if s.kernels and all(k.terms is None for k in s.kernels)]
    if silent:
        names = " and ".join(dict.fromkeys(silent))
        found.append(f"kernels are matched by names: no terms are told by {names}")
    return found
