"""What rules do to programs: matches, e-nodes, time, growth, and their part in what was chosen.

```
Profile     ::= programs, rules
RuleProfile ::= matches, e-nodes, seconds, growth by iteration, programs where it fired,
                programs whose choice it took part in, programs whose choice is worse without it
```

Rules are applied one by one (`egraph/alone.py`), so that what a rule adds is its own; which of two
rules gets the credit for an e-node that both would make is a matter of order. A rule takes part in
a chosen program when its right-hand side stands in a class that the program computes otherwise than
the source; or, of what only opens the way for others, when the program is slower without it, which
is found out by leaving it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from nautile.egraph import Limits
from nautile.options import Options
from nautile.rules.law import Rule
from nautile.terms import Program
from nautile.worker import Worker

from .runs import LIMITS, Saturated, choice, saturated

__all__ = ["Profile", "ProgramProfile", "RuleProfile", "profile"]

_WORSE = 1.001  # predicted seconds without a rule, by those with it, from which it is needed
_SHARE = 0.5  # of the e-nodes of a run: what the rules named for its growth made together
_DOUBLED, _MANY = 3, 64  # a rule explodes when what it adds doubles that often, to that many


@dataclass(slots=True)
class RuleProfile:
    """What one rule did. `growth[i]` is the number of e-nodes that it added in iteration i + 1, of
    all programs together; `fired`, `chosen` and `needed` name programs."""

    rule: str
    pack: str
    matches: int = 0
    nodes: int = 0
    seconds: float = 0.0
    growth: list[int] = field(default_factory=list)
    fired: list[str] = field(default_factory=list)
    chosen: list[str] = field(default_factory=list)
    needed: list[str] | None = None

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of one rule."""
        return {
            "rule": self.rule, "pack": self.pack, "matches": self.matches, "nodes": self.nodes,
            "seconds": round(self.seconds, 6), "growth": self.growth, "fired": self.fired,
            "chosen": self.chosen, "needed": self.needed,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class ProgramProfile:
    """How one program saturated: the reason to stop, e-nodes after each iteration (of its regions
    together), predicted seconds of what was chosen (0 where nothing was), and the rules that made
    its growth explode."""

    program: str
    stop: str
    growth: tuple[int, ...]
    seconds: float
    chosen_seconds: float
    exploding: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of one program."""
        return {
            "program": self.program, "stop": self.stop, "growth": list(self.growth),
            "seconds": round(self.seconds, 6), "chosen_seconds": self.chosen_seconds,
            "exploding": list(self.exploding),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Profile:
    """All programs and all rules, the latter in their order in the packs."""

    programs: tuple[ProgramProfile, ...]
    rules: tuple[RuleProfile, ...]

    @property
    def never(self) -> tuple[str, ...]:
        """Rules that fired in no program."""
        return tuple(r.rule for r in self.rules if not r.fired)

    @property
    def exploding(self) -> tuple[str, ...]:
        """Rules that made some program's growth explode."""
        return tuple(dict.fromkeys(r for p in self.programs for r in p.exploding))

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of `nautile rules profile --json`."""
        return {
            "programs": [p.as_dict() for p in self.programs],
            "rules": [r.as_dict() for r in self.rules if r.fired],
            "never": list(self.never),
            "exploding": list(self.exploding),
        }


def profile(
    programs: Iterable[Program],
    rules: Sequence[Rule],
    *,
    options: Options | None = None,
    limits: Limits = LIMITS,
    choosing: bool = True,
    leave_out: bool = False,
    worker: Worker | None = None,
    progress: Callable[[str], None] = lambda program: None,
) -> Profile:
    """Saturate the programs with the rules, choose a program from each, and count.

    Choosing takes far longer than saturating: without it what rules do to growth alone is told.
    With `leave_out`, every rule that fired in a program is left out once, to see whether what is
    chosen then is predicted to be slower. Raises SaturationError for unsound rules.
    """
    options = options or Options()
    counts = {rule.name: RuleProfile(rule.name, rule.pack) for rule in rules}
    own = Worker() if worker is None else None
    found = []
    try:
        active = worker or own
        assert active is not None
        bench = _Bench(tuple(rules), options, limits, active, counts, choosing)
        for program in programs:
            progress(program.name)
            found.append(bench.program(program, leave_out))
    finally:
        if own is not None:
            own.close()
    return Profile(tuple(found), tuple(counts.values()))


@dataclass(frozen=True, slots=True)
class _Bench:
    rules: tuple[Rule, ...]
    options: Options
    limits: Limits
    worker: Worker
    counts: dict[str, RuleProfile]
    choosing: bool

    def program(self, program: Program, leave_out: bool) -> ProgramProfile:
        runs = saturated(program, self.rules, self.worker, limits=self.limits, alone=True)
        by_rule = self.tally(program, runs)
        seconds, chosen = self.choose(program, runs, self.rules)
        needed = {
            n for n in by_rule if leave_out and self.choosing and self.needs(program, n, seconds)
        }
        for name in [*chosen, *(n for n in by_rule if n in needed and n not in chosen)]:
            self.counts[name].chosen.append(program.name)
        stops = {run.frozen.stop for run in runs} - {"saturated"}
        return ProgramProfile(
            program.name,
            ", ".join(sorted(stops)) or "saturated",
            _together([run.frozen.growth for run in runs]),
            sum(run.frozen.seconds for run in runs),
            seconds,
            _exploding(by_rule, bool(stops)),
        )

    def tally(self, program: Program, runs: Sequence[Saturated]) -> dict[str, list[int]]:
        """Add a program's counts to the rules'; its e-nodes by rule and iteration."""
        growth: dict[str, list[int]] = {}
        for run in runs:
            for iteration, law, matches, nodes, seconds in run.frozen.tally:
                count = self.counts[self.rules[law].name]
                count.matches += matches
                count.nodes += nodes
                count.seconds += seconds
                _add(count.growth, iteration, nodes)
                if matches:
                    _add(growth.setdefault(count.rule, []), iteration, nodes)
        for name in growth:
            self.counts[name].fired.append(program.name)
        return growth

    def choose(
        self, program: Program, runs: Sequence[Saturated], rules: Sequence[Rule]
    ) -> tuple[float, tuple[str, ...]]:
        """Predicted seconds of what is chosen, and the rules that took part."""
        if not self.choosing:
            return 0.0, ()
        plan = choice(program, runs, rules, self.options).plan
        assert plan is not None
        return plan.seconds, tuple(dict.fromkeys(r for k in plan.kernels for r in k.rules))

    def needs(self, program: Program, name: str, seconds: float) -> bool:
        """Whether the program is slower without the rule."""
        fewer = tuple(rule for rule in self.rules if rule.name != name)
        runs = saturated(program, fewer, self.worker, limits=self.limits)
        count = self.counts[name]
        count.needed = count.needed or []
        needed = self.choose(program, runs, fewer)[0] > _WORSE * seconds
        if needed:
            count.needed.append(program.name)
        return needed


def _add(growth: list[int], iteration: int, nodes: int) -> None:
    growth.extend([0] * (iteration - len(growth)))
    growth[iteration - 1] += nodes


def _together(growths: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """E-nodes after each iteration; a region that has ended keeps what it has."""
    longest = max(map(len, growths), default=0)
    return tuple(sum(g[min(i, len(g) - 1)] for g in growths if g) for i in range(longest))


def _exploding(growth: dict[str, list[int]], spent: bool) -> tuple[str, ...]:
    """The rules behind a growth that does not end: of a run that a budget ended, the fewest that
    made half of its e-nodes; of any run, those whose own additions kept doubling."""
    order = sorted(growth, key=lambda name: -sum(growth[name]))
    found = [name for name in order if _doubles(growth[name])]
    if spent:
        total, sum_ = sum(sum(g) for g in growth.values()), 0
        for name in order:
            if sum_ >= _SHARE * total:
                break
            sum_ += sum(growth[name])
            found.append(name)
    return tuple(dict.fromkeys(found))


def _doubles(growth: Sequence[int]) -> bool:
    """Whether what is added doubles several times in a row, to a number that matters."""
    run = 0
    for before, after in pairwise(growth):
        run = run + 1 if before > 0 and after >= 2 * before else 0
        if run >= _DOUBLED and after >= _MANY:
            return True
    return False
