"""A Ray cluster of several node processes on this machine, for measurements."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Nodes"]

PAUSE = (30.0, 90.0)  # seconds between deaths of nodes


@dataclass
class Nodes:
    """A head without processors and `count` nodes of one, each at a loopback address of its own."""

    count: int
    deaths: int = 0
    made: int = 2
    cluster: Any = None
    draw: random.Random = field(default_factory=lambda: random.Random(5))
    wait: float = PAUSE[1]

    @property
    def address(self) -> str:
        """Where the cluster is joined."""
        return str(self.cluster.address)

    @contextmanager
    def running(self) -> Iterator[Nodes]:
        """Start a head without processors, and the nodes."""
        os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "include_dashboard": False, **self._at()}
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            for _ in range(self.count):
                self._add()
            yield self
        finally:
            self.cluster.shutdown()

    def decimate(self) -> None:
        """Called once a second: kill a node now and then, and add another. (Ray adds nodes in the
        main thread alone.)"""
        self.wait -= 1
        if self.wait > 0:
            return
        self.wait = self.draw.uniform(*PAUSE)
        lost = self.draw.choice(list(self.cluster.worker_nodes))
        self.cluster.remove_node(lost, allow_graceful=False)
        self.deaths += 1
        self._add()

    def _add(self) -> None:
        self.cluster.add_node(num_cpus=1, **self._at())

    def _at(self) -> dict[str, Any]:
        place = {"node_ip_address": f"127.0.0.{self.made}", "object_store_memory": 80 << 20}
        self.made += 1
        return place
