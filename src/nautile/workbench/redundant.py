"""Rules that one could do without: derived by others, subsumed by one, or only going in circles.

- **derived**: the other rules, of its class or stricter, make its right side of its left within a
  budget, for terms of which nothing but its conditions is known (`question`). The fewest rules that
  still do so are told. Where one of them does so alone, the rule is **subsumed** by it.
- **inverse**: two one-way rules that undo each other, up to the names in them: a two-way rule in
  two parts.
- **idle**: a rule that rewrites both ways (or such a pair) which fires in the given programs but
  opens the way for no other rule, and leaves what is chosen as it is.

A derived rule may still earn its place: a directed shortcut reaches in one step what others reach
in five, or where they rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from msgspec.structs import replace

from nautile.egraph import Limits, job_of
from nautile.egraph.encode import Region
from nautile.egraph.engine import Job
from nautile.errors import SaturationError
from nautile.options import Options
from nautile.rules.egglog import print_rule
from nautile.rules.law import Apart, Bare, Chain, Free, Pattern, Rule, axes_of, names_of
from nautile.terms import Program
from nautile.worker import Worker

from .question import Question, question
from .runs import choice, saturated

__all__ = ["BUDGET", "Derivation", "Loop", "idle", "inverses", "redundant"]

BUDGET = Limits(rows=1500, seconds=2.0, iterations=6)
_RANK = {"exact": 0, "facts": 1, "real": 1, "fast": 2, "approx": 3}
_USE = (Apart, Bare, Chain, Free)
_FEWER = 40  # rules among which the fewest that suffice are sought


@dataclass(frozen=True, slots=True)
class Derivation:
    """What became of one rule: derived, subsumed, needed, or untried (the rule alone does not prove
    its own instance, or the question itself made constants equal); and the rules that suffice, with
    the conditions of use that they have and this one has not: where such a condition does not hold,
    the rule may be needed after all."""

    rule: str
    pack: str
    verdict: str
    by: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of `nautile rules redundant --json`."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Loop:
    """Rules that go in circles: an inverse pair, or idle in the programs where they fire."""

    kind: str
    rules: tuple[str, ...]
    programs: tuple[str, ...] = ()


def redundant(
    wanted: Iterable[Rule],
    rules: Sequence[Rule],
    *,
    limits: Limits = BUDGET,
    worker: Worker | None = None,
    progress: Callable[[str], None] = lambda rule: None,
) -> tuple[Derivation, ...]:
    """Which of the wanted rules the other `rules` derive within the limits."""
    own = Worker() if worker is None else None
    found = []
    try:
        active = worker or own
        assert active is not None
        prover = _Prover(tuple(rules), limits, active)
        for rule in wanted:
            progress(rule.name)
            found.append(prover.derive(rule))
    finally:
        if own is not None:
            own.close()
    return tuple(found)


class _Prover:
    """Asks questions of one set of rules; the child keeps it loaded."""

    def __init__(self, rules: tuple[Rule, ...], limits: Limits, worker: Worker) -> None:
        self.rules, self.limits, self.worker = rules, limits, worker
        self.number = {rule.name: i for i, rule in enumerate(rules)}

    def derive(self, rule: Rule) -> Derivation:
        jobs = [self.job(question(rule, printed)) for printed in print_rule(rule, 0)]
        try:
            jobs = [job for job in jobs if self.fired(job, {self.number[rule.name]})[0]]
            if not jobs:
                return Derivation(rule.name, rule.pack, "untried")
            rest = self.others(rule)
            needed: set[int] = set()
            for job in jobs:
                equal, used = self.fired(job, rest)
                if not equal:
                    return Derivation(rule.name, rule.pack, "needed")
                needed |= self.fewest(job, used)
        except SaturationError:
            return Derivation(rule.name, rule.pack, "untried")
        by = [self.rules[n] for n in sorted(needed)]
        verdict = "subsumed" if len(by) == 1 else "derived"
        asks = sorted({a for other in by for a in _use(other)} - _use(rule))
        return Derivation(rule.name, rule.pack, verdict, tuple(r.name for r in by), tuple(asks))

    def others(self, rule: Rule) -> set[int]:
        """The other rules that are allowed wherever this one is."""
        return {
            i
            for i, other in enumerate(self.rules)
            if other.name != rule.name and _RANK[other.numerics] <= _RANK[rule.numerics]
        }

    def job(self, asked: Question) -> Job:
        region = Region(asked.lines, (), (), (), (), ())
        job = job_of(region, self.rules, self.limits, alone=True)
        return replace(job, after=[asked.right])

    def fired(self, job: Job, allowed: set[int]) -> tuple[bool, set[int]]:
        """Whether the allowed rules make the sides equal, and those that matched."""
        skip = [i for i in range(len(self.rules)) if i not in allowed]
        real = any(self.rules[i].numerics != "exact" for i in allowed)
        asked = replace(job, skip=skip, real=real)
        frozen = self.worker.frozen(asked, self.rules)
        left, right = frozen.inputs
        return left == right, set(frozen.matches)

    def fewest(self, job: Job, used: set[int]) -> set[int]:
        """One rule that suffices, else a set of which none can be left out."""
        for one in sorted(used):
            if self.fired(job, {one})[0]:
                return {one}
        kept = set(used)
        for one in sorted(used, key=lambda i: -i)[:_FEWER]:
            if self.fired(job, kept - {one})[0]:
                kept.discard(one)
        return kept


def _use(rule: Rule) -> set[str]:
    """The kinds of a rule's conditions that bear on use alone."""
    kinds = {type(c).__name__.lower() for c in rule.conditions if isinstance(c, _USE)}
    return kinds | ({"parted"} if rule.parted else set())


