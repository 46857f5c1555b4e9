"""Each step alone: is it what its law says, and nothing else?

A fresh e-graph of the engine itself gets the program before the step, the step's one law (with the
facts that license it) and nothing more; then the program after the step is inserted: every output
must land in its old class. What analyses knew of a class when everything was in is told for the
terms of that class, where the step fails without (`known`): another member may have shown a sign.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from nautile.egraph import Limits, job_of
from nautile.egraph.engine import Job
from nautile.errors import SaturationError
from nautile.options import NUMERICS
from nautile.rules.admission import admit
from nautile.stages import Optimization
from nautile.terms import Output, Term
from nautile.worker import Worker

from .equalities import Equalities
from .goal import Goal
from .model import Step
from .reach import Encoded, Question, encoded

__all__ = ["ALONE", "KNOWN", "replays", "stands_alone"]

ALONE, KNOWN = "alone", "known"
_ROUNDS = 3  # facts rest in the first


def stands_alone(
    question: Question,
    laws: Sequence[int],
    before: Sequence[Term],
    after: Sequence[Term],
    graph: Equalities | None = None,
    told: Sequence[Term] = (),
) -> str | None:
    """How a step from `before` to `after` (one term for each output) follows from laws of these
    numbers alone: "alone", or "known" where it needs what analyses know of classes in `graph` (also
    of terms that a law asks about, `told`); None where it does not follow."""
    outputs = [
        Output(o.buffer, o.axes, t) for o, t in zip(question.goal.outputs, before, strict=True)
    ]
    asked = encoded(outputs, after)
    sources = set(question.encoded.region.terms[: question.encoded.count])
    plain = _job(question, laws, asked, sources, None)
    if _equal(question, asked, plain):
        return ALONE
    if graph is not None:
        more = [*outputs, *(Output(outputs[0].buffer, outputs[0].axes, t) for t in told)]
        asked = encoded(more, [*after, *told])
        if _equal(question, asked, _job(question, laws, asked, sources, graph)):
            return KNOWN
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
        hidden = line == f"(set (N {place - 1}) (Num 0.0))"
        known = graph.traits(term) if graph is not None and not hidden else None
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


def replays(step: Step, result: Optimization, worker: Worker) -> bool:
    """Whether the engine makes a step's `after` of its `before` by the step's law and facts alone;
    nothing else of the derivation is looked at. A step that is no law's replays where folding
    constants alone does it."""
    if step.region is None:
        return False
    o = result.options
    laws = admit(o.packs, o.rules, o.accept, NUMERICS[o.numerics]).rules
    source = result.regions[step.region].outputs
    goal = Goal(step.region, source, tuple(p.term for p in source), ())
    question = Question(goal, laws, Limits(rows=o.rows, seconds=o.seconds), worker)
    named = {step.rule, *(fact.rule for fact in step.facts)}
    numbers = [i for i, law in enumerate(laws) if law.name in named]
    one, two = (step.before, step.after) if step.forward else (step.after, step.before)
    return stands_alone(question, numbers, _terms(one), _terms(two)) == ALONE


def _terms(outputs: Sequence[Output]) -> tuple[Term, ...]:
    return tuple(o.term for o in outputs)
