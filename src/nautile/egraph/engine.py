"""Saturation itself: the only module that runs egglog.

A job is plain data (texts made by us, numbers), and so is its result, so that both cross a process
boundary. The schedule is ours: an iteration runs facts and analyses to their fixpoint, the directed
rules once, then the two-way rules once, all under back-off (matches are counted before they are
applied; a rule with more than its limit rests for an iteration, and its limit doubles). Rows and
time are looked at after every rule.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec

from .schema import CONSTRUCTORS, LEAVES, schema

__all__ = ["Frozen", "Job", "Progress", "RuleText", "Unsound", "prepare", "run"]

_BATCH = 16
_FACT_ROUNDS = 8
_MATCHES, _REST = 200, 1  # of back-off: matches of a two-way rule at once, iterations of rest
_DIRECTED = 5  # a directed rule may match that many times as often


class RuleText(msgspec.Struct, frozen=True, array_like=True):
    """An egglog rule: the number of its law, its name (and ruleset), its text, the probe that only
    counts its matches; whether it is a fact, rewrites both ways, or drops what it rewrites."""

    law: int
    name: str
    text: str
    probe: str
    fact: bool
    two_way: bool
    normal: bool = False


class Job(msgspec.Struct, frozen=True):
    """What to saturate: lines that insert terms, rules, budgets. `real` folds numbers."""

    lines: list[str]
    terms: int
    rules: list[RuleText]
    real: bool
    rows: int
    seconds: float
    iterations: int
    memory_bytes: int


class Frozen(msgspec.Struct, frozen=True):
    """The e-graph as plain data. Classes are numbered in order of appearance: `inputs` are those of
    the inserted terms; a row is a constructor's name, its arguments and its class."""

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


class Progress(msgspec.Struct, frozen=True):
    """An iteration ended; `checkpoint` is what the e-graph holds, where it was worth freezing."""

    iterations: int
    checkpoint: Frozen | None


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

    def rows(self) -> int:
        """The number of e-nodes."""
        return sum(n for name, n in self("(print-size)")[0].sizes if name in CONSTRUCTORS)


_READY: dict[tuple[RuleText, ...], _Engine] = {}


def prepare(job: Job) -> None:
    """Keep an engine with the schema and the job's rules ready, as parsing them takes longer than
    saturating a small region."""
    key = tuple(job.rules)
    if key not in _READY:
        _READY.clear()
        _READY[key] = _loaded(job)


def _loaded(job: Job) -> _Engine:
    engine = _Engine()
    own = (rule.name for rule in job.rules if not (rule.fact or rule.normal))
    engine(schema() + "".join(f"(ruleset {name})" for name in own))
    for rule in job.rules:
        engine(rule.text + rule.probe)
    engine("(Num 0.0) (Num -1.0)")
    return engine


def _taken(job: Job) -> _Engine:
    """The ready engine, with a mark to return to; it is given back only when all went well."""
    prepare(job)
    engine = _READY.pop(tuple(job.rules))
    engine("(push)")
    return engine


