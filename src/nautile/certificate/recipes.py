"""How each input is drawn, so that a program is looked at where it is meant to work.

Ordinary inputs are about normal. Two things are read off the program's structure: an integer tensor
that indexes another, or is compared with positions, stays within that range; and where a
contraction without a scale of its own would hand numbers beyond a few units to what follows, the
largest tensor in it is drawn smaller, so that a softmax further on is not a mere argmax.
Adversarial inputs have their extremes at the ends of axes, are large, tiny, full of ties, or of
exact zeros. With extremes at the ends, whole numbers are often the least or the greatest of their
range, and masks often hide a whole row or nothing of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from nautile.certificate.magnitude import Magnitudes
from nautile.dtypes import DTYPES
from nautile.terms import Apply, Buffer, Index, Load, Program, Term, buffers, walk

__all__ = ["CASES", "float_kind", "is_positive", "recipes"]

CASES = ("ordinary", "edges", "large", "tiny", "ties", "zeros")
_COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})
_MODEST = 4.0


def recipes(program: Program, case: str = "ordinary") -> dict[str, str]:
    """The kind (see samples.py) by which each input of the program is drawn."""
    scales = _scales(program) if case in ("ordinary", "edges") else {}
    kinds = {}
    for b in program.inputs:
        kind = DTYPES[b.dtype].kind
        if b.name in program.defaults:
            value = program.defaults[b.name]
            kinds[b.name] = f"uniform:{value!r}:{value!r}"
        elif kind == "bool":
            rows = case == "edges" and len(b.shape) > 1
            kinds[b.name] = f"stripes:{b.shape[-1]}" if rows else "bool"
        elif kind == "integer":
            low, high = _range(program, b)
            kinds[b.name] = f"{'ends' if case == 'edges' else 'integers'}:{low}:{high}"
        else:
            kinds[b.name] = float_kind(case, b, scales.get(b.name, 1.0))
    return kinds


def float_kind(case: str, buffer: Buffer, scale: float = 1.0) -> str:
    """How a tensor of floats is drawn in a case."""
    largest = DTYPES[buffer.dtype].largest
    match case:
        case "edges":
            return ":".join(["edges", f"{scale:.6g}", *map(str, buffer.shape)])
        case "large":
            return f"normal:{min(1e4, largest / 8):g}"
        case "tiny":
            return "normal:0.001"
        case "positive":
            return "uniform:0.5:1.5"
        case "ordinary":
            return "normal" if scale == 1.0 else f"normal:{scale:.6g}"
    return case


def _terms(program: Program) -> list[Term]:
    return [d.body for d in program.definitions] + [o.term for o in program.outputs]


def _range(program: Program, buffer: Buffer) -> tuple[int, int]:
    """The whole numbers that make sense for an integer tensor: coordinates stay inside what they
    index, lengths within the axis that they are compared with, others are a few small numbers."""
    limits = [n for t in _terms(program) for n in _indexed(t, buffer.name)]
    if limits:
        return 0, min(limits)
    lengths = [n for t in _terms(program) for n in _compared(t, buffer.name)]
    if lengths:
        return 0, max(lengths) + 1
    compared = any(_reads(t, buffer.name) for t in _terms(program) if _is_comparison(t))
    return (0, 4) if compared else (-8, 9)


def _indexed(root: Term, name: str) -> Iterator[int]:
    for term in walk(root):
        if isinstance(term, Load):
            for coordinate, extent in zip(term.coordinates, term.buffer.shape, strict=True):
                if _reads(coordinate, name):
                    yield extent


def _compared(root: Term, name: str) -> Iterator[int]:
    for term in walk(root):
        if _is_comparison(term) and _reads(term, name):
            yield from (
                t.axis.extent for t in walk(term) if isinstance(t, Index) and _bare(term, t)
            )


def _bare(root: Term, index: Term) -> bool:
    """Whether the index is compared itself, rather than used in a coordinate of a load."""
    stack, seen = [root], set()
    while stack:
        term = stack.pop()
        if term is index:
            return True
        if isinstance(term, Apply) and term not in seen:
            seen.add(term)
            stack.extend(term.arguments)
    return False


def _is_comparison(term: Term) -> bool:
    return isinstance(term, Apply) and term.operation in _COMPARISONS


def _reads(term: Term, name: str) -> bool:
    return any(b.name == name for b in buffers(term))


def _scales(program: Program) -> dict[str, float]:
    """Scales for inputs of contractions whose results would be large."""
    floats = {b.name: b for b in program.inputs if DTYPES[b.dtype].kind == "float" and b.shape}
    scales: dict[str, float] = {}
    for target in _sensitive(program):
        size = Magnitudes(program, scales).of(target)
        if math.isfinite(size) and size > _MODEST:
            chosen = _heaviest(program, target, floats, scales, 1.0 / size)
            if chosen and chosen not in scales:
                scales[chosen] = 1.0 / size
    return scales


def _sensitive(program: Program) -> Iterator[Term]:
    """What should be of modest size: definitions, and arguments of curved functions."""
    curved = {"exp", "exp2", "tanh", "erf", "sigmoid", "sin", "cos", "pow"}
    for term in _terms(program):
        for part in walk(term):
            if isinstance(part, Apply) and part.operation in curved:
                yield part.arguments[0]
        yield term


def _heaviest(
    program: Program,
    target: Term,
    floats: Mapping[str, Buffer],
    scales: Mapping[str, float],
    scale: float,
) -> str | None:
    """The input that the target reads itself and that makes it smallest when it is scaled; the
    largest of equals. (A slope times a position is made small by the slope alone.)"""
    read = [floats[b.name] for b in buffers(target) if b.name in floats]

    def rank(b: Buffer) -> tuple[float, bool, int]:
        size = Magnitudes(program, {**scales, b.name: scale}).of(target)
        return float(f"{size:.2g}"), len(b.shape) < 2, -b.size

    best = min(read, key=rank, default=None)
    return None if best is None else best.name


def is_positive(term: Term, program: Program) -> bool:
    """True where the structure shows a value above 0: exponentials, roots, norms, sigmoids."""
    return Magnitudes(program, {}).positive(term)
