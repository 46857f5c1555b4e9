"""Each step alone: is it what its law says, and nothing else?

A fresh e-graph of the engine itself gets the program before the step, the step's one law (with the
facts that license it) and nothing more; then the program after the step is inserted: every output
must land in its old class. What analyses knew of a class when everything was in is told for the
terms of that class, where the step fails without (`known`): another member may have shown a sign.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from nautile.egraph import job_of
from nautile.egraph.engine import Job
from nautile.errors import SaturationError
from nautile.terms import Output, Term

from .equalities import Equalities
from .reach import Encoded, Question, encoded

__all__ = ["stands_alone"]

_ROUNDS = 3  # facts rest in the first


def stands_alone(
    question: Question,
    laws: Sequence[int],
    before: Sequence[Term],
    after: Sequence[Term],
    graph: Equalities | None = None,
) -> str | None:
    """How a step from `before` to `after` (one term for each output) follows from laws of these
    numbers alone: "alone", or "known" where it needs what analyses know of classes in `graph`; None
    where it does not follow."""
    outputs = [
        Output(o.buffer, o.axes, t) for o, t in zip(question.goal.outputs, before, strict=True)
    ]
    asked = encoded(outputs, after)
    sources = set(question.encoded.region.terms[: question.encoded.count])
    plain = _job(question, laws, asked, sources, None)
    if _equal(question, asked, plain):
        return "alone"
    if graph is not None and _equal(question, asked, _job(question, laws, asked, sources, graph)):
        return "known"
    return None


def _job(
    question: Question,
    laws: Sequence[int],
    asked: Encoded,
    sources: set[Term],
    graph: Equalities | None,
) -> Job:
    """The job of one step: terms of the source are known to be such, other terms are not."""
    lines = []
    place = 0
    for line in asked.lines:
        if not line.startswith("(set (N "):
            lines.append(line)
            continue
        term = asked.region.terms[place]
        place += 1
        inserted, mark, _ = line.partition(" (set (traits ")
        lines.append(line if term in sources or "(Leaf" in line or not mark else inserted)
        known = graph.traits(term) if graph is not None else None
        if known is not None:
            lines.append(f"(set (traits (N {place - 1})) {known})")
    job = job_of(asked.region, question.laws, question.limits, alone=True)
    skip = [i for i in range(len(question.laws)) if i not in laws]
    return msgspec.structs.replace(
        job, lines=lines, terms=asked.count, after=list(asked.after), skip=skip, iterations=_ROUNDS
    )


def _equal(question: Question, asked: Encoded, job: Job) -> bool:
    try:
        frozen = question.worker.frozen(job, question.laws)
    except SaturationError:
        return False
    places = [frozen.inputs[r] for r in asked.roots]
    half = len(places) // 2
    return places[:half] == places[half:]
