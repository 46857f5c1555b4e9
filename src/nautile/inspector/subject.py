"""What an explanation is about: a chosen program, its candidates, and the names of both."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from nautile import retreat, stages
from nautile.errors import NautileError
from nautile.extract.device import Device, device
from nautile.extract.kernel import Kernel, Plan
from nautile.extract.pool import Choice
from nautile.stages import Optimization
from nautile.terms import Term

from .class_names import class_names, renamed, stored_classes
from .listing import Names
from .places import RegionPlaces, places_of, source_lines, source_names

if TYPE_CHECKING:
    from nautile.worker import Worker

__all__ = ["Subject", "ready"]


def ready(result: Optimization, worker: Worker | None = None) -> Subject:
    """The result as a subject; stages up to the choice are run where they have not been, and the
    certificate's where it may change the choice."""
    if not result.snapshots:
        stages.saturate(result, worker)
    if result.plan is None:
        stages.choose(result)
        if result.plan is not None and retreat.has_small_range(result.plan):
            with suppress(NautileError):
                stages.build(result)
                stages.certify(result)
    return Subject(result)


@dataclass(frozen=True)
class Subject:
    """A result whose program has been chosen."""

    result: Optimization

    @property
    def plan(self) -> Plan:
        assert self.result.plan is not None
        return self.result.plan

    @property
    def choice(self) -> Choice:
        assert self.plan.choice is not None
        return self.plan.choice

    @cached_property
    def device(self) -> Device:
        return device(self.result.options.target)

    @property
    def numerics(self) -> str:
        return self.result.options.numerics

    @cached_property
    def places(self) -> tuple[RegionPlaces, ...]:
        """The classes of every region."""
        lines = source_lines(self.result.work, self.result.regions)
        rows = zip(
            self.result.regions, self.choice.pool.classes, self._terms, self.class_names,
            strict=True,
        )  # fmt: skip
        return tuple(
            RegionPlaces(region, own, terms, lines, names, self.names)
            for region, own, terms, names in rows
        )

    @cached_property
    def _terms(self) -> tuple[dict[Term, int], ...]:
        """By region: the classes of the source's terms."""
        pairs = zip(self.result.regions, self.choice.pool.classes, strict=True)
        return tuple(places_of(region, own.snapshot) for region, own in pairs)

    @cached_property
    def class_names(self) -> tuple[dict[int, str], ...]:
        """By region: what the classes are called that candidates store."""
        pool = self.choice.pool
        stored = stored_classes(pool, self.plan.kernels)
        return class_names(pool, self.result.work, stored, self._terms, self.names)

    def renamed(self, kernels: Sequence[Kernel]) -> tuple[Kernel, ...]:
        """Another program's kernels, with these names for what lies between them."""
        return renamed(kernels, self.choice.pool, self.class_names)

    @cached_property
    def names(self) -> Names:
        """The terms of the source's definitions with their names."""
        return source_names(self.result.work, self.result.regions)

    def lines(self, kernel: Kernel) -> list[int]:
        """The lines of the source that the kernel computes something of."""
        found: set[int] = set()
        for column in kernel.columns:
            number, candidate = self.choice.pool.candidates[column]
            found.update(self.places[number].lines_of(candidate))
        return sorted(found)
