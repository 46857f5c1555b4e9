"""What was measured of a bundle's implementations, in `tuned.json` beside its manifest.

```
Record ::= version, devices {device's name: {program: [Pick]}}
Pick   ::= launch (its number), sources [digest of each kernel's source], ms {schedule: number}
```

A pick names an implementation by its sources, so one that a bundle no longer holds is forgotten.
Needs the standard library alone.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nautile.bundle.fields import count, entries, is_number, is_text, mapping, names, rows, wrong
from nautile.bundle.manifest import Implementation, Launch
from nautile.bundle.read import Loaded, json_of, read_file
from nautile.errors import BundleError

__all__ = ["TUNED", "Pick", "Record", "sources"]

TUNED = "tuned.json"
_VERSION = 1
_MAX_BYTES = 1 << 24


@dataclass(frozen=True, slots=True)
class Pick:
    """The fastest implementation of a launch, by the digests of its sources; `ms` of each that was
    measured, for people."""

    launch: int
    sources: tuple[str, ...]
    ms: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Record:
    """Picks by the device's name and the program's."""

    devices: Mapping[str, Mapping[str, tuple[Pick, ...]]] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path | str) -> Record:
        """The record in a bundle's folder; an empty one where there is none. BundleError if the
        file is damaged: remove it, or measure again."""
        try:
            data = json_of(read_file(Path(folder), TUNED, _MAX_BYTES), TUNED)
        except BundleError as error:
            if error.code == "bundle-missing":
                return cls()
            raise
        if not isinstance(data, dict) or data.get("version") != _VERSION:
            raise wrong(TUNED, data, f"a record of version {_VERSION}")
        return cls({n: _programs(data, n) for n in entries(data, "devices", TUNED)})

    def with_picks(self, device: str, program: str, picks: Sequence[Pick]) -> Record:
        """With these picks of one program on one device."""
        programs = {**self.devices.get(device, {}), program: tuple(picks)}
        return Record({**self.devices, device: programs})

    def picks(
        self, loaded: Loaded, program: str, launches: Sequence[Launch]
    ) -> dict[str, dict[int, int]]:
        """By device's name: numbers of launches and of their implementations that were picked."""
        return {
            device: _numbers(loaded, programs.get(program, ()), launches)
            for device, programs in self.devices.items()
        }

    def save(self, folder: Path | str) -> Path:
        """Write the record into a bundle's folder, whole or not at all. BundleError if that cannot
        be written."""
        path = Path(folder) / TUNED
        text = json.dumps({"version": _VERSION, "devices": _plain(self.devices)}, indent=1)
        try:
            handle, made = tempfile.mkstemp(dir=folder, prefix=f".{TUNED}.")
            with os.fdopen(handle, "w") as file:
                file.write(text + "\n")
            os.replace(made, path)
        except OSError as error:
            raise BundleError(f"{path} cannot be written: {error}", code="bundle-write") from error
        return path


def sources(loaded: Loaded, way: Implementation) -> tuple[str, ...]:
    """What an implementation is known by: the digests of its kernels' sources."""
    return tuple(loaded.manifest.files[k.source].digest for k in way.kernels)


def _programs(data: Mapping[str, Any], device: str) -> dict[str, tuple[Pick, ...]]:
    where = f"{TUNED}: {device}"
    programs = entries(data["devices"], device, where)
    return {name: rows(programs, name, _pick, where) for name in programs}


def _pick(row: Mapping[str, Any], where: str) -> Pick:
    ms = mapping(row, "ms", is_number, where)
    if not all(is_text(n) for n in ms):
        raise wrong(f"{where}: ms", ms, "schedules of at most 1000 characters")
    return Pick(count(row, "launch", 0, 2**31, where), names(row, "sources", where), ms)


def _numbers(loaded: Loaded, found: Sequence[Pick], launches: Sequence[Launch]) -> dict[int, int]:
    """Picks as numbers, where the launch has an implementation of those sources."""
    known = {
        (n, sources(loaded, way)): number
        for n, launch in enumerate(launches)
        for number, way in reversed(list(enumerate(launch.implementations)))
    }
    return {p.launch: known[p.launch, p.sources] for p in found if (p.launch, p.sources) in known}


def _plain(devices: Mapping[str, Mapping[str, Sequence[Pick]]]) -> dict[str, Any]:
    return {
        device: {
            name: [{"launch": p.launch, "sources": list(p.sources), "ms": dict(p.ms)} for p in row]
            for name, row in programs.items()
        }
        for device, programs in devices.items()
    }