def inverses(rules: Sequence[Rule]) -> tuple[Loop, ...]:
    """Pairs of one-way rewrites that undo each other, up to names, whatever their conditions."""
    forms: dict[tuple[str, str], Rule] = {}
    found = []
    for rule in rules:
        if rule.left is None or rule.right is None or rule.two_way:
            continue
        back = forms.get(_form(rule.right, rule.left))
        if back is not None and back.name != rule.name:
            found.append(Loop("inverse", (back.name, rule.name)))
        forms[_form(rule.left, rule.right)] = rule
    return tuple(found)


def _form(left: Pattern, right: Pattern) -> tuple[str, str]:
    """Both sides with names and axes numbered in the order of the smaller text, so that a rule and
    its reverse number them alike."""
    first, second = sorted((left, right), key=lambda p: (len(repr(p)), _shape(p)))
    names = {n: f"?{i}" for i, n in enumerate({**names_of(first), **names_of(second)})}
    axes = {a: f"!{i}" for i, a in enumerate({**axes_of(first), **axes_of(second)})}
    return _renamed(left, names, axes), _renamed(right, names, axes)


def _shape(pattern: Pattern) -> str:
    names = dict.fromkeys(names_of(pattern), "?")
    return _renamed(pattern, names, dict.fromkeys(axes_of(pattern), "!"))


def _renamed(pattern: Pattern, names: dict[str, str], axes: dict[str, str]) -> str:
    text = repr(pattern)
    for old, new in names.items():
        text = text.replace(f"Name(name={old!r})", new)
    for old, new in axes.items():
        text = text.replace(f"axis={old!r}", f"axis={new}")
    return text


def idle(
    rules: Sequence[Rule],
    programs: Sequence[Program],
    *,
    options: Options | None = None,
    worker: Worker | None = None,
) -> tuple[Loop, ...]:
    """Two-way rules and inverse pairs that fire in the programs and change nothing there: no other
    rule fires for them, and what is chosen takes the same time."""
    options = options or Options()
    own = Worker() if worker is None else None
    try:
        active = worker or own
        assert active is not None
        runs = [_Run(p, tuple(rules), options, active) for p in programs]
        groups: list[tuple[str, ...]] = [(r.name,) for r in rules if r.two_way]
        groups += [loop.rules for loop in inverses(rules)]
        return tuple(loop for group in groups if (loop := _idle(group, runs)) is not None)
    finally:
        if own is not None:
            own.close()


def _idle(group: tuple[str, ...], runs: Sequence[_Run]) -> Loop | None:
    fired = [run for run in runs if run.fired & set(group)]
    if fired and all(run.same_without(group) for run in fired):
        return Loop("idle", group, tuple(run.program.name for run in fired))
    return None


class _Run:
    """A program saturated with all rules, to be compared with fewer."""

    def __init__(
        self, program: Program, rules: tuple[Rule, ...], options: Options, worker: Worker
    ) -> None:
        self.program, self.rules, self.options, self.worker = program, rules, options, worker
        self.fired, self.seconds = self.result(rules)

    def result(self, rules: tuple[Rule, ...]) -> tuple[set[str], float]:
        """The rules that fire, and the predicted seconds of what is chosen."""
        runs = saturated(self.program, rules, self.worker)
        fired = {rules[i].name for run in runs for i, n in run.frozen.matches.items() if n}
        plan = choice(self.program, runs, rules, self.options).plan
        assert plan is not None
        return fired, plan.seconds

    def same_without(self, group: tuple[str, ...]) -> bool:
        fewer = tuple(rule for rule in self.rules if rule.name not in group)
        fired, seconds = self.result(fewer)
        return fired == self.fired - set(group) and seconds <= 1.001 * self.seconds
