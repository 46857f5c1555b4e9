"""Equality saturation: terms in, a frozen snapshot of everything the rules found equal out.

`encode` writes terms as egglog lines, `schema` holds sorts and analyses, `engine` runs the schedule
(the only module that imports egglog, in a child process as a rule), `decode` reads the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from nautile.errors import SaturationError
from nautile.rules.egglog import print_rule
from nautile.rules.law import Rule
from nautile.snapshot import Snapshot
from nautile.terms import Output

from .decode import decode
from .encode import Region, encode
from .engine import Job, RuleText, Unsound, run

if TYPE_CHECKING:
    from nautile.worker import Worker

__all__ = ["Limits", "encode", "job_of", "saturate", "unsound"]

_SMALL = 2500  # e-nodes that any region may have


@dataclass(frozen=True, slots=True)
class Limits:
    """Budgets of one saturation: e-nodes, seconds, iterations, and bytes of memory that it may add
    to the child process. `growth`, where given, is the number of e-nodes for each term of a region
    (2500 in any case): of the corpus' regions the largest needs 2047; what comes after is orders of
    one product, and extraction pays for each."""

    rows: int = 50_000
    growth: int | None = None
    seconds: float = 10.0
    iterations: int = 30
    memory_bytes: int = 4 << 30


def saturate(
    outputs: tuple[Output, ...],
    rules: Sequence[Rule],
    *,
    limits: Limits | None = None,
    in_process: bool = False,
    worker: Worker | None = None,
) -> Snapshot:
    """Everything that `rules` find equal to the outputs' terms, within the limits.

    Runs in `worker`, else in a child process of its own, else, with `in_process`, right here, where
    no memory limit holds and time is only looked at between rules. Raises SaturationError when the
    rules make two constants equal or the child fails; a spent budget is no error, but the report's
    stop reason.
    """
    limits = limits or Limits()
    if in_process:
        region, rules = encode(outputs), tuple(rules)
        try:
            return decode(region, run(job_of(region, rules, limits)), rules)
        except Unsound as found:
            raise unsound(found.laws, found.constants, rules) from None
    from nautile.worker import Worker

    if worker is not None:
        return worker.saturate(outputs, rules, limits=limits)
    with Worker() as own:
        return own.saturate(outputs, rules, limits=limits)


def job_of(
    region: Region,
    rules: tuple[Rule, ...],
    limits: Limits,
    *,
    alone: bool = False,
    tables: bool = False,
) -> Job:
    """The job of a region: plain data that may cross to a child process. `alone` and `tables` are
    those of `engine.Job`."""
    return Job(
        lines=list(region.lines),
        terms=len(region.terms),
        rules=[_alone(text) if alone else text for text in _texts(rules)],
        real=any(rule.numerics in ("real", "fast") for rule in rules),
        rows=_rows(limits, len(region.terms)),
        seconds=limits.seconds,
        iterations=limits.iterations,
        memory_bytes=limits.memory_bytes,
        alone=alone,
        tables=tables,
    )


def _alone(rule: RuleText) -> RuleText:
    """The rule in a ruleset of its own."""
    shared = ":ruleset facts " if rule.fact else ":ruleset normal "
    if not (rule.fact or rule.normal):
        return rule
    return msgspec.structs.replace(
        rule, text=rule.text.replace(shared, f":ruleset {rule.name} ", 1)
    )


def _rows(limits: Limits, terms: int) -> int:
    if limits.growth is None:
        return limits.rows
    return min(limits.rows, max(_SMALL, limits.growth * terms))


@lru_cache(maxsize=8)
def _texts(rules: tuple[Rule, ...]) -> tuple[RuleText, ...]:
    return tuple(
        RuleText(i, p.name, p.text, p.probe, p.fact, p.two_way, p.normal, p.limit)
        for i, rule in enumerate(rules)
        for p in print_rule(rule, i)
    )


def unsound(
    laws: Sequence[int], constants: Sequence[str], rules: Sequence[Rule]
) -> SaturationError:
    """The error that names the rules which made two constants equal."""
    names = ", ".join(rules[law].name for law in laws)
    return SaturationError(
        f"the rules made the constants {' and '.join(constants)} equal; they met through {names}",
        code="unsound",
    )
