"""What may be chosen about an optimization."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nautile.errors import InputError

__all__ = ["NUMERICS", "Options"]

NUMERICS: Mapping[str, tuple[str, ...]] = {
    "exact": ("exact",),
    "real": ("exact", "real"),
    "fast": ("exact", "real", "fast"),
}


@dataclass(frozen=True, slots=True)
class Options:
    """What may be chosen: target device, numerics class, rule packs (all built-in ones by default),
    more packs of rules (files of the user's, checked before they are used), the names of rules that
    are accepted though they are not found sound, budgets of one region's saturation (rows, seconds,
    bytes), architectures to compile for (the target's own by default), whether to compile at all,
    how many schedules of each kernel a measurement may choose among, and how many threads compile
    (0: one a core), which changes no result."""

    target: str = "h200"
    numerics: str = "real"
    packs: tuple[str, ...] | None = None
    rules: tuple[str, ...] = ()
    accept: tuple[str, ...] = ()
    rows: int = 50_000
    seconds: float = 10.0
    memory: int = 4 << 30
    compile: bool = False
    architectures: tuple[str, ...] = ()
    seed: int = 0
    candidates: int = 1
    threads: int = 0

    def __post_init__(self) -> None:
        if self.numerics not in NUMERICS:
            raise InputError(
                f"unknown numerics class {self.numerics!r}; known: {', '.join(NUMERICS)}",
                code="unknown-numerics",
            )
