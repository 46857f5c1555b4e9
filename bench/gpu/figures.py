"""Medians, spreads and paired ratios of timed rounds.

A contestant's figure is the median of its rounds. A ratio is the median over rounds of the quotient
within a round: clocks that follow power and temperature move both sides of it alike.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["geometric_mean", "ratio", "summary"]


def summary(rounds: Sequence[float]) -> dict[str, Any]:
    """Median, least and greatest milliseconds; `spread` is the interquartile range over the
    median (0 for fewer than two rounds)."""
    middle = statistics.median(rounds)
    spread = 0.0
    if len(rounds) > 1:
        low, _, high = statistics.quantiles(rounds, n=4, method="inclusive")
        spread = (high - low) / middle
    return {"ms": middle, "low": min(rounds), "high": max(rounds), "spread": spread}


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float]:
    """Their time over ours, round by round: above 1, ours is faster. ValueError where the rounds
    are not as many."""
    each = [b / a for a, b in zip(ours, theirs, strict=True)]
    return {"ratio": statistics.median(each), "ratio_low": min(each), "ratio_high": max(each)}


def geometric_mean(values: Iterable[float]) -> float:
    """NaN of nothing."""
    logs = [math.log(v) for v in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan
