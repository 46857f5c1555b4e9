"""Does a law say something false? Brute force, by an evaluator that the checker knows nothing of.

Patterns are evaluated as they are read, scalar by scalar, position by position, over tensors of
extents 1 to 3: no terms, no arrays, none of the checker's instances. The classes are those of
`rules/README.md`:

    exact   float32, special values included: the same bits (all NaN are one, of extremes all zeros)
    real    float64: equal where the left side is finite; float32: finite where the left side is,
            for values up to 10^4; no more digits lost than a factor of what the left side loses
    fast    float64: equal where both are finite
    facts   float64: the equation that the fact asserts

`differs` returns what shows a difference, None where nothing did.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from rule_values import Env, Undecided, Value, World, styled

from nautile.rules.carriers import carriers_of, lowered, moment_of, stream_axes
from nautile.rules.egglog import booleans
from nautile.rules.instance import patterns_of
from nautile.rules.law import (
    Call,
    Differs,
    Fold,
    Free,
    Kind,
    Name,
    NotFree,
    Pattern,
    Relation,
    Rule,
    Sign,
    Size,
    axes_of,
    names_of,
    parts,
    relation_parts,
)

__all__ = ["Undecided", "differs"]

_LOSS, _SLACK, _ENOUGH = 64.0, 256.0, 24


class _Draw:
    """One random instance of a law."""

    def __init__(self, rule: Rule, seed: int) -> None:
        self.rule, self.rng = rule, np.random.default_rng([7, seed])
        self.patterns = patterns_of(rule)
        names = dict.fromkeys(a for p in self.patterns for a in axes_of(p))
        self.axes = [*names, "outer", "along"]
        extents = {a: int(self.rng.integers(1, 4)) for a in self.axes}
        self.world = World(extents, carriers=dict(carriers_of(rule)))
        self.kinds = _kinds(rule, self.patterns)
        rough = (c.name for c in rule.conditions if isinstance(c, Kind) and c.kind == "rough")
        self.world.rough = frozenset(rough)
        self.barred = {(c.axis, c.name) for c in rule.conditions if isinstance(c, NotFree)}
        self.needed = {(c.axis, c.name) for c in rule.conditions if isinstance(c, Free)}
        self.left: Callable[[Env], Value] = lambda env: 0.0
        self.signs: dict[str, list[str]] = {}
        for c in rule.conditions:
            if isinstance(c, Sign):
                self.signs.setdefault(c.name, []).append(c.relation)

    def sides(self, style: str) -> tuple[Callable[[Env], Value], Callable[[Env], Value]]:
        """Both sides as functions of a position, the tensors filled in a style."""
        self.style = style
        for premise in self.rule.premises:
            self._premise(premise)
        for name in dict.fromkeys(n for p in self.patterns for n in names_of(p)):
            self._tensor(name)
        carriers = self.world.carriers
        if self.rule.conclusion is not None:
            fact = self.rule.conclusion
            subject = lowered(fact.subject, carriers)
            moved = self._moved(fact, lambda env: self.world.of(subject, env), back=False)
            running = lowered(fact.running, carriers)
            return moved, lambda env: self.world.of(running, env)
        assert self.rule.left is not None
        assert self.rule.right is not None
        left, right = lowered(self.rule.left, carriers), lowered(self.rule.right, carriers)
        return (lambda env: self.world.of(left, env)), (lambda env: self.world.of(right, env))

    def positions(self) -> Iterator[dict[str, int]]:
        """All positions of all axes, those that neither side has free included."""
        ranges = [range(self.world.extents[a]) for a in self.axes]
        for at in itertools.product(*ranges):
            yield dict(zip(self.axes, at, strict=True))

    def offsets(self) -> tuple[int, ...]:
        """The signs of the tensors' first elements, by name."""
        tensors = sorted(self.world.tensors.items())
        return tuple(int(np.sign(np.ravel(tensor)[0])) for _, (_, tensor) in tensors)

    def holds(self) -> bool:
        """Whether the conditions on names that are defined by others hold everywhere."""
        tests = {">": np.greater, ">=": np.greater_equal, "<": np.less, "<=": np.less_equal,
                 "!=": np.not_equal}  # fmt: skip
        made = [n for n in self.signs if n in self.world.defined or n in self.world.carriers]
        return all(
            tests[s](self.world.of(Name(n), env), 0)
            for n in made
            for s in self.signs[n]
            for env in self.positions()
        )

    def _premise(self, premise: Relation) -> None:
        """Bind subject or running form to what the premise says of the other: a running form that
        must be of ordinary size is a tensor."""
        subject, running = premise.subject, premise.running
        if not isinstance(subject, Name) or not isinstance(running, Name):
            raise Undecided("a premise of more than names")
        for place in relation_parts(premise)[1:3]:
            self._carrier_or_tensor(place, premise.relation == "power")
        if premise.centre is not None:
            for name in names_of(premise.centre):
                self._tensor(name)
        if premise.relation == "drop":
            self._dropped(premise, subject.name, running.name)
            return
        tame = Kind("tame", running.name) in self.rule.conditions
        known, other = (running, subject) if tame else (subject, running)
        self._tensor(known.name)
        source = known.name

        def base(env: Env) -> Value:
            return self.world.name(source, env)

        if other.name in self.world.defined or other.name in self.world.tensors:
            raise Undecided("a name of two premises")
        self.world.defined[other.name] = self._moved(premise, base, back=tame)

    def _dropped(self, premise: Relation, subject: str, rest: str) -> None:
        """A subject k (x - m) with the rest k x, as facts make them: x and m may be near (a rough m
        is 0.7 of what others are)."""
        name, world = f"{rest} part", self.world
        rough = set(names_of(premise.carrier)) & self.world.rough
        self.barred |= {(a, name) for a in self.axes if (a, rest) in self.barred}
        self._tensor(name)

        def part(env: Env) -> Value:
            x = world.of(Name(name), env)
            return x - np.sign(x) * world.number(300.0) if rough else x

        slope, carrier = premise.slope, premise.carrier
        world.defined[rest] = lambda env: world.of(slope, env) * part(env)
        world.defined[subject] = lambda env: (
            world.of(slope, env) * (part(env) - world.of(carrier, env))
        )

    def _carrier_or_tensor(self, place: Pattern, powers: bool) -> None:
        if isinstance(place, Name) and place.name not in self.world.carriers:
            drop = any(p.relation == "drop" for p in self.rule.premises)
            conclusion = self.rule.conclusion
            if conclusion is not None and conclusion.relation == "drop":
                drop = True
            if self._is_carrier(place.name) and not drop:
                self._draw_carrier(place.name, powers)
                return
        for name in names_of(place):
            if name not in self.world.carriers:
                self._tensor(name)

    def _is_carrier(self, name: str) -> bool:
        relations = [*self.rule.premises, *([self.rule.conclusion] if self.rule.conclusion else [])]
        return any(r.carrier == Name(name) for r in relations)

    def _draw_carrier(self, name: str, powers: bool) -> None:
        free = [a for a in self.axes if (a, name) not in self.barred and a != "outer"]
        axis, body = str(self.rng.choice(free)), f"{name} body"
        self.needed.add((axis, body))
        self.barred |= {(a, body) for a in self.axes if (a, name) in self.barred}
        if powers:
            self.signs[body] = [">"]
        self._tensor(body)
        mean = Call("div", (Fold("sum", axis, Name(body)), Size(axis)))
        kinds: list[Pattern] = [Fold("max", axis, Name(body)), Fold("min", axis, Name(body)), mean]
        self.world.carriers[name] = kinds[int(self.rng.integers(3))]

    def _moved(
        self, relation: Relation, base: Callable[[Env], Value], *, back: bool
    ) -> Callable[[Env], Value]:
        """The subject's value with the carrier's final value replaced by the running one."""
        carriers, world = self.world.carriers, self.world
        slope = lowered(relation.slope, carriers)
        lean = None if relation.centre is None else lowered(relation.centre, carriers)
        carrier = lowered(relation.carrier, carriers)
        if isinstance(carrier, Name):
            carrier = carriers.get(carrier.name, carrier)
        along = relation.relation != "drop"
        if along and not stream_axes(carrier):
            raise Undecided("a carrier without a stream")
        running = moment_of(carrier, "running") if along else carrier

        def value(env: Env) -> Value:
            e, k, m = base(env), world.of(slope, env), world.of(carrier, env)
            mu = world.of(running, env)
            if back:
                m, mu = mu, m
            match relation.relation:
                case "shift":
                    return e + k * (mu - m)
                case "scale":
                    return e * np.exp(k * (mu - m))
                case "power":
                    return e * np.power(mu / m, k)
                case "drop":
                    return e + k * m
            assert lean is not None
            q, step = world.of(lean, env), mu - m
            if back:
                return e + -world.number(2) * q * step + k * step * step
            return e - world.number(2) * q * step - k * step * step

        return value

    def _tensor(self, name: str) -> None:
        world = self.world
        if name in world.tensors or name in world.defined or name in world.carriers:
            return
        axes = tuple(
            a for a in self.axes
            if (a, name) in self.needed
            or ((a, name) not in self.barred and a != "along" and self.rng.random() < 0.8)
        )  # fmt: skip
        kind = self.kinds.get(name, "float")
        if Kind("finite", name) in self.rule.conditions:
            axes = ()
        shape = tuple(world.extents[a] for a in axes)
        world.tensors[name] = axes, self._values(name, kind, shape)

    def _values(self, name: str, kind: str, shape: tuple[int, ...]) -> Any:
        if kind == "boolean":
            return self.rng.random(shape) < 0.5
        if kind == "integer":
            return self.rng.integers(-5, 6, shape)
        x = styled(self.style, self.rng, shape)
        if Kind("finite", name) in self.rule.conditions:
            x = np.where(np.isfinite(x), x, 1.5)
        for sign in self.signs.get(name, []):
            x = np.where(np.isnan(x), 1.0, x)
            x = np.abs(x) if sign in (">", ">=") else -np.abs(x) if sign in ("<", "<=") else x
            zero = -1.0 if sign == "<" else 1.0
            x = np.where(x == 0, zero, x) if sign in (">", "<", "!=") else x
        for c in self.rule.conditions:
            if isinstance(c, Differs) and c.name == name:
                x = np.where(x == c.number, c.number + 0.5, x)
        return np.asarray(x, np.float32)


