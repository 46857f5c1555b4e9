"""Rough sizes of terms under normal inputs, by structure: enough to choose scales and signs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from nautile.terms import Apply, Cast, Const, Index, Load, Program, Reduce, Term, children, walk

__all__ = ["Magnitudes"]

_BOUNDED = {"tanh": 1.0, "sigmoid": 0.5, "erf": 1.0, "sin": 0.7, "cos": 0.7, "sign": 1.0}


@dataclass(slots=True)
class Magnitudes:
    """Estimated root mean squares: inputs have theirs from `scales` (1 where not listed)."""

    program: Program
    scales: Mapping[str, float]
    known: dict[Term, float] = field(default_factory=dict)

    def of(self, root: Term) -> float:
        """The estimate for a term."""
        for term in walk(root):
            if term not in self.known:
                self.known[term] = self._estimate(term)
        return self.known[root]

    def _estimate(self, term: Term) -> float:
        match term:
            case Const(value):
                return abs(float(value)) if math.isfinite(value) else 0.0
            case Index(axis):
                return axis.extent / 2
            case Load(buffer, _):
                return self._stored(buffer.name)
            case Cast(_, argument):
                return self.known[argument]
            case Reduce():
                return self._reduced(term)
            case Apply(operation, arguments):
                return self._applied(operation, [self.known[a] for a in arguments])
        return max((self.known[c] for c in children(term)), default=1.0)

    def _stored(self, name: str) -> float:
        for d in self.program.definitions:
            if d.name == name:
                return self.of(d.body)
        return self.scales.get(name, 1.0)

    def _reduced(self, term: Reduce) -> float:
        body, n = self.known[term.body], term.axis.extent
        if term.monoid == "sum":
            return body * (n if self.positive(term.body) else math.sqrt(n))
        return body * 2 if term.monoid in ("max", "min") else min(body, 1e3)

    def _applied(self, operation: str, sizes: list[float]) -> float:
        a = sizes[0]
        if operation in _BOUNDED:
            return min(a, _BOUNDED[operation])
        match operation:
            case "add" | "sub":
                return math.hypot(*sizes)
            case "mul":
                return a * sizes[1]
            case "div":
                return a / sizes[1] if sizes[1] else 0.0
            case "sqrt":
                return math.sqrt(a)
            case "rsqrt":
                return 1 / math.sqrt(a) if a else 1.0
            case "exp" | "exp2" | "log" | "log2" | "pow":
                return 1.0
            case "where" | "max" | "min":
                return max(sizes[-2:])
        return a

    def positive(self, root: Term) -> bool:
        """True where the structure shows that the term is above 0 (or a truth value)."""
        found: dict[Term, bool] = {}
        for term in walk(root):
            found[term] = self._is_positive(term, found)
        return found[root]

    def _is_positive(self, term: Term, found: Mapping[Term, bool]) -> bool:
        match term:
            case Const(value):
                return value > 0
            case Load(buffer, _):
                bodies = [d.body for d in self.program.definitions if d.name == buffer.name]
                return bool(bodies) and self.positive(bodies[0])
            case Cast(_, argument):
                return found[argument]
            case Reduce(monoid, _, body):
                return monoid in ("sum", "prod", "max", "min") and found[body]
            case Apply(operation, arguments):
                return _stays_positive(operation, arguments, [found[a] for a in arguments])
        return False


def _stays_positive(operation: str, arguments: tuple[Term, ...], found: list[bool]) -> bool:
    if operation in ("exp", "exp2", "sigmoid", "sqrt", "rsqrt", "abs"):
        return True
    if operation == "mul" and arguments[0] is arguments[1]:
        return True
    if operation == "where":
        return all(found[1:])
    if operation == "max":
        return any(found)
    return operation in ("add", "mul", "div", "min", "pow") and all(found)
