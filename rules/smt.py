"""Proofs by z3, where the extra `prove` is installed: laws of scalars, by contradiction.

Over the reals: + - * / and the order of numbers, with masks; a proof asks that no values under the
law's conditions make the sides differ where the left is defined. Over the bits: IEEE binary32 with
NaN, infinities and signed zeros, rounding to nearest; functions that IEEE leaves open (exp and the
like) are any functions of their arguments; max and min hand NaN on and may return either zero.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from .conditions import Bound, Kind, Sign
from .egglog import booleans
from .instance import patterns_of
from .law import Call, Name, Number, Pattern, Round, Rule, names_of, parts
from .setting import Unsupported

__all__ = ["proved_by_z3"]

_MILLISECONDS = 1000
_PARTS = 60
_FORMATS = {"f32": (8, 24), "tf32": (8, 11), "bf16": (8, 8), "f16": (5, 11)}
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}  # fmt: skip


def proved_by_z3(rule: Rule, kind: str) -> bool:
    """Whether z3 proves the equation of a law of scalars, over the "reals" or the "bits"."""
    if find_spec("z3") is None or rule.premises or rule.conclusion is not None:
        return False
    patterns = patterns_of(rule)
    if sum(1 for s in patterns for _ in parts(s)) > _PARTS:
        return False
    if not all(isinstance(p, (Call, Name, Number, Round)) for s in patterns for p in parts(s)):
        return False
    from z3 import Z3Exception

    try:
        return (_Bits if kind == "bits" else _Reals)(rule).proved()
    except (Unsupported, Z3Exception):  # Z3's own: truth values among numbers
        return False


class _Reals:
    """The law over the reals."""

    def __init__(self, rule: Rule) -> None:
        import z3

        self.z3, self.rule = z3, rule
        self.truths = {n for p in patterns_of(rule) for n in booleans(p)}
        self.names = {n: self.variable(n) for p in patterns_of(rule) for n in names_of(p)}
        self.functions: dict[str, Any] = {}
        self.undefined: list[Any] = []

    def variable(self, name: str) -> Any:
        kinds = {c.kind for c in self.rule.conditions if isinstance(c, Kind) and c.name == name}
        if name in self.truths or kinds & {"boolean", "bool"}:
            return self.z3.Bool(name)
        if kinds & {"integer", "size", "i32", "i64"}:
            return self.z3.Int(name)
        return self.z3.Real(name)

    def proved(self) -> bool:
        assert self.rule.left is not None
        assert self.rule.right is not None
        left = self.term(self.rule.left)
        gaps, self.undefined = self.undefined, []
        right = self.term(self.rule.right)
        holes = self.undefined
        solver = self.z3.Solver()
        solver.set("timeout", _MILLISECONDS)
        solver.add(*self.conditions(), self.z3.Not(self.z3.Or(*gaps)))
        if self.rule.numerics != "fast":
            solver.add(self.z3.Or(self.differ(left, right), *holes))
        else:
            solver.add(self.differ(left, right), self.z3.Not(self.z3.Or(*holes)))
        return bool(solver.check() == self.z3.unsat)

    def differ(self, left: Any, right: Any) -> Any:
        return left != right

    def conditions(self) -> list[Any]:
        asked: list[Any] = []
        for c in self.rule.conditions:
            if isinstance(c, (Sign, Bound)) and c.name in self.names:
                limit = self.number(0 if isinstance(c, Sign) else c.number)
                asked.append(self.related(c.relation, self.names[c.name], limit))
        return asked

    def related(self, relation: str, value: Any, limit: Any) -> Any:
        tests = {">": "gt", ">=": "ge", "<": "lt", "<=": "le"}
        if relation == "!=":
            return value != limit
        return _COMPARE[tests[relation]](value, limit)

    def number(self, value: bool | int | float) -> Any:
        if isinstance(value, bool):
            return self.z3.BoolVal(value)
        if value != value or abs(value) > 1e18:
            raise Unsupported("no such real number")
        numerator, denominator = float(value).as_integer_ratio()
        return self.z3.Q(numerator, denominator)

    def term(self, pattern: Pattern) -> Any:
        match pattern:
            case Name(name):
                return self.names[name]
            case Number(value):
                return self.number(value)
            case Call(operation, arguments):
                return self.call(operation, [self.term(a) for a in arguments])
            case Round(dtype, argument):
                return self.rounded(dtype, self.term(argument))
        raise Unsupported("not a scalar")

    def call(self, operation: str, given: list[Any]) -> Any:
        z3 = self.z3
        logic = {"and": z3.And, "or": z3.Or, "not": z3.Not, "where": z3.If}
        if operation in logic:
            return logic[operation](*given)
        if operation in ("eq", "ne"):
            same = self.equal(*given)
            return same if operation == "eq" else z3.Not(same)
        if any(z3.is_bool(g) for g in given):
            raise Unsupported("arithmetic and order of truth values")
        if operation in _COMPARE:
            return _COMPARE[operation](*given)
        return self.arithmetic(operation, given)

    def rounded(self, dtype: str, value: Any) -> Any:
        raise Unsupported("roundings are no real functions")

    def equal(self, a: Any, b: Any) -> Any:
        return a == b

    def arithmetic(self, operation: str, given: list[Any]) -> Any:
        z3 = self.z3
        match operation, given:
            case "add", [a, b]:
                return a + b
            case "sub", [a, b]:
                return a - b
            case "mul", [a, b]:
                return a * b
            case "neg", [a]:
                return -a
            case "div", [a, b]:
                self.undefined.append(b == 0)
                return z3.ToReal(a) / b if z3.is_int(a) else a / b
            case "max", [a, b]:
                return z3.If(a >= b, a, b)
            case "min", [a, b]:
                return z3.If(a <= b, a, b)
            case "abs", [a]:
                return z3.If(a >= 0, a, -a)
            case "sign", [a]:
                return z3.If(a > 0, z3.Q(1, 1), z3.If(a < 0, z3.Q(-1, 1), z3.Q(0, 1)))
        raise Unsupported(f"no {operation} over the reals")


class _Bits(_Reals):
    """The law in IEEE binary32."""

    def variable(self, name: str) -> Any:
        kinds = {c.kind for c in self.rule.conditions if isinstance(c, Kind) and c.name == name}
        if name in self.truths or kinds & {"boolean", "bool"}:
            return self.z3.Bool(name)
        if kinds & {"integer", "size", "i32", "i64", "f64"}:
            raise Unsupported("not binary32")
        return self.z3.FP(name, self.z3.Float32())

    def conditions(self) -> list[Any]:
        """What is known of signs does not exclude NaN."""
        asked = {c.name for c in self.rule.conditions if isinstance(c, (Sign, Bound))}
        nan = [self.z3.fpIsNaN(self.names[n]) for n in sorted(asked & set(self.names))]
        return [self.z3.Or(*nan, c) for c in super().conditions()]

    def number(self, value: bool | int | float) -> Any:
        if isinstance(value, bool):
            return self.z3.BoolVal(value)
        return self.z3.FPVal(float(value), self.z3.Float32())

    def differ(self, left: Any, right: Any) -> Any:
        if self.z3.is_bool(left):
            return left != right
        same = left == right  # all NaN are one, zeros differ
        if any(
            isinstance(p, Call) and p.operation in ("max", "min")
            for s in patterns_of(self.rule) for p in parts(s)
        ):  # fmt: skip
            same = self.z3.Or(same, self.z3.fpEQ(left, right))
        return self.z3.Not(same)

    def related(self, relation: str, value: Any, limit: Any) -> Any:
        if relation == "!=":
            return self.z3.fpNEQ(value, limit)
        return super().related(relation, value, limit)

    def rounded(self, dtype: str, value: Any) -> Any:
        """The value in a narrower IEEE format, and back."""
        if dtype not in _FORMATS or self.z3.is_bool(value):
            raise Unsupported(f"no format {dtype}")
        there = self.z3.fpToFP(self.z3.RNE(), value, self.z3.FPSort(*_FORMATS[dtype]))
        return self.z3.fpToFP(self.z3.RNE(), there, self.z3.Float32())

    def equal(self, a: Any, b: Any) -> Any:
        return a == b if self.z3.is_bool(a) else self.z3.fpEQ(a, b)

    def arithmetic(self, operation: str, given: list[Any]) -> Any:
        z3, nearest = self.z3, self.z3.RNE()
        rounded = {"add": z3.fpAdd, "sub": z3.fpSub, "mul": z3.fpMul, "div": z3.fpDiv}
        if operation in rounded:
            return rounded[operation](nearest, *given)
        match operation, given:
            case "neg", [a]:
                return z3.fpNeg(a)
            case "abs", [a]:
                return z3.fpAbs(a)
            case "sqrt", [a]:
                return z3.fpSqrt(nearest, a)
            case "max", [a, b]:
                return self.handed(a, b, z3.fpGEQ(a, b))
            case "min", [a, b]:
                return self.handed(a, b, z3.fpLEQ(a, b))
        sorts = [z3.Float32()] * (len(given) + 1)
        if operation not in self.functions:
            self.functions[operation] = z3.Function(operation, *sorts)
        return self.functions[operation](*given)

    def handed(self, a: Any, b: Any, first: Any) -> Any:
        """A choice that hands NaN on."""
        z3 = self.z3
        return z3.If(z3.fpIsNaN(a), a, z3.If(z3.fpIsNaN(b), b, z3.If(first, a, b)))
