"""Is a law sound, and in which sense? Proofs, random instances against the oracle, and a search.

For each class that a law is tried under (`nautile.rules.trials` says what a class promises):

1. a **proof** of equality over the reals, where one is found (`nautile.rules.proof`);
2. instances in **floating point**: all extents 1 to 4 of up to three axes, larger ones sampled,
   each name over random subsets of the axes, values that the class is about;
3. exact arithmetic, where there is no proof: a **prime field** where only + - * / and sums occur,
   **rationals** where the order of numbers matters (`nautile.rules.exactly`);
4. a **search** by Hypothesis.

A law that rewrites both ways is tried both ways. A refutation is made as small as it gets, and the
side condition that repairs the law is named. The verdict "sound" says that nothing refuted the law
in its stated class; "unknown", that no instance could be made or that time ran out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from .exactly import exact_methods
from .instance import axis_names, instantiate
from .law import Rule
from .proof import proof_of
from .repair import missing
from .search import search
from .setting import Chance, Unsupported
from .shown import counterexample
from .shrink import Refutation, shrink
from .trials import CLASSES, Method, methods
from .values import draw, violated

__all__ = ["Verdict", "check"]

_PROVED = 0.2  # of the instances that are asked for
_LEAST = 12  # instances of each method without which a law that ran out of time has no verdict
_EXAMPLES = 12
_REPAIR = 20.0  # seconds
_SHRINKING = 0.5


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is known about a law: sound, unsound or unknown in its stated class, and the strongest
    class that nothing refuted ("none" where all are); by which methods, after how many instances
    and how many seconds of processor time.
    `proved` says that its equation over the reals (the bits, of exact) has a proof for all extents
    and ranks. An unsound law comes with the values that refute it (`nautile.rules.shown`) and,
    where one condition repairs it, with that."""

    rule: str
    pack: str
    stated: str
    verdict: str
    method: str
    tried: int
    seconds: float
    counterexample: dict[str, Any] | None = None
    established: str = "none"
    missing_condition: str | None = None
    proved: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of a verdict (`nautile rules check --json`)."""
        return asdict(self)


@dataclass(slots=True)
class _Trying:
    """One law being tried: budgets, and what was counted."""

    rule: Rule
    trials: int
    seed: int
    until: float
    tried: int = 0
    late: bool = False
    proofs: dict[str, str | None] = field(default_factory=dict)

    def proof(self, numerics: str) -> str | None:
        """The kind of a proof of the equation that a class asserts, if there is one."""
        kind = "bits" if numerics == "exact" else "reals"
        if numerics == "approx":
            return None
        if kind not in self.proofs:
            both = [proof_of(d, kind, self.until) for d in _directions(self.rule)]
            self.proofs[kind] = both[0] if all(both) else None
        return self.proofs[kind]

    def refutation(self, numerics: str) -> tuple[Rule, Method, Refutation] | None:
        """What refutes the law under a class."""
        proved = self.proof(numerics) is not None
        for rule in _directions(self.rule):
            for method in self.methods(rule, numerics):
                found = self.by(rule, method, proved=proved and method.equation)
                if found is not None:
                    return rule, method, found
        return None

    def small(self, rule: Rule, method: Method, found: Refutation) -> Refutation:
        """A smaller refutation: a little time is there for it always."""
        return shrink(rule, method, found, max(self.until, time.process_time() + _SHRINKING))

    def methods(self, rule: Rule, numerics: str) -> Iterator[Method]:
        first, *others = methods(rule, numerics)
        yield first
        yield from exact_methods(rule, numerics)
        yield from others

    def by(self, rule: Rule, method: Method, *, proved: bool) -> Refutation | None:
        """A refutation by one method. What is proved is tried a little, as proofs have bugs too."""
        share = _PROVED if proved else method.share
        for turn in range(max(1, int(self.trials * share))):
            if time.process_time() > self.until:
                self.late |= turn < _LEAST
                return None
            rng = np.random.default_rng([self.seed, turn])
            instance = instantiate(rule, Chance(rng), turn, forward=method.forward)
            self.tried += 1
            found = method.attempt(instance, rng)
            if found is not None and not violated(instance, found[0]):
                return instance, *found
        if proved or not method.searched:
            return None
        self.tried += _EXAMPLES
        axes = axis_names(rule)
        return search(rule, method, axes, examples=_EXAMPLES, seed=self.seed, until=self.until)


def check(
    rule: Rule,
    *,
    trials: int = 64,
    seed: int = 0,
    seconds: float = 30.0,
    strongest: bool = True,
    repair: bool = True,
) -> Verdict:
    """Try a law until something refutes it or everything has passed.

    `trials` is the number of instances for each method, `seconds` the processor time after which
    the law has no verdict. Without `strongest` no other class than the stated one is tried,
    without `repair` no condition is looked for.
    """
    start = time.process_time()
    trying = _Trying(rule, trials, seed, start + seconds)
    try:
        return _verdict(trying, start, strongest=strongest, repair=repair)
    except Unsupported as reason:
        taken = time.process_time() - start
        return Verdict(
            rule.name, rule.pack, rule.numerics, "unknown", str(reason), trying.tried, taken
        )


def _verdict(trying: _Trying, start: float, *, strongest: bool, repair: bool) -> Verdict:
    rule = trying.rule
    _possible(rule, trying.seed)
    refuted = trying.refutation(rule.numerics)
    sound = refuted is None and not trying.late
    verdict = "sound" if sound else "unknown" if refuted is None else "unsound"
    method, shown, lacking = _how(trying, rule.numerics), None, None
    if refuted is not None:
        direction, by, found = refuted
        method = by.name
        shown = counterexample(direction, by, trying.small(direction, by, found))
    elif trying.late:
        method = f"out of time: {method}"
    established = rule.numerics if sound else "none"
    if strongest and rule.numerics in CLASSES and verdict != "unknown":
        established = _established(trying, sound=sound)
    if repair and refuted is not None:
        lacking = _missing(trying, rule)
    return Verdict(
        rule.name, rule.pack, rule.numerics, verdict, method, trying.tried,
        time.process_time() - start, shown, established, lacking,
        sound and trying.proof(rule.numerics) is not None,
    )  # fmt: skip


def _how(trying: _Trying, numerics: str) -> str:
    """The methods that a sound law passed."""
    proof = trying.proof(numerics)
    tried = list(trying.methods(trying.rule, numerics))
    names = [m.name for m in tried if not (proof and m.equation)]
    return ", ".join([*([f"proof: {proof}"] if proof else []), *names])


def _possible(rule: Rule, seed: int) -> None:
    """Raise Unsupported for a law whose conditions no values meet."""
    (method, *_) = methods(rule, rule.numerics)
    for turn in range(40):
        rng = np.random.default_rng([seed, turn])
        instance = instantiate(rule, Chance(rng), turn)
        if not violated(instance, draw(instance, rng, method.kind)):
            return
    raise Unsupported("no values meet the law's conditions: it never applies")


def _established(trying: _Trying, *, sound: bool) -> str:
    """The strongest class that nothing refutes, given whether the stated one holds."""
    stated = CLASSES.index(trying.rule.numerics)
    if sound:
        for numerics in reversed(CLASSES[:stated]):
            if trying.refutation(numerics) is not None:
                return CLASSES[CLASSES.index(numerics) + 1]
        return CLASSES[0]
    for numerics in CLASSES[stated + 1 :]:
        if trying.refutation(numerics) is None and not trying.late:
            return numerics
    return "none"


def _missing(trying: _Trying, rule: Rule) -> str | None:
    until = min(trying.until, time.process_time() + _REPAIR)

    def sound(changed: Rule) -> bool:
        if time.process_time() > until:
            return False
        again = _Trying(changed, min(trying.trials, 40), trying.seed + 1, until)
        try:
            _possible(changed, trying.seed)
            return again.refutation(rule.numerics) is None and not again.late
        except Unsupported:
            return False

    return missing(rule, sound)


def _directions(rule: Rule) -> Iterator[Rule]:
    yield rule
    if rule.two_way:
        yield replace(rule, left=rule.right, right=rule.left)
