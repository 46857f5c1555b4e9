"""Runs of programs under settings, one factor exchanged for another run's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from nautile.errors import NautileError
from nautile.terms import Program

from .compare import changes
from .difference import STRUCTURE
from .live import Setting, chosen, saturated, side_of
from .sides import Side

if TYPE_CHECKING:
    from nautile.worker import Worker

__all__ = ["Case", "Runs", "key_of", "same"]


@dataclass(frozen=True, slots=True)
class Case:
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

    def exchanged(self, name: str, other: Case) -> Case:
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


def key_of(case: Case) -> tuple[Any, ...]:
    s = case.setting
    figures = None if s.device is None else repr(s.device)
    return id(case.program), s.options, s.without, figures, s.law_class


class Runs:
    """Runs of cases, each once, and each choice from equal e-graphs once; sides carry the names of
    one program."""

    def __init__(self, worker: Worker, like: Program) -> None:
        self.worker, self.like = worker, like
        self.known: dict[Any, Side | None] = {}
        self.choices: dict[Any, Side | None] = {}

    def side(self, case: Case) -> Side | None:
        """The case's run; None where it has no program."""
        key = key_of(case)
        if key not in self.known:
            try:
                self.known[key] = self._run(case)
            except NautileError:
                self.known[key] = None
        return self.known[key]

    def _run(self, case: Case) -> Side | None:
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


def same(a: Side, b: Side) -> bool:
    """Whether two runs have the same kernels, tensors and schedules."""
    return not any(c.kind in STRUCTURE for c in changes(a, b))
