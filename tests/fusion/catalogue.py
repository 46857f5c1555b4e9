"""The programs of the fusion table, and what their mathematics permits.

```
catalogue ::= programs/*.nau, then every subgraph of tests/data/corpus/subgraphs.json
fewest    ::= fewest.toml: by program, the fewest passes over each input and the fewest kernels
```

The fewest are written by hand from the mathematics, never from what is chosen.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from nautile import lang
from nautile.terms import Program

__all__ = ["HERE", "Entry", "catalogue", "entry"]

HERE = Path(__file__).resolve().parent
CORPUS = HERE.parent / "data" / "corpus" / "subgraphs.json"


@dataclass(frozen=True, slots=True)
class Entry:
    """One program and the fewest kernels and passes (by input; 1 where none is given) that it can
    have. `why` says why these are not 1, `stops` what stops a plan that needs more, and `found`
    how many (`kernels`, `passes`) that plan needs."""

    group: str
    program: Program
    text: str
    family: str
    kernels: int = 1
    passes: Mapping[str, int] = field(default_factory=dict)
    why: str = ""
    stops: str = ""
    found: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.program.name

    def fewest(self, tensor: str) -> int:
        """The fewest passes over an input."""
        return self.passes.get(tensor, 1)

    def allowed(self, tensor: str) -> int:
        """The most passes over an input that its chosen plan may have."""
        found: Mapping[str, int] = self.found.get("passes", {})
        return max(self.fewest(tensor), found.get(tensor, 1))

    @property
    def most_kernels(self) -> int:
        """The most kernels that its chosen plan may have."""
        return max(self.kernels, int(self.found.get("kernels", 1)))


@cache
def catalogue() -> tuple[Entry, ...]:
    """All programs, file by file. Raises KeyError for one without a line in fewest.toml."""
    known = tomllib.loads((HERE / "fewest.toml").read_text())
    return tuple(
        Entry(group, program, text, **known[program.name])
        for group, text in _texts()
        for program in lang.parse(text, filename=group)
    )


def entry(name: str) -> Entry:
    """The entry of a program's name."""
    return next(e for e in catalogue() if e.name == name)


def _texts() -> list[tuple[str, str]]:
    """(group, text) of every file, the corpus' subgraphs last."""
    files = sorted((HERE / "programs").glob("*.nau"))
    corpus: list[dict[str, Any]] = json.loads(CORPUS.read_text())["subgraphs"]
    own = [(f.stem, f.read_text()) for f in files]
    return own + [("subgraphs", "\n".join(s["program"])) for s in corpus]
