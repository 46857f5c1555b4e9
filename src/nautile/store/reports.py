"""What the store tells about itself: its contents, its faults, what was removed, what was moved.

All sizes are bytes of content (a disk takes a little more); all are plain data for `--json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["Collected", "Exported", "Imported", "Problem", "Stats", "Verified"]

LOSSES = ("row", "links", "database")


@dataclass(frozen=True, slots=True)
class Stats:
    """The contents of a store. `artifact_bytes` counts each artifact once, `shared_bytes` is what
    it would take more if each entry had its own. `terms` is how many different programs there are;
    `distinct` how many values each ingredient of the keys takes, and `apart` in how many entries of
    programs that are there more than once that ingredient differs from another entry of the same
    program: it is why they are not shared."""

    place: str
    backend: str
    schema: str
    entries: int
    artifacts: int
    record_bytes: int
    artifact_bytes: int
    shared_bytes: int
    database_bytes: int
    hits: int
    oldest: float | None
    newest: float | None
    quarantined: int
    terms: int
    distinct: Mapping[str, int] = field(default_factory=dict)
    apart: Mapping[str, int] = field(default_factory=dict)
    versions: Mapping[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The figures as JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault. `kind`: `missing` or `damaged` (an artifact that entries need), `row` (an entry
    whose row is damaged), `links` (an entry whose artifacts are not counted), `database` (SQLite's
    own check), `orphan` (a file that no row names), `foreign` (a file that is no artifact),
    `quarantined` (moved aside before), `leftover` (half written by a process that died). The first
    five are `bad`, those of artifacts where an entry needs it: a result is lost. The others only
    take space."""

    kind: str
    name: str
    keys: tuple[str, ...] = ()
    repaired: bool = False

    @property
    def bad(self) -> bool:
        """Whether a result is lost with it."""
        return bool(self.keys) if self.kind in ("missing", "damaged") else self.kind in LOSSES


@dataclass(frozen=True, slots=True)
class Verified:
    """What a look at every row and every artifact found."""

    entries: int
    artifacts: int
    bytes: int
    problems: tuple[Problem, ...]

    @property
    def sound(self) -> bool:
        """Whether every entry is whole, or was repaired by being removed."""
        return all(p.repaired for p in self.problems if p.bad)

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON values."""
        return asdict(self) | {"sound": self.sound}


@dataclass(frozen=True, slots=True)
class Collected:
    """What `gc` removed, or would remove: entries, artifacts that no entry uses any more, files
    that no row names (`orphans`), half-written files (`leftovers`), and files in quarantine."""

    entries: int = 0
    artifacts: int = 0
    orphans: int = 0
    leftovers: int = 0
    quarantined: int = 0
    bytes: int = 0
    remaining_entries: int = 0
    remaining_bytes: int = 0
    dry_run: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The figures as JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Exported:
    """What an archive holds; `skipped` are keys of entries that are damaged in the store."""

    entries: int
    artifacts: int
    bytes: int
    skipped: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The figures as JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Imported:
    """What came out of an archive: `added` entries, `kept` ones whose key was there before."""

    added: int
    kept: int
    artifacts: int

    def as_dict(self) -> dict[str, Any]:
        """The figures as JSON values."""
        return asdict(self)