def _kinds(rule: Rule, patterns: list[Pattern]) -> dict[str, str]:
    kinds = {name: "boolean" for p in patterns for name in booleans(p)}
    for c in rule.conditions:
        if isinstance(c, Kind) and c.kind in ("integer", "boolean"):
            kinds[c.name] = c.kind
    return kinds


def differs(rule: Rule, *, trials: int = 150) -> str | None:
    """What shows that the law does not hold in its class, None where nothing does.

    Raises Undecided for forms that are not evaluated here.
    """
    rules = [rule]
    if rule.two_way:
        rules.append(replace(rule, left=rule.right, right=rule.left))
    for direction in rules:
        tests = _TESTS[direction.numerics]
        for test in tests:
            found = test(direction, trials)
            if found is not None:
                return found
    return None


def _each(
    rule: Rule, trials: int, style: str, wide: bool
) -> Iterator[tuple[Value, Value, _Draw, dict[str, int]]]:
    for seed in range(trials):
        draw = _Draw(rule, seed)
        with np.errstate(all="ignore"):
            left, right = draw.sides(style)
            draw.world.wide, draw.left = wide, left
            if not draw.holds():
                continue
            for env in draw.positions():
                yield left(env), right(env), draw, env


def _has(rule: Rule, names: tuple[str, ...]) -> bool:
    """Whether one of these functions or reducers occurs in a law."""
    found = (p for x in patterns_of(rule) for p in parts(x))
    return any(
        (isinstance(p, Fold) and p.monoid in names)
        or (isinstance(p, Call) and p.operation in names)
        for p in found
    )


