"""What crosses to the process that saturates, and what comes back: plain data.

```
Job    ::= lines that insert terms, rules (RuleText), budgets
Frozen ::= rows, what is known of their classes, and the course: a Round an iteration
```
"""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["Frozen", "Job", "Progress", "Round", "RuleText"]


class RuleText(msgspec.Struct, frozen=True, array_like=True):
    """An egglog rule: the number of its law, its name (and ruleset), its text, the probe that only
    counts its matches (of two-way rules); whether it is a fact, rewrites both ways, or drops what
    it rewrites; how many matches in an iteration are too many (0: as the engine sees fit)."""

    law: int
    name: str
    text: str
    probe: str
    fact: bool
    two_way: bool
    normal: bool = False
    limit: int = 0


class Job(msgspec.Struct, frozen=True):
    """What to saturate: lines that insert terms, rules, budgets. `real` folds numbers. `alone`
    applies the rules one by one (each with a ruleset of its own) and keeps a tally of what each
    did, and leaves out the laws to `skip`; `tables` asks for what analyses and facts know. The
    lines of `after` are inserted at the end, and meet normal laws alone."""

    lines: list[str]
    terms: int
    rules: list[RuleText]
    real: bool
    rows: int
    seconds: float
    iterations: int
    memory_bytes: int
    alone: bool = False
    tables: bool = False
    skip: list[int] = []
    after: list[str] = []


class Round(msgspec.Struct, frozen=True, array_like=True):
    """One iteration: e-nodes and seconds when it ended, matches by law in it, and the laws that
    back-off sent to rest in it (-1: all facts together)."""

    rows: int
    seconds: float
    matches: dict[int, int]
    rests: list[int]


class Frozen(msgspec.Struct, frozen=True):
    """The e-graph as plain data. Classes are numbered in order of appearance: `inputs` are those of
    the inserted terms; a row is a constructor's name, its arguments and its class. An entry of the
    `tally` is an iteration, a law, its matches, the e-nodes that they added, and seconds; `course`
    tells of each iteration, the last one, which a budget may have cut, included."""

    stop: str
    inputs: list[int]
    rows: list[tuple[str, list[Any], int]]
    free: dict[int, int]
    types: dict[int, int]
    made: list[tuple[int, int]]
    matches: dict[int, int]
    growth: list[int]
    seconds: float
    processor: float = 0.0
    tally: list[tuple[int, int, int, int, float]] = []
    tables: dict[str, list[list[Any]]] = {}
    course: list[Round] = []


class Progress(msgspec.Struct, frozen=True):
    """An iteration ended; `checkpoint` is what the e-graph holds, where it was worth freezing."""

    iterations: int
    checkpoint: Frozen | None
