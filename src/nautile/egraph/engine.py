"""Saturation itself: the only module that runs egglog.

A job is plain data (texts made by us, numbers), and so is its result, so that both cross a process
boundary. The schedule is ours: an iteration runs facts and analyses to their fixpoint, then all
directed rules at once, then all two-way rules, under back-off: a rule with more matches than its
limit rests for an iteration, and its limit doubles. Two-way rules feed themselves: their matches
are counted before they are applied, those of the others afterwards. Rows and time are looked at
after every step.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from .job import Frozen, Job, Progress, Round, RuleText
from .reader import Reader
from .schema import CONSTRUCTORS, schema

__all__ = [
    "Frozen",
    "Job",
    "Progress",
    "Round",
    "RuleText",
    "Run",
    "Unsound",
    "prepare",
    "run",
    "tidy",
]

_BATCH = 16
# What is dropped leaves no traits behind. Laws that drop each other's results would never end.
_SETTLE = "(repeat 16 normal) (saturate analysis)"
_FACT_ROUNDS = 8
_MATCHES, _REST = 200, 1  # of back-off: matches of a two-way rule at once, iterations of rest
_LARGE = 1000  # rows from which directed rules are applied one by one
_DIRECTED = 5  # a directed rule may match that many times as often


class Unsound(Exception):
    """Two different constants met in a class; `laws` are the rules that put something there."""

    def __init__(self, laws: list[int], constants: list[str]) -> None:
        super().__init__(f"constants {' and '.join(constants)} became equal")
        self.laws, self.constants = laws, constants


class _Spent(Exception):
    """A budget ran out; the reason is the argument."""


class _Engine:
    """A thin wrapper of egglog's bindings: text in, sizes and plain rows out."""

    def __init__(self) -> None:
        from egglog import bindings

        self.egraph = bindings.EGraph()

    def __call__(self, text: str) -> list[Any]:
        return list(self.egraph.run_program(*self.egraph.parse_program(text)))

    def step(self, schedule: str) -> tuple[bool, dict[str, int]]:
        """Run a schedule; whether anything changed, and the matches of each rule."""
        report = self(f"(run-schedule {schedule})")[0].report
        return report.updated, dict(report.num_matches_per_rule)

    def size(self, table: str) -> int:
        """The number of rows of a table."""
        return int(self(f"(print-size {table})")[0].size)

    def rows(self) -> int:
        """The number of e-nodes."""
        return sum(n for name, n in self("(print-size)")[0].sizes if name in CONSTRUCTORS)


_READY: dict[tuple[RuleText, ...], _Engine] = {}  # with a mark to return to
_USED: list[tuple[tuple[RuleText, ...], _Engine]] = []


def prepare(job: Job) -> None:
    """Keep an engine with the schema and the job's rules ready, as parsing them takes longer than
    saturating a small region."""
    tidy()
    key = tuple(job.rules)
    if key not in _READY:
        _READY.clear()
        _READY[key] = _loaded(job)


def tidy() -> None:
    """Bring the engine of the last job back to where it stood, for the next."""
    while _USED:
        key, engine = _USED.pop()
        engine("(pop) (push)")
        _READY[key] = engine


def _loaded(job: Job) -> _Engine:
    engine = _Engine()
    own = (rule.name for rule in job.rules if f":ruleset {rule.name} " in rule.text)
    engine(schema() + "".join(f"(ruleset {name})" for name in own))
    for rule in job.rules:
        engine(rule.text + rule.probe)
    engine("(Num 0.0) (Num -1.0) (push)")
    return engine


def _taken(job: Job) -> _Engine:
    """The ready engine; it is given back only when all went well."""
    prepare(job)
    return _READY.pop(tuple(job.rules))