def _bits(rule: Rule, trials: int) -> str | None:
    ordered = _has(rule, ("max", "min"))
    for left, right, _, _ in _each(rule, 4 * trials, "special", wide=False):
        if isinstance(left, bool) or isinstance(right, bool):
            if bool(left) != bool(right):
                return f"{left} and {right}"
            continue
        both = np.isnan(left) and np.isnan(right)
        same = left == right and (ordered or np.signbit(left) == np.signbit(right))
        if not (both or same):
            return f"bits: {left!r} and {right!r}"
    return None


def _equal(rule: Rule, trials: int, both: bool = False) -> str | None:
    for left, right, _, _ in _each(rule, trials, "ordinary", wide=True):
        counts = np.isfinite(left) and (not both or np.isfinite(right))
        if counts and not _close(left, right):
            return f"{float(left)!r} and {float(right)!r}"
    return None


def _fast(rule: Rule, trials: int) -> str | None:
    return _equal(rule, trials, both=True)


def _finite(rule: Rule, trials: int) -> str | None:
    for left, right, _, _ in _each(rule, trials, "large", wide=False):
        if np.isfinite(left) and not np.isfinite(right):
            return f"float32: {float(left)!r} and {float(right)!r}"
    return None


def _digits(rule: Rule, trials: int) -> str | None:
    """Errors of both sides in float32 on values with few digits between them, over all instances
    whose tensors have the same signs: a left side that is exact by luck proves nothing."""
    sums: dict[tuple[int, ...], list[float]] = {}
    for left, right, draw, env in _each(rule, trials, "offset", wide=False):
        draw.world.wide = True
        truth = float(draw.left(env))
        draw.world.wide = False
        if np.isfinite(truth) and np.isfinite(left) and np.isfinite(right):
            kept = sums.setdefault(draw.offsets(), [0.0, 0.0, 0.0, 0])
            errors = (float(left) - truth, float(right) - truth, truth)
            kept[:] = [*(k + e * e for k, e in zip(kept, errors, strict=False)), kept[3] + 1]
    for *squares, count in sums.values():
        theirs, ours, size = map(math.sqrt, squares)
        if count >= _ENOUGH and ours > _LOSS * theirs + _SLACK * 2.0**-24 * size:
            return f"float32 errors {theirs:.3g} and {ours:.3g}"
    return None


def _close(left: Value, right: Value) -> bool:
    if isinstance(left, bool) or isinstance(right, bool):
        return bool(left) == bool(right)
    if left == right:
        return True
    return bool(abs(left - right) <= 1e-7 * (abs(left) + abs(right)) + 1e-8)


_TESTS: dict[str, tuple[Callable[[Rule, int], str | None], ...]] = {
    "exact": (_bits,),
    "real": (_equal, _finite, _digits),
    "fast": (_fast,),
    "facts": (_equal,),
}
