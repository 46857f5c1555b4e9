"""What a batch is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from nautile.batch.inputs import WHOLE, Shard
from nautile.task import Limits, Settings
from nautile.terms import digest

__all__ = ["Asked"]


@dataclass(frozen=True, slots=True)
class Asked:
    """The inputs (see inputs.py), the folder for everything that comes out, the settings of all
    programs, sizes to use wherever a program has them, and how to run: `store` is a path or URL
    (OUT/store where left out), `artifacts` its folder of files, `jobs` the number of workers
    (as the machine allows where left out), `shard` the part of the files that this run takes. With
    `measure` a stored result that was never timed is no result: it is made and timed again."""

    inputs: tuple[str, ...]
    output: Path
    settings: Settings = field(default_factory=Settings)
    dims: dict[str, int] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    store: str | None = None
    artifacts: Path | None = None
    jobs: int | None = None
    resume: bool = False
    fail_fast: bool = False
    shard: Shard = WHOLE
    measure: bool = False

    @property
    def identity(self) -> str:
        """A digest of all that records depend on beside the files: settings and sizes."""
        from nautile.task.make import ingredients_of

        shared = sorted(ingredients_of("", self.settings).items())
        return digest(*(f"{n}={v}" for n, v in shared), repr(sorted(self.dims.items())))
