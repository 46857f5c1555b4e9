"""Putting a derivation together: region by region, then what finishing does."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from nautile import lang
from nautile.egraph import Limits
from nautile.egraph.engine import Frozen
from nautile.errors import NautileError
from nautile.options import NUMERICS
from nautile.rules.admission import admit
from nautile.rules.law import Rule
from nautile.stages import Optimization
from nautile.terms import Axis, Const, Output, Program, Term
from nautile.worker import Worker

from .equalities import Equalities
from .fewest import Fewest, fewest
from .finishing import finishing
from .goal import Goal, goals
from .licence import facts_of, laws_of
from .matching import folds, forms
from .merged import taken_apart
from .model import Derivation, Gap, Place, Step
from .numbers import Numbers
from .reach import Question
from .replay import State, paths, replay
from .search import Search
from .shown import Names, text_of
from .single import ALONE, KNOWN, stands_alone
from .sourced import named_terms, source_names, stored_of, terms_of, written_out
from .ways import NoWay, Rewrite, Ways
from .writing import Spelling

__all__ = ["derive"]

_TRIES = 4  # derivations of one region, steps that fail by themselves avoided
_WEIGHTS = {ALONE: 0, KNOWN: 1}
_PATIENCE = 4.0  # seconds of the engine in which fewer rules are looked for, by region
_GROWTH = 20  # e-nodes for each term of a region, as programs are optimized


def derive(result: Optimization, worker: Worker | None = None) -> Derivation:
    """The derivation of what was chosen, each step checked by itself.

    `result` must have been saturated and chosen (`stages.choose`); nothing of it is changed. Where
    a part cannot be derived, a step "gap" stands in its place and `gaps` tells why. Raises
    InputError where nothing was chosen yet, and what `admit` raises for the user's rules."""
    start = time.perf_counter()
    own = Worker() if worker is None else None
    try:
        active = worker or own
        assert active is not None
        deriving = _Deriving(result, active)
        return deriving.derivation(start)
    finally:
        if own is not None:
            own.close()


@dataclass(frozen=True, slots=True)
class _Part:
    """What was found for one region."""

    steps: tuple[Step, ...]
    fewest: Fewest | None
    gap: Gap | None = None


@dataclass(frozen=True, slots=True)
class _Attempt:
    """States, and how each step between them was checked; `weight` is 0 where all stand alone."""

    ways: Ways
    states: tuple[State, ...]
    checks: tuple[str | None, ...]

    @property
    def weight(self) -> int:
        return sum(_WEIGHTS.get(check or "", 1000) for check in self.checks)


