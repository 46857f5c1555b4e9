"""Tasks and outcomes as plain data: they travel through pipes, queues and databases as they are."""

from __future__ import annotations

from typing import Any

import msgspec

from nautile.options import Options

__all__ = ["Limits", "Names", "Outcome", "Pack", "Settings", "Task"]


class Pack(msgspec.Struct, frozen=True):
    """A pack of rules: the text of a user's pack, or (no text) a shipped one by its name."""

    name: str
    text: str | None = None


class Settings(msgspec.Struct, frozen=True):
    """What is asked for of every program: the fields of Options, rules by their contents."""

    target: str = "h200"
    numerics: str = "real"
    rules: tuple[Pack, ...] = ()
    accept: tuple[str, ...] = ()
    rows: int = 50_000
    seconds: float = 10.0
    memory: int = 4 << 30
    compile: bool = False
    architectures: tuple[str, ...] = ()
    candidates: int = 1
    seed: int = 0

    def options(self, rules: tuple[str, ...], threads: int = 1) -> Options:
        """As the stages take it, with the paths or names of the rules. Raises InputError for an
        unknown numerics class."""
        return Options(
            target=self.target,
            numerics=self.numerics,
            rules=rules,
            accept=self.accept,
            rows=self.rows,
            seconds=self.seconds,
            memory=self.memory,
            compile=self.compile,
            architectures=self.architectures,
            seed=self.seed,
            candidates=self.candidates,
            threads=threads,
        )


class Limits(msgspec.Struct, frozen=True):
    """What one task may use: seconds on the clock, seconds of processor time, and bytes of memory
    of its process and the children of that together."""

    seconds: float = 600.0
    cpu_seconds: float = 1200.0
    memory_bytes: int = 8 << 30


class Names(msgspec.Struct, frozen=True):
    """A program's own names: of itself, its tensors, and its axis families, in the order of first
    appearance (`lang.spelling`). Programs of one canonical form have as many of each."""

    program: str
    buffers: tuple[str, ...]
    families: tuple[str, ...]


class Task(msgspec.Struct, frozen=True):
    """One program of a text to optimize. `text` is all that is needed to read it; `key` and
    `ingredients` say what its result depends on; `term` among them is the program up to names."""

    text: str
    program: str
    filename: str
    key: str
    names: Names
    ingredients: dict[str, str]
    dims: dict[str, int] = {}
    settings: Settings = Settings()
    limits: Limits = Limits()


class Outcome(msgspec.Struct, frozen=True):
    """What running a task gave: the record of `optimize --json` and the bundle's files by path
    (none where it failed). `key` is that of the code which ran it, `names` those that it uses."""

    key: str
    ingredients: dict[str, str]
    names: Names
    record: dict[str, Any]
    artifacts: dict[str, bytes] = {}

    @property
    def ok(self) -> bool:
        """Whether a program was found (its certificate may still have failed)."""
        return bool(self.record["status"] == "ok")

    @property
    def certified(self) -> bool:
        """Whether a program was found and its certificate passed."""
        certificate = self.record.get("certificate") or {}
        return self.ok and certificate.get("verdict") == "pass"

    @property
    def lasting(self) -> bool:
        """Whether it is worth keeping: certified, and of a search that nothing but its rules and
        its budget of rows has ended. What the clock or the memory has cut short may be better
        another time."""
        saturation = self.record.get("saturation") or {}
        return self.certified and saturation.get("stop") not in ("time", "memory")
