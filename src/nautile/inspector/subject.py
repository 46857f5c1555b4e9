"""What an explanation is about: a chosen program, its candidates, and the names of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from nautile import stages
from nautile.extract.device import Device, device
from nautile.extract.kernel import Kernel, Plan
from nautile.extract.pool import Choice
from nautile.stages import Optimization
from nautile.terms import Output

from .listing import Names
from .places import RegionPlaces, source_lines, source_names

if TYPE_CHECKING:
    from nautile.worker import Worker

__all__ = ["Subject", "ready"]


def ready(result: Optimization, worker: Worker | None = None) -> Subject:
    """The result as a subject; stages up to the choice are run where they have not been."""
    if not result.snapshots:
        stages.saturate(result, worker)
    if result.plan is None:
        stages.choose(result)
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
        stored = self._stored()
        return tuple(
            RegionPlaces(region, own.snapshot, own, lines, stored.get(n, {}))
            for n, (region, own) in enumerate(
                zip(self.result.regions, self.choice.pool.classes, strict=True)
            )
        )

    def _stored(self) -> Mapping[int, dict[int, str]]:
        """By region: the tensor that holds a class between the chosen kernels."""
        found: dict[int, dict[int, str]] = {}
        for kernel in self.plan.kernels:
            if kernel.split and not kernel.closing:
                continue
            outputs = kernel.parts[-1].outputs if kernel.closing else kernel.outputs
            for column in kernel.columns:
                number, _ = self.choice.pool.candidates[column]
                own = found.setdefault(number, {})
                own.update(self._between(column, outputs, set(own)))
        return found

    def _between(
        self, column: int, outputs: Sequence[Output], known: set[int]
    ) -> Mapping[int, str]:
        number, candidate = self.choice.pool.candidates[column]
        classes = self.choice.pool.classes[number]
        final = {o.buffer.name for o in classes.outputs}
        stored = [o.buffer.name for o in outputs if o.buffer.name not in final]
        made = [c for group in candidate.groups for c, _ in group if c not in classes.roots]
        return dict(zip(made, stored, strict=True)) if len(made) == len(stored) else {}

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