@dataclass(slots=True)
class _Deriving:
    """One program on its way from the source to its kernels."""

    result: Optimization
    worker: Worker
    laws: tuple[Rule, ...] = field(init=False)
    goals: tuple[Goal, ...] = field(init=False)
    names: dict[Term, tuple[str, tuple[Axis, ...]]] = field(init=False)
    lines: dict[Term, tuple[str, int]] = field(init=False)
    numbers: tuple[Numbers, ...] = field(init=False)
    checked: dict[Any, str | None] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        o = self.result.options
        self.goals = goals(self.result)
        admitted = admit(o.packs, o.rules, o.accept, NUMERICS[o.numerics]).rules
        fired = {n for s in self.result.snapshots for n, c in s.report.matches.items() if c}
        # Normal laws are applied between rounds, too, where nobody counts.
        self.laws = tuple(law for law in admitted if law.name in fired or law.is_normal)
        self.names, self.lines = source_names(self.result.work, self.goals)
        self.numbers = tuple(
            Numbers(g.outputs, self.result.work, o.numerics, o.seed) for g in self.goals
        )

    def derivation(self, start: float) -> Derivation:
        """All steps, the rules needed, and the gaps."""
        parts = [self._region(goal) for goal in self.goals]
        end = finishing(self.result, self.goals, self.numbers, self.names)
        steps = [*self._first(), *(s for p in parts for s in p.steps), *end.steps]
        gaps = (*(p.gap for p in parts if p.gap is not None), *end.gaps)
        needed = self._needed([p.fewest for p in parts])
        return Derivation(
            self.result.program.name,
            tuple(steps),
            tuple(self._names_of(needed.rules)),
            needed.smallest,
            tuple(tuple(self._names_of(other)) for other in needed.others),
            gaps,
            tuple(n for n in self._names_of(needed.rules) if n in self._facts),
            time.perf_counter() - start,
        )

    # ---- before the laws -----------------------------------------------------------------------

    def _first(self) -> Iterator[Step]:
        """The source as it is read, taken apart, and cut into regions."""
        program, work = self.result.program, self.result.work
        if work is not program:
            yield self._apart(program, work)
        regions = tuple(o for r in self.result.regions for o in r.outputs)
        if terms_of(work) != named_terms(regions):
            same = written_out(work, regions)
            yield Step(
                "cut", program.name, stored_of(work), regions, check="equal" if same else "failed",
                note=f"{len(regions)} stored, other definitions written into their readers",
                names=self.names, given=(lang.show(work), _shown(work, regions, self.names)),
            )  # fmt: skip

    def _apart(self, program: Program, work: Program) -> Step:
        """What is stored over two axes in place of one, definition by definition."""
        o = self.result.options
        tried = taken_apart(program, work, numerics=o.numerics, seed=o.seed)
        note = "axes that a product needs as two are two; the memory is the same"
        return Step(
            "apart", program.name, (), (), check="failed" if tried.wrong else "numbers",
            max_error=tried.error, rounding=tried.naive, samples=tried.samples,
            note="; ".join(filter(None, [note, tried.wrong])), names=self.names,
            given=(lang.show(program), lang.show(work)),
        )  # fmt: skip

    # ---- one region ----------------------------------------------------------------------------

    def _region(self, goal: Goal) -> _Part:
        limits = self._limits()
        question = Question(goal, self.laws, limits, self.worker)
        fired = self._fired(question)
        try:
            search = self._search(question, fired)
            if not search.run() and fired < self._with_normal(fired):
                fired = self._with_normal(fired)
                search = self._search(question, fired)
                search.run()
            if not search.reached():
                return self._missing(question, fired, "the laws that fired do not reach it again")
            found = self._ways(question, search, fired)
        except (NoWay, NautileError) as error:
            return self._missing(question, fired, str(error))
        steps = tuple(self._steps(question, found))
        used = laws_of(found.ways, [s.by for s in found.states if s.by is not None])
        few = self._fewest(question, fired, used)
        literals = self._literals(goal, question.encoded.sources)
        return _Part((*literals, *steps), few)

    def _limits(self) -> Limits:
        o = self.result.options
        return Limits(rows=o.rows, growth=_GROWTH, seconds=o.seconds, memory_bytes=o.memory)

    def _fired(self, question: Question) -> frozenset[int]:
        """The laws that were applied, as far as they were counted, or also those that were not."""
        matches = self.result.snapshots[question.goal.region].report.matches
        found = frozenset(i for i, law in enumerate(self.laws) if matches.get(law.name))
        return found if question.reaches(found) else self._with_normal(found)

    def _with_normal(self, rules: frozenset[int]) -> frozenset[int]:
        return rules | {i for i, law in enumerate(self.laws) if law.is_normal}

    def _search(
        self, question: Question, fired: frozenset[int], *, known: Frozen | None = None
    ) -> Search:
        """A search from the source's terms, with what the engine knows in the end."""
        frozen = question.frozen(fired) if known is None else known
        graph = Equalities(Spelling(question.encoded.region), frozen)
        terms = question.encoded.region.terms[: question.encoded.count]
        for term, where in zip(terms, frozen.inputs, strict=False):
            graph.add(term, where)
        for constant in (Const(0.0), Const(-1.0)):  # which the engine starts with
            graph.add(constant)
        real = self.result.options.numerics != "exact"
        pairs = tuple(zip(question.encoded.sources, question.encoded.targets, strict=True))
        return Search(graph, self.laws, (*folds(real), *forms(self.laws, fired)), pairs)

    def _missing(self, question: Question, fired: frozenset[int], why: str) -> _Part:
        """No derivation: a step that says so, and the rules that the engine needs."""
        goal = question.goal
        after = _with_terms(goal.outputs, goal.wholes)
        tried = self.numbers[goal.region].tried(goal.wholes)
        step = Step(
            "gap", self.result.program.name, goal.outputs, after, goal.region,
            check="numbers" if not tried.wrong else "failed", max_error=tried.error,
            rounding=tried.naive, samples=tried.samples, note=why, names=self.names,
        )  # fmt: skip
        return _Part((step,), self._fewest(question, fired, ()), Gap(goal.region, why))

    def _fewest(
        self, question: Question, fired: frozenset[int], used: Collection[int]
    ) -> Fewest | None:
        """The fewest rules that were found while there was time."""
        question.budget = _PATIENCE
        found = fewest(question.reaches, fired, used)
        late = question.budget <= 0
        return replace(found, smallest=False) if found is not None and late else found

    def _literals(self, goal: Goal, sources: Sequence[Term]) -> Iterator[Step]:
        """Whole numbers among floats are floats from the start."""
        if tuple(o.term for o in goal.outputs) != tuple(sources):
            tried = self.numbers[goal.region].tried(sources)
            yield Step(
                "literals", self.result.program.name, goal.outputs,
                _with_terms(goal.outputs, sources), goal.region,
                check="failed" if tried.wrong else "numbers", max_error=tried.error,
                rounding=tried.naive, samples=tried.samples, names=self.names,
                note="whole numbers among floats are written as floats",
            )  # fmt: skip

    def _ways(self, question: Question, search: Search, fired: frozenset[int]) -> _Attempt:
        """States from the source to what was chosen, each step checked. Where a law alone does not
        make its step, or only with what analyses know, other ways are looked for: laws that were
        used are applied further, and such steps are avoided."""
        best = self._attempt(question, search.graph, frozenset())
        if best.weight == 0:
            return best
        avoided: frozenset[int] = frozenset()
        used = laws_of(best.ways, [s.by for s in best.states if s.by is not None])
        again = self._search(question, frozenset(used) & fired, known=search.graph.final)
        if not again.run():
            return best
        for _ in range(_TRIES):
            more = again.further()
            found = self._attempt(question, again.graph, avoided)
            best = min(best, found, key=lambda a: a.weight)
            wrong = [
                s.by for s, c in zip(found.states[1:], found.checks, strict=True) if c != ALONE
            ]
            new = avoided | {id(i) for by in wrong if by is not None for i in by.instances}
            if best.weight == 0 or (new == avoided and not more):
                break
            avoided = new
        return best

    def _attempt(self, question: Question, graph: Equalities, avoided: frozenset[int]) -> _Attempt:
        ways = Ways(graph, self.laws, avoided)
        states = replay(ways, question.encoded.sources, question.encoded.targets)
        checks = [self._checked(question, ways, a, b) for a, b in pairwise(states)]
        return _Attempt(ways, tuple(states), tuple(checks))

    def _steps(self, question: Question, found: _Attempt) -> Iterator[Step]:
        for (a, b), check in zip(pairwise(found.states), found.checks, strict=True):
            assert b.by is not None
            yield self._step(question, found.ways, a, b, b.by, check)

    def _step(
        self,
        question: Question,
        ways: Ways,
        before: State,
        after: State,
        by: Rewrite,
        check: str | None,
    ) -> Step:
        goal = question.goal
        instance = by.instances[-1]
        law = self.laws[instance.law] if instance.law >= 0 else None
        tried = self.numbers[goal.region].tried(after.terms)
        wrong = tried.wrong or ("" if check else "the law alone does not make this step")
        return Step(
            rule="fold" if law is None else law.name,
            name=self.result.program.name,
            before=_with_terms(goal.outputs, before.terms),
            after=_with_terms(goal.outputs, after.terms),
            region=goal.region,
            law=None if law is None else law.text,
            numerics=None if law is None else law.numerics,
            pack=None if law is None else law.pack,
            forward=by.forward,
            place=self._place(goal, before.terms, by.redex, ways.graph),
            redex=by.redex,
            contractum=by.contractum,
            facts=facts_of(ways, by, self.names),
            check="failed" if wrong else str(check),
            max_error=tried.error,
            rounding=tried.naive,
            samples=tried.samples,
            note=wrong,
            names=self.names,
        )

    def _checked(self, question: Question, ways: Ways, before: State, after: State) -> str | None:
        """The step by its law alone, from the side that the law starts at."""
        by = after.by
        assert by is not None
        key = (*map(id, by.instances), before.terms, after.terms)
        if key not in self.checked:
            one, two = (before, after) if by.forward else (after, before)
            told = [t for i in by.instances for t in i.names.values()]
            numbers = sorted(laws_of(ways, [by]))
            self.checked[key] = stands_alone(
                question, numbers, one.terms, two.terms, ways.graph, told
            )
        return self.checked[key]

    def _place(
        self, goal: Goal, terms: Sequence[Term], redex: Term, graph: Equalities
    ) -> Place | None:
        found = [(o.buffer.name, p) for o, t in zip(goal.outputs, terms, strict=True)
                 for p in paths(t, redex)]  # fmt: skip
        if not found:
            return None
        tensor, path = found[0]
        definition, line = self._line(redex, graph)
        return Place(tensor, path, len(found), definition, line)

    def _line(self, redex: Term, graph: Equalities) -> tuple[str | None, int | None]:
        """The definition and line of the source in which a term's class stands."""
        for item in (redex, *graph.members(redex)):
            if isinstance(item, Term) and item in self.lines:
                return self.lines[item]
        return None, None

    # ---- rules needed --------------------------------------------------------------------------

    def _needed(self, found: Sequence[Fewest | None]) -> Fewest:
        """The union of the regions' sets; it is the smallest where each of them is the only one."""
        own = [f for f in found if f is not None]
        rules = frozenset[int]().union(*(f.rules for f in own))
        only = [f for f in own if f.smallest and not f.others]
        smallest = len(only) == len(own) == len(found)
        if len(own) == 1 == len(found) or sum(bool(f.rules) for f in own) == 1:
            (single,) = [f for f in own if f.rules] or own[:1]
            return Fewest(rules, single.smallest and len(own) == len(found), single.others)
        return Fewest(rules, smallest)

    @property
    def _facts(self) -> frozenset[str]:
        return frozenset(law.name for law in self.laws if law.is_fact)

    def _names_of(self, rules: frozenset[int]) -> list[str]:
        return [self.laws[i].name for i in sorted(rules)]


def _with_terms(outputs: Sequence[Output], terms: Sequence[Term]) -> tuple[Output, ...]:
    return tuple(Output(o.buffer, o.axes, t) for o, t in zip(outputs, terms, strict=True))


def _shown(program: Program, regions: Sequence[Output], names: Names) -> str:
    return text_of(program.name, regions, names)