class _BackOff:
    """Who rests: a rule with more matches than its limit, in this iteration and the next; then its
    limit doubles."""

    def __init__(self, limit: int, own: dict[str, int]) -> None:
        self.limit, self.own = limit, own
        self.waiting: dict[str, int] = {}
        self.times: dict[str, int] = {}
        self.until: dict[str, int] = {}
        self.skipped = False
        self.sent: list[str] = []  # to rest, in this iteration

    def awake(self, name: str, iteration: int) -> bool:
        """Whether a rule may run; that one could not is remembered."""
        rests = iteration < self.until.get(name, 0)
        self.skipped |= rests
        return not rests

    def matched(self, name: str, iteration: int, count: int, factor: int = _DIRECTED) -> bool:
        """Whether that many matches are too many: if so the rule rests."""
        times = self.times.get(name, 0)
        if count <= self.own.get(name, factor * self.limit) << times:
            return False
        self.times[name], self.until[name] = times + 1, iteration + 1 + _REST
        self.sent.append(name)
        return True

    def take(self, name: str, iteration: int) -> bool:
        """Whether all waiting matches of a two-way rule may be applied now; else none is."""
        count = self.waiting.get(name, 0)
        if not count or not self.awake(name, iteration):
            return False
        if self.matched(name, iteration, count, factor=1):
            self.skipped = True
            return False
        del self.waiting[name]
        return True


