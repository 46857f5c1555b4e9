"""Token buckets: `rate` a second on average, `burst` at once.

A bucket is kept in the process that answers. Several of them behind one address each count for
themselves.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Buckets"]

_MOST = 10_000  # buckets; full ones are forgotten first: a new one is as good


@dataclass(slots=True)
class _Bucket:
    left: float
    at: float


@dataclass(slots=True)
class Buckets:
    """One bucket a name, full at first; `clock` tells seconds."""

    clock: Callable[[], float] = time.monotonic
    _buckets: dict[str, _Bucket] = field(default_factory=dict)

    def take(self, name: str, rate: float, burst: int) -> int:
        """Take one out of the bucket: 0 when there was one, else the seconds until there is."""
        moment = self.clock()
        bucket = self._buckets.get(name)
        if bucket is None:
            self._make_room(moment, rate)
            bucket = self._buckets[name] = _Bucket(burst, moment)
        bucket.left = min(float(burst), bucket.left + rate * (moment - bucket.at))
        bucket.at = moment
        if bucket.left >= 1:
            bucket.left -= 1
            return 0
        return max(1, math.ceil((1 - bucket.left) / rate))

    def _make_room(self, moment: float, rate: float) -> None:
        if len(self._buckets) < _MOST:
            return
        oldest = sorted(self._buckets, key=lambda n: self._buckets[n].at)
        for name in oldest[: _MOST // 2]:
            del self._buckets[name]
