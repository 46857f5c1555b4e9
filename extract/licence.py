"""Which narrow operands let an f32 neighbour be rounded to their type: those that do in the source.

Tensor cores multiply operands of one type, so an f32 operand beside a bf16 one is rounded to bf16.
The source's own contractions say where that is meant (probabilities times V). A rewrite may bring
other neighbours together: of `sum[j](sum[c](Q * K) * decay)`, which rounds nothing, it makes
`sum[c](Q * sum[j](K * decay))`, where decay would lose 16 bits. There the narrow operand is widened
instead: an f32 product, which the tensor cores form of three tf32 ones.

```
Licence ::= {Site}
Site    ::= (tensor, dimensions that the summed axis walks) | (cast type, tensors below, family)
```

A site is licensed where the source sums a product of it with an f32 value. If that value is itself
made of a contraction, so are that one's operands: a chain of products that is multiplied in another
order rounds another intermediate, and as often as before.

A value that is rounded to f16 may leave its range where the source's result is finite (a product of
three f16 values is 0 or infinite soon). A guarded licence lets only such values be rounded that fit
whatever the inputs are (see magnitude.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from nautile.dtypes import DTYPES
from nautile.extract.contractions import NARROW, product_parts, product_steps
from nautile.extract.magnitude import magnitude
from nautile.oracle.operands import NARROW as COARSEST
from nautile.terms import Apply, Axis, Cast, Const, Load, Online, Reduce, Term, buffers, walk

__all__ = ["Licence", "widened"]

TENSOR = NARROW | {"tf32"}
Site = tuple[object, ...]
Parts = Mapping[Term, frozenset[Axis]]


class Licence:
    """The sites at which the source rounds neighbours, and the tensors that it reads. `guarded`:
    what may leave the range of a type is not rounded to it."""

    __slots__ = ("_sites", "_tensors", "guarded")

    def __init__(self, roots: Iterable[Term], *, guarded: bool = False) -> None:
        terms = tuple(roots)
        self.guarded = guarded
        self._tensors = frozenset(b.name for b in buffers(*terms))
        self._sites: set[Site] = set()
        for term in walk(*terms):
            if _sums(term) and _rounds(parts := _inside(term)):
                self._admit(parts)

    def _admit(self, parts: Parts) -> None:
        """The narrow parts (of several types the one of most range: what is no f16 may be a bf16),
        and those of the contractions that the others are made of."""
        types = [_type(p) for p in parts]
        coarsest = next((t for t in (*COARSEST, "tf32") if t in types), None)
        for part, axes in parts.items():
            if _type(part) == coarsest:
                self._sites.update(_site(part, axis) for axis in axes)
            elif _sums(part):
                self._admit(_inside(part))

    def covers(self, part: Term, axes: frozenset[Axis]) -> bool:
        """Whether a value beside this narrow part of a sum over the axes may be rounded. Tensors
        between kernels have no say: theirs is the type that their readers choose."""
        inside = {b.name for b in buffers(part)}
        return not inside <= self._tensors or all(_site(part, a) in self._sites for a in axes)


def widened(root: Term, given: Licence) -> Term:
    """The sum with its narrow operands as f32 where a neighbour may not be rounded to their type;
    any other term as it is."""
    if not _sums(root) or not _rounds(parts := _inside(root)):
        return root
    wide = {p for p, axes in parts.items() if _type(p) in TENSOR and not given.covers(p, axes)}
    if given.guarded:
        wide |= {p for p in parts if _type(p) in TENSOR and not _fits(p, root)}
    return _with_wide(root, frozenset(wide)) if wide else root


def _sums(term: Term) -> bool:
    return isinstance(term, Online) or (isinstance(term, Reduce) and term.monoid == "sum")


def _inside(root: Term) -> Parts:
    """The numbers in the product of which a sum, with those directly inside it, is taken, and the
    summed axes that each walks; only such that walk one."""
    return {part: own for _, part, own in _numbers(root)}


def _numbers(root: Term) -> Iterator[tuple[str, Term, frozenset[Axis]]]:
    """The same, each as a factor or a divisor."""
    assert isinstance(root, (Reduce, Online))
    axes, body = {root.axis}, root.body
    while isinstance(body, Reduce) and body.monoid == "sum" and body.axis not in axes:
        axes.add(body.axis)
        body = body.body
    for kind, part in product_parts(body):
        own = part.free & axes
        if kind != "where" and own:
            yield kind, part, own


def _rounds(parts: Parts) -> bool:
    """Whether some value would be rounded: one that is f32 beside a narrow one, or the product of
    two narrow ones beside a third."""
    narrow = sum(_type(p) in TENSOR for p in parts)
    return narrow > 0 and (narrow < len(parts) or narrow > 2)


def _fits(part: Term, root: Term) -> bool:
    """Whether the product of all that stands beside a narrow part has the range of its type."""
    dtype = DTYPES[_type(part)]
    if not dtype.has_small_range:
        return True
    beside = (_share(kind, q) for kind, q, _ in _numbers(root) if q is not part)
    return math.prod(beside) <= dtype.largest


def _share(kind: str, part: Term) -> float:
    """What a factor or a divisor multiplies by at most."""
    if kind == "factor":
        return magnitude(part)
    size = abs(float(part.value)) if isinstance(part, Const) else 0.0
    return 1 / size if size else math.inf


def _type(part: Term) -> str:
    """The type in which a part is held; f32 for what is computed."""
    if isinstance(part, Load):
        return part.buffer.dtype
    return part.dtype if isinstance(part, Cast) else "f32"


def _site(part: Term, axis: Axis) -> Site:
    if isinstance(part, Load):
        walked = (i for i, c in enumerate(part.coordinates) if axis in c.free)
        return (part.buffer.name, *walked)
    return (_type(part), *sorted(b.name for b in buffers(part)), axis.family)


def _with_wide(root: Term, wide: frozenset[Term]) -> Term:
    """The sum with some parts of its product cast to f32."""
    assert isinstance(root, (Reduce, Online))
    body = root.body
    if isinstance(body, Reduce) and body.monoid == "sum" and body.axis != root.axis:
        body = _with_wide(body, wide)
    else:
        body = _wide(body, "factor", wide)
    if isinstance(root, Online):
        return Online(root.axis, root.repair, body, root.offset)
    return Reduce("sum", root.axis, body)


def _wide(term: Term, kind: str, wide: frozenset[Term]) -> Term:
    if term in wide:
        return Cast("f32", term)
    steps = product_steps(term, kind)
    if steps is None:
        return term
    assert isinstance(term, Apply)
    new = {part: _wide(part, how, wide) for how, part in steps}
    return Apply(term.operation, tuple(new.get(a, a) for a in term.arguments))