class Run:
    """One saturation: the engine, the budgets, and what has been counted."""

    def __init__(self, job: Job, notify: Callable[[Progress], None]) -> None:
        self.job, self.notify = job, notify
        self.start, self.worked = time.perf_counter(), time.process_time()
        self.engine = _taken(job)
        self.matches: dict[int, int] = {}
        self.growth: list[int] = []
        self.rows = 0
        self.laws = {rule.name: rule.law for rule in job.rules}
        self.facts = {rule.name for rule in job.rules if rule.fact}
        rewrites = [rule for rule in job.rules if not (rule.fact or rule.normal)]
        self.directed = [rule.name for rule in rewrites if not rule.two_way]
        self.two_way = [rule.name for rule in rewrites if rule.two_way]
        self.rulesets: dict[tuple[str, ...], str] = {}
        own = {rule.name: rule.limit for rule in job.rules if rule.limit}
        self.backoff = _BackOff(max(_MATCHES, 2 * job.terms), own)
        self.backoff.until["facts"] = 2  # factors leave their sums first
        self.frozen_at, self.frozen_for = self.start, 0.0
        self.fold = "fold fold_real" if job.real else "fold"
        self.tally: list[tuple[int, int, int, int, float]] = []
        self.course: list[Round] = []
        self.counted: dict[int, int] = {}  # matches when the iteration began

    def load(self) -> None:
        for i in range(0, len(self.job.lines), _BATCH):
            self.engine("\n".join(self.job.lines[i : i + _BATCH]))

    def saturate(self) -> str:
        """Iterate until a budget is spent or nothing changes; the reason to stop."""
        try:
            self.analyse()
            for iteration in range(1, self.job.iterations + 1):
                changed = self.iterate(iteration)
                self.growth.append(self.rows)
                self.record()
                if not changed and not self.backoff.skipped:
                    return "saturated"
                self.report(iteration)
        except _Spent as spent:
            self.analyse()
            self.record()
            return str(spent)
        return "iterations"

    def record(self) -> None:
        """Add the iteration to the course."""
        before, self.counted = self.counted, dict(self.matches)
        matches = {law: n - before.get(law, 0) for law, n in sorted(self.matches.items())}
        sent, self.backoff.sent = self.backoff.sent, []
        rests = sorted({self.laws[name] for name in sent if name in self.laws})
        rests = [-1, *rests] if "facts" in sent else rests
        new = {law: n for law, n in matches.items() if n}
        self.course.append(Round(self.rows, time.perf_counter() - self.start, new, rests))

    def iterate(self, iteration: int) -> bool:
        """One round of everything; whether anything changed."""
        self.backoff.skipped = False
        changed = self.infer(iteration)
        changed |= self.direct(iteration)
        for name, count in self.step(f"(seq {_SETTLE} probe)")[1].items():
            if name in self.laws:
                self.backoff.waiting[name] = self.backoff.waiting.get(name, 0) + count
        two_way = [n for n in self.two_way if self.backoff.take(n, iteration)]
        return changed | self.apply(two_way)[0]

    def infer(self, iteration: int) -> bool:
        """Facts, normal laws, number folding and analyses in turn until nothing changes, a few
        rounds at most: a cyclic class would have infinitely many running forms. All facts rest
        together."""
        changed = False
        for _ in range(_FACT_ROUNDS):
            updated, matches = self.conclude(self.backoff.awake("facts", iteration))
            self.count(matches)
            found = sum(n for name, n in matches.items() if name in self.facts)
            self.backoff.matched("facts", iteration, found)
            changed |= updated
            if not updated:
                break
            self.guard()
        return changed

    def conclude(self, facts: bool) -> tuple[bool, dict[str, int]]:
        """One round of folding, normal laws, analyses and facts."""
        return self.step(f"(seq {self.fold} {_SETTLE} {'facts' if facts else ''})")

    def direct(self, iteration: int) -> bool:
        """Apply the directed rules that are awake: one by one in a large e-graph, where a single
        rule may add so much that the budgets must be looked at."""
        awake = [n for n in self.directed if self.backoff.awake(n, iteration)]
        large = self.rows > _LARGE
        changed = False
        for names in ([n] for n in awake) if large else [awake]:
            updated, matches = self.apply(names)
            changed |= updated
            for name, count in matches.items():
                self.backoff.matched(name, iteration, count)
        return changed

    def apply(self, names: list[str]) -> tuple[bool, dict[str, int]]:
        """Apply rewrites at once; whether anything changed, and the matches of each."""
        if not names:
            return False, {}
        updated, matches = self.step(self.together(tuple(names)))
        self.count(matches)
        if updated:
            self.guard()
        return updated, matches

    def together(self, names: tuple[str, ...]) -> str:
        """The ruleset that holds these rules."""
        if len(names) == 1:
            return names[0]
        if names not in self.rulesets:
            self.rulesets[names] = f"together{len(self.rulesets)}"
            rulesets = " ".join([self.rulesets[names], *names])
            self.engine(f"(unstable-combined-ruleset {rulesets})")
        return self.rulesets[names]

    def step(self, schedule: str) -> tuple[bool, dict[str, int]]:
        """Run a schedule.

        Raises Unsound when two different constants became equal.
        """
        result = self.engine.step(schedule)
        if self.engine.size("clash"):
            raise self.unsound()
        return result

    def settle(self) -> None:
        self.step(f"(seq {self.fold} {_SETTLE})")

    def analyse(self) -> None:
        self.step("(saturate analysis)")

    def count(self, matches: dict[str, int]) -> None:
        for name, n in matches.items():
            if name in self.laws:
                law = self.laws[name]
                self.matches[law] = self.matches.get(law, 0) + n

    def guard(self) -> None:
        if time.perf_counter() - self.start > self.job.seconds:
            raise _Spent("time")
        self.rows = self.engine.rows()
        if self.rows > self.job.rows:
            raise _Spent("rows")

    def report(self, iteration: int) -> None:
        """Tell that an iteration ended, with a checkpoint when enough was done since the last."""
        now = time.perf_counter()
        due = now - self.frozen_at > max(0.1, 5 * self.frozen_for)
        checkpoint = self.freeze("iterations") if due else None
        if due:
            self.frozen_at = time.perf_counter()
            self.frozen_for = self.frozen_at - now
        self.notify(Progress(iteration, checkpoint))

    def freeze(self, stop: str) -> Frozen:
        reader = Reader(self.engine.egraph)
        inputs, free, types = reader.inputs(), reader.table("fv"), reader.types()
        rows = reader.rows(free)
        matches = dict(sorted(self.matches.items()))
        made, growth = sorted(reader.made()), list(self.growth)
        seconds = time.perf_counter() - self.start
        processor = time.process_time() - self.worked
        tables = reader.tables() if self.job.tables else {}
        return Frozen(
            stop, inputs, rows, free, types, made, matches, growth, seconds, processor,
            list(self.tally), tables, list(self.course),
        )  # fmt: skip

    def unsound(self) -> Unsound:
        frozen = self.freeze("unsound")
        constants: dict[int, list[str]] = {}
        for name, arguments, where in frozen.rows:
            if name in ("Num", "Int", "Truth", "Odd"):
                constants.setdefault(where, []).append(f"{name} {arguments[0]}")
        where = next(c for c, found in constants.items() if len(found) > 1)
        laws = sorted({law for c, law in frozen.made if c == where} or set(self.matches))
        return Unsound(laws, sorted(constants[where]))


def run(job: Job, notify: Callable[[Progress], None] = lambda progress: None) -> Frozen:
    """Saturate and freeze; `notify` hears of every finished iteration.

    Raises Unsound when two different constants become equal.
    """
    from .alone import Alone

    state = (Alone if job.alone else Run)(job, notify)
    state.load()
    stop = state.saturate()
    if job.after:
        state.engine("\n".join(job.after))
        state.settle()
    frozen = state.freeze(stop)
    _USED.append((tuple(job.rules), state.engine))
    return frozen
