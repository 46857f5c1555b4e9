"""Where tasks are run: in processes of this machine, or on a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nautile.errors import InputError
from nautile.executor.pool import Pool

if TYPE_CHECKING:
    from nautile.executor.ray_cluster import Cluster

__all__ = ["Place"]

_KINDS = ("pool", "ray")


@dataclass(frozen=True, slots=True)
class Place:
    """An executor that was asked for: its kind ("pool", "ray"), the address of the Ray cluster (one
    is started here without it), whether bundles are timed on its GPUs, and the number of workers
    (as many as there are processors, where left out). Raises InputError for what does not fit."""

    kind: str = "pool"
    address: str | None = None
    measure: bool = False
    jobs: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            known = ", ".join(_KINDS)
            raise InputError(f"unknown executor {self.kind!r}; known: {known}", code="usage")
        if self.kind == "pool" and (self.address is not None or self.measure):
            message = "--address and --measure need a cluster: add --executor ray"
            raise InputError(message, code="usage")

    def executor(self) -> Pool | Cluster:
        """The executor, started. ExecutionError where the cluster cannot be joined."""
        if self.kind == "pool":
            return Pool(self.jobs)
        from nautile.executor.ray_cluster import Cluster

        return Cluster(self.address, jobs=self.jobs, measure=self.measure)