class _BackOff:
    """Matches that wait to be applied, and who rests: a ruleset with more than its limit waiting is
    not applied in this iteration and the next, and its limit doubles."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.waiting: dict[str, int] = {}
        self.times: dict[str, int] = {}
        self.awake: dict[str, int] = {}

    def add(self, counts: dict[str, int]) -> None:
        for name, count in counts.items():
            self.waiting[name] = self.waiting.get(name, 0) + count

    def take(self, name: str, iteration: int, factor: int = 1) -> int:
        """How many matches may be applied now: all that wait, or none."""
        count, times = self.waiting.get(name, 0), self.times.get(name, 0)
        if not count or iteration < self.awake.get(name, 0):
            return 0
        if count > factor * self.limit << times:
            self.times[name], self.awake[name] = times + 1, iteration + 1 + _REST
            return 0
        self.waiting[name] = 0
        return count

    def resting(self) -> bool:
        """True when matches still wait to be applied."""
        return any(self.waiting.values())


class _Run:
    """One saturation: the engine, the budgets, and what has been counted."""

    def __init__(self, job: Job, notify: Callable[[Progress], None]) -> None:
        self.job, self.notify = job, notify
        self.start, self.worked = time.perf_counter(), time.process_time()
        self.engine = _taken(job)
        self.matches: dict[int, int] = {}
        self.growth: list[int] = []
        self.laws = {rule.name: rule.law for rule in job.rules}
        self.backoff = _BackOff(max(_MATCHES, 2 * job.terms))
        self.frozen_at, self.frozen_for = self.start, 0.0

    def load(self) -> None:
        for i in range(0, len(self.job.lines), _BATCH):
            self.engine("\n".join(self.job.lines[i : i + _BATCH]))

    def saturate(self) -> str:
        """Iterate until a budget is spent or nothing changes; the reason to stop."""
        try:
            self.analyse()
            for iteration in range(1, self.job.iterations + 1):
                changed = self.iterate(iteration)
                self.growth.append(self.engine.rows())
                if not changed and not self.backoff.resting():
                    return "saturated"
                self.report(iteration)
        except _Spent as spent:
            self.analyse()
            return str(spent)
        return "iterations"

    def iterate(self, iteration: int) -> bool:
        """One round of everything; whether anything changed."""
        changed = self.infer(iteration)
        for two_way in (False, True):
            self.backoff.add(self.engine.step("probe")[1])
            for rule in self.job.rules:
                if not (rule.fact or rule.normal) and rule.two_way == two_way:
                    changed |= self.apply(rule, iteration)
            changed |= self.analyse()
        return changed

    def apply(self, rule: RuleText, iteration: int) -> bool:
        """Apply the matches that wait for a rewrite, unless it rests."""
        if not self.backoff.take(rule.name, iteration, 1 if rule.two_way else _DIRECTED):
            return False
        updated, matches = self.engine.step(rule.name)
        self.count(matches)
        if updated:
            self.guard()
        return updated

    def infer(self, iteration: int) -> bool:
        """Facts, normal laws, number folding and analyses in turn until nothing changes, a few
        rounds at most: a cyclic class would have infinitely many running forms. All facts rest
        together."""
        changed = False
        fold = "fold fold_real" if self.job.real else "fold"
        for _ in range(_FACT_ROUNDS):
            counts = self.engine.step("probe_facts")[1]
            self.backoff.add({"facts": sum(counts.values())})
            facts = "facts" if self.backoff.take("facts", iteration) else ""
            updated, matches = self.engine.step(f"(seq {fold} normal {facts})")
            self.count(matches)
            updated |= self.analyse()
            changed |= updated
            if not updated:
                break
            self.guard()
        return changed

    def analyse(self) -> bool:
        updated, _ = self.engine.step("(saturate analysis)")
        if any(name == "clash" and n for name, n in self.engine("(print-size)")[0].sizes):
            raise self.unsound()
        return updated

    def count(self, matches: dict[str, int]) -> None:
        for name, n in matches.items():
            if name in self.laws:
                law = self.laws[name]
                self.matches[law] = self.matches.get(law, 0) + n

    def guard(self) -> None:
        if time.perf_counter() - self.start > self.job.seconds:
            raise _Spent("time")
        if self.engine.rows() > self.job.rows:
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
        reader = _Reader(self.engine.egraph)
        inputs, free, types = reader.inputs(), reader.table("fv"), reader.table("ty")
        rows = reader.rows()
        matches = dict(sorted(self.matches.items()))
        made, growth = sorted(reader.made()), list(self.growth)
        seconds = time.perf_counter() - self.start
        processor = time.process_time() - self.worked
        return Frozen(
            stop, inputs, rows, free, types, made, matches, growth, seconds, processor
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


class _Reader:
    """A frozen egglog e-graph as numbers."""

    def __init__(self, egraph: Any) -> None:
        self.egraph, self.functions = egraph, egraph.freeze().functions
        self.ids: dict[Any, int] = {}

    def id(self, value: Any) -> int:
        return self.ids.setdefault(value, len(self.ids))

    def inputs(self) -> list[int]:
        """The classes of `(N 0)`, `(N 1)`, .., which get the first numbers."""
        number = self.egraph.value_to_i64
        rows = sorted((number(r.inputs[0]), i) for i, r in enumerate(self.functions["N"].rows))
        return [self.id(self.functions["N"].rows[i].output) for _, i in rows]

    def rows(self) -> list[tuple[str, list[Any], int]]:
        decode = {"f64": self.egraph.value_to_f64, "i64": self.egraph.value_to_i64, "T": self.id}
        found = []
        for name in CONSTRUCTORS:
            sorts = (LEAVES[name],) if name in LEAVES else CONSTRUCTORS[name]
            readers = [decode[sort] for sort in sorts]
            for row in self.functions[name].rows:
                arguments = [f(v) for f, v in zip(readers, row.inputs, strict=True)]
                found.append((name, arguments, self.id(row.output)))
        return found

    def table(self, name: str) -> dict[int, int]:
        number = self.egraph.value_to_i64
        return {self.id(r.inputs[0]): number(r.output) for r in self.functions[name].rows}

    def made(self) -> list[tuple[int, int]]:
        number = self.egraph.value_to_i64
        rows = self.functions["made"].rows
        return [(self.id(r.inputs[0]), number(r.inputs[1])) for r in rows]


def run(job: Job, notify: Callable[[Progress], None] = lambda progress: None) -> Frozen:
    """Saturate and freeze; `notify` hears of every finished iteration.

    Raises Unsound when two different constants become equal.
    """
    state = _Run(job, notify)
    state.load()
    frozen = state.freeze(state.saturate())
    state.engine("(pop)")
    _READY[tuple(job.rules)] = state.engine
    return frozen
