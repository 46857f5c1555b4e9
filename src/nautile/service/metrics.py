"""What Prometheus reads. Counts are added up over all processes of one `nautile serve` (through
prometheus-client's files, in the folder that PROMETHEUS_MULTIPROC_DIR names); what waits and runs
is asked of the database at each reading, and so is right with any number of hosts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import sqlalchemy as sa
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector

from .database import Database, now
from .presence import living
from .runs import counted
from .tables import runs

__all__ = ["ANSWERS", "EXECUTED", "FOLDER", "MEDIA_TYPE", "REQUESTS", "STREAMS", "TIMES", "text"]

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

REQUESTS = Counter(
    "nautile_requests", "Answered requests.", ("method", "route", "status"), registry=None
)
TIMES = Histogram(
    "nautile_request_seconds",
    "Seconds until the answer's first byte.",
    ("route",),
    buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10),
    registry=None,
)
STREAMS = Gauge(
    "nautile_streams", "Open event streams.", registry=None, multiprocess_mode="livesum"
)
ANSWERS = Counter(
    "nautile_submissions",
    "Submissions: from the store, queued, or asked before.",
    ("how",),
    registry=None,
)
EXECUTED = Histogram(
    "nautile_run_seconds",
    "Seconds of one execution, by how it ended.",
    ("kind", "end"),
    buckets=(0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600),
    registry=None,
)
_OWN = (REQUESTS, TIMES, STREAMS, ANSWERS, EXECUTED)


class _Now:
    """What the database says at this moment."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Runs by state, the age of the oldest that waits, and living workers."""
        with self._database.reading() as connection:
            moment = now(connection)
            waiting = sa.select(sa.func.min(runs.c.created)).where(runs.c.state == "queued")
            oldest = connection.scalar(waiting)
        states = GaugeMetricFamily("nautile_runs", "Runs by state.", labels=("state",))
        for state, count in counted(self._database).items():
            states.add_metric((state,), count)
        yield states
        age = moment - oldest if oldest else 0.0
        yield GaugeMetricFamily("nautile_queue_age_seconds", "Of the oldest queued run.", age)
        yield GaugeMetricFamily("nautile_workers", "Workers that live.", living(self._database))


def text(database: Database) -> bytes:
    """All metrics in Prometheus' text format."""
    registry = CollectorRegistry()
    if os.environ.get(FOLDER):
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    else:
        for one in _OWN:
            registry.register(one)
    registry.register(_Now(database))
    return generate_latest(registry)
