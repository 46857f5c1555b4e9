"""Masks as loop bounds: blocks that a mask empties are not run, blocks that it leaves whole run
without it.

A mask is a Map with a `where(p, x, c)` in it whose value is one constant wherever p is false.
Blocks in which p is false everywhere may be skipped where they change nothing that the loop
carries: every fold's source is then the monoid's identity, and one operand of every contraction is
0. A row that the mask has left empty so far may carry NaN instead (exp(-inf - -inf)); its repair is
0 as soon as an element counts, and if none ever does, the one block that always runs gives the same
NaN.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from nautile.codegen.affine import Range, ranges
from nautile.codegen.folding import identity
from nautile.codegen.tile import (
    Bounds,
    Fold,
    Loop,
    Map,
    Mma,
    Read,
    Ref,
    Statement,
    TileProgram,
    Write,
    walk_statements,
)
from nautile.codegen.types import carrier
from nautile.terms import Apply, Axis, Cast, Const, Index, Term, apply, children, rebuild, walk

__all__ = ["with_mask_bounds"]


@dataclass(frozen=True, slots=True)
class _Mask:
    """A Map that is `constant` where `predicate` is false, and `unmasked` where it is true."""

    target: str
    predicate: Term
    constant: float
    unmasked: Term


def with_mask_bounds(program: TileProgram) -> TileProgram:
    """The program with bounds on the loops whose blocks a mask empties."""
    masked = dict(program.masked)
    read = frozenset(s.target.name for s in program.body if isinstance(s, Read))
    body = _bounded(program.body, program.tiles, set(program.grid), masked, read)
    return replace(program, body=body, masked=masked)


def _bounded(
    body: tuple[Statement, ...],
    tiles: Mapping[Axis, int],
    origins: set[Axis],
    masked: dict[str, Term],
    read: frozenset[str],
) -> tuple[Statement, ...]:
    done: list[Statement] = []
    for statement in body:
        if isinstance(statement, Loop):
            bounds = _loop_bounds(statement, tiles, origins, masked, read)
            inner = _bounded(statement.body, tiles, origins | {statement.axis}, masked, read)
            statement = Loop(statement.axis, inner, bounds)
        done.append(statement)
    return tuple(done)


def _loop_bounds(
    loop: Loop,
    tiles: Mapping[Axis, int],
    origins: set[Axis],
    masked: dict[str, Term],
    read: frozenset[str],
) -> Bounds:
    for statement in loop.body:
        mask = _mask_of(statement, loop.axis) if isinstance(statement, Map) else None
        if mask is None or not _skippable(loop, mask):
            continue
        found = ranges(mask.predicate, loop.axis, tiles, origins, read)
        if not found.trivial:
            masked[mask.target] = mask.unmasked
            return _as_bounds(found)
    return loop.bounds


def _as_bounds(found: Range) -> Bounds:
    whole = found.whole_first, found.whole_stop
    if whole[0] is None and whole[1] is not None:
        whole = Const(0), whole[1]
    if whole[1] is None and whole[0] is not None:
        whole = whole[0], Const(2**30)
    return Bounds(found.first, found.stop, *whole)


def _mask_of(statement: Map, axis: Axis) -> _Mask | None:
    """The mask that the Map holds, all its conditions taken together."""
    value = statement.value
    conditions = [
        t.arguments[0]
        for t in walk(value)
        if isinstance(t, Apply) and t.operation == "where" and axis in t.arguments[0].free
    ]
    parts: list[tuple[Term, float]] = []
    for condition in conditions:
        constant = _value(_with(value, condition, False), {})
        if constant is not None:
            parts.append((condition, constant))
    if not parts or any(c != parts[0][1] for _, c in parts):
        return None
    unmasked = value
    predicate = parts[0][0]
    for number, (condition, _) in enumerate(parts):
        unmasked = _with(unmasked, condition, True)
        predicate = apply("and", predicate, condition) if number else predicate
    return _Mask(statement.target.name, predicate, parts[0][1], unmasked)


def _with(value: Term, condition: Term, truth: bool) -> Term:
    """The value with every `where(condition, a, b)` replaced by the branch taken."""
    done: dict[Term, Term] = {}
    for term in walk(value):
        new = rebuild(term, tuple(done[c] for c in children(term)))
        if isinstance(new, Apply) and new.operation == "where" and new.arguments[0] is condition:
            new = new.arguments[1 if truth else 2]
        if isinstance(new, Apply) and new.operation == "add" and new.arguments[1] is Const(0.0):
            new = new.arguments[0]
        done[term] = new
    return done[value]


def _skippable(loop: Loop, mask: _Mask) -> bool:
    """Whether a block in which the mask is false everywhere leaves all that is carried as it is."""
    known: dict[str, float] = {mask.target: mask.constant}
    for statement in walk_statements(loop.body):
        if isinstance(statement, Write):
            return False
        if isinstance(statement, Map) and statement.target.name not in known:
            value = _value(statement.value, known)
            if value is not None:
                known[statement.target.name] = value
        if isinstance(statement, (Fold, Mma)) and not _neutral(statement, loop.axis, known):
            return False
    return True


def _neutral(statement: Fold | Mma, axis: Axis, known: Mapping[str, float]) -> bool:
    if isinstance(statement, Mma):
        operands = (statement.left.name, statement.right.name)
        return axis not in statement.axes or any(known.get(n) == 0 for n in operands)
    if statement.axis != axis:
        return True
    if statement.monoid in ("argmax", "argmin"):
        return False
    kind = carrier(statement.target.dtype)
    return known.get(statement.source.name) == float(identity(statement.monoid, kind))


def _value(root: Term, known: Mapping[str, float]) -> float | None:
    """The term's value where it does not depend on what is unknown (taken to be finite)."""
    values: dict[Term, float | None] = {}
    for term in walk(root):
        values[term] = _node(term, [values[c] for c in children(term)], known)
    return values[root]


def _node(term: Term, inner: list[float | None], known: Mapping[str, float]) -> float | None:
    match term:
        case Const(value):
            return float(value)
        case Ref(tile):
            return known.get(tile.name)
        case Cast(_, _):
            return inner[0]
        case Index(_):
            return None
        case Apply(operation, _):
            return _apply(operation, inner)
    return None


def _apply(operation: str, x: list[float | None]) -> float | None:
    infinite = next((v for v in x if v is not None and math.isinf(v)), None)
    match operation:
        case "add" if infinite is not None:
            return infinite
        case "sub" if infinite is not None:
            return infinite if x[0] == infinite else -infinite
        case "mul" if 0.0 in x:
            return 0.0
        case "mul" if infinite is not None and None not in x:
            return _product(x)
        case "div" if x[0] == 0.0 or (x[0] == infinite and x[1] is not None and x[1] != 0):
            return 0.0 if x[0] == 0.0 else _product(x)
        case "exp" | "exp2" | "sigmoid" if x[0] == -math.inf:
            return 0.0
        case "neg" if x[0] is not None:
            return -x[0]
        case "abs" if x[0] is not None:
            return abs(x[0])
        case "where" if x[1] == x[2]:
            return x[1]
        case "max" if -math.inf in x or None not in x:
            return _largest(x)
    return None


def _product(x: list[float | None]) -> float:
    signs = math.prod(math.copysign(1.0, v) for v in x if v is not None)
    return math.copysign(math.inf, signs)


def _largest(x: list[float | None]) -> float | None:
    return None if None in x else max(v for v in x if v is not None)
