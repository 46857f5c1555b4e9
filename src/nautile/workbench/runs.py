"""One saturation of a program for the workbench: its regions, with what the engine keeps for us."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nautile.egraph import Limits, encode, job_of
from nautile.egraph.decode import decode
from nautile.egraph.encode import Region
from nautile.egraph.engine import Frozen
from nautile.extract import regions
from nautile.options import Options
from nautile.rules.law import Rule
from nautile.stages import Optimization, choose
from nautile.terms import Program
from nautile.worker import Worker

__all__ = ["LIMITS", "Saturated", "choice", "saturated"]

LIMITS = Limits(growth=20)  # as programs are optimized


@dataclass(frozen=True, slots=True)
class Saturated:
    """A region of a program, as egglog saw it and as it froze."""

    region: regions.Region
    encoded: Region
    frozen: Frozen


def saturated(
    program: Program,
    rules: Sequence[Rule],
    worker: Worker,
    *,
    limits: Limits = LIMITS,
    alone: bool = False,
    tables: bool = False,
) -> tuple[Saturated, ...]:
    """All regions of a program. `alone` keeps a tally of every rule, `tables` what analyses know.

    Raises SaturationError where the rules make two constants equal.
    """
    laws, found = tuple(rules), []
    for region in regions.cut(program):
        encoded = encode(region.outputs)
        job = job_of(encoded, laws, limits, alone=alone, tables=tables)
        found.append(Saturated(region, encoded, worker.frozen(job, laws)))
    return tuple(found)


def choice(
    program: Program, runs: Sequence[Saturated], rules: Sequence[Rule], options: Options
) -> Optimization:
    """The program chosen from saturated regions."""
    result = Optimization(program, options)
    result.regions = tuple(run.region for run in runs)
    result.snapshots = tuple(decode(run.encoded, run.frozen, rules) for run in runs)
    choose(result)
    return result
