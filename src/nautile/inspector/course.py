"""How saturation went, iteration by iteration: rows, time, matches by rule, rules that rested."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nautile.snapshot import Snapshot

__all__ = ["course", "stops"]


def course(snapshots: Sequence[Snapshot]) -> list[dict[str, Any]]:
    """One object an iteration of each region. `seconds` is the time that the iteration took;
    `matches` names the rules that matched in it, `rests` those that matched too often and rest."""
    found = []
    for number, snapshot in enumerate(snapshots):
        before, rows = 0.0, None
        for n, step in enumerate(snapshot.report.course, 1):
            found.append(
                {
                    "region": number,
                    "iteration": n,
                    "rows": step.rows,
                    "added": None if rows is None else step.rows - rows,
                    "seconds": step.seconds - before,
                    "matches": dict(sorted(step.matches.items(), key=lambda m: (-m[1], m[0]))),
                    "rests": list(step.rests),
                }
            )
            before, rows = step.seconds, step.rows
    return found


def stops(snapshots: Sequence[Snapshot]) -> list[str]:
    """Why each region's saturation stopped."""
    return [s.report.stop for s in snapshots]
