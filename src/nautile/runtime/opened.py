"""A bundle opened for launching: its programs by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nautile.bundle.read import Loaded, load_bundle
from nautile.errors import LaunchError
from nautile.runtime import checking, timing
from nautile.runtime.launch import Program, program_of
from nautile.runtime.record import Record

__all__ = ["Bundle"]


@dataclass(frozen=True, slots=True)
class Bundle:
    """A loaded bundle: its programs by name."""

    loaded: Loaded
    programs: Mapping[str, Program]

    @classmethod
    def load(cls, folder: Path | str) -> Bundle:
        """Read and check a bundle folder, and what was measured of it. BundleError says what is
        wrong with it."""
        loaded, record = load_bundle(folder), Record.load(folder)
        programs = loaded.manifest.programs
        return cls(loaded, {p.name: program_of(loaded, p, record) for p in programs})

    def __getitem__(self, name: str) -> Program:
        if name not in self.programs:
            known = ", ".join(self.programs)
            raise LaunchError(f"no program '{name}' in the bundle; known: {known}", code="program")
        return self.programs[name]

    def __iter__(self) -> Iterator[Program]:
        return iter(self.programs.values())

    @property
    def only(self) -> Program:
        """The bundle's one program. LaunchError if it holds several."""
        if len(self.programs) != 1:
            known = ", ".join(self.programs)
            raise LaunchError(f"the bundle holds several programs: {known}", code="program")
        return next(iter(self.programs.values()))

    def run(
        self,
        arrays: Mapping[str, Any] | None = None,
        /,
        *,
        out: Mapping[str, Any] | None = None,
        stream: Any = None,
        **named: Any,
    ) -> Mapping[str, Any]:
        """`Program.run` of the bundle's one program."""
        return self.only.run(arrays, out=out, stream=stream, **named)

    def check(self) -> dict[str, Any]:
        """`checking.check` of the bundle's one program."""
        return checking.check(self.only)

    def bench(self, repeats: int = 100) -> dict[str, Any]:
        """`timing.bench` of the bundle's one program."""
        return timing.bench(self.only, repeats)
