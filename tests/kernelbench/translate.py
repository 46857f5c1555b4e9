"""KernelBench operator sequences -> the expression language.

Sizes become numbers, every operation a definition over indices i0, i1, .. (an einsum keeps its
letters); a result that a later turn of a `repeat` writes again gets a new name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["translate"]

Problem = Mapping[str, Any]
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A name of the text and its shape; `at` maps index texts to a reading of it."""

    name: str
    shape: Shape
    dtype: str = "f32"
    leading: tuple[str, ...] = ()

    def __call__(self, *indices: str) -> str:
        every = (*self.leading, *indices)
        read = f"{self.name}[{', '.join(every)}]" if every else self.name
        return f"f32({read})" if self.dtype == "bool" else read

    @property
    def full(self) -> tuple[str, ...]:
        return tuple(f"i{n}" for n in range(len(self.shape)))


@dataclass(slots=True)
class Writer:
    """The lines written so far and what each name of the problem stands for."""

    sizes: dict[str, int]
    known: dict[str, Tensor] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def size(self, entry: Any) -> int:
        return int(self.number(entry))

    def number(self, entry: Any) -> float:
        """A number, or an expression in size names (the data is the project's own)."""
        if not isinstance(entry, str):
            return float(entry)
        return float(eval(entry, {"__builtins__": {}}, self.sizes))

    def shape(self, entries: Sequence[Any]) -> Shape:
        return tuple(self.size(e) for e in entries)

    def operand(self, entry: Any) -> Tensor:
        """A tensor of the problem, one entry of its first axis (`W[l]`), or a number."""
        if isinstance(entry, str):
            picked = re.fullmatch(r"(\w+)\[(\w+)\]", entry)
            if picked:
                whole = self.known[picked[1]]
                at = (*whole.leading, str(self.size(picked[2])))
                return Tensor(whole.name, whole.shape[1:], whole.dtype, at)
            if entry in self.known:
                return self.known[entry]
        return Tensor(_literal(self.number(entry)), ())

    def define(self, shape: Shape, body: str, indices: Sequence[str] | None = None) -> Tensor:
        """A definition with its ranges; `body` is over `indices` (i0, i1, ..)."""
        name = f"v{len(self.lines)}"
        at = indices if indices is not None else [f"i{n}" for n in range(len(shape))]
        ranges = ", ".join(f"{i}: {n}" for i, n in zip(at, shape, strict=True))
        self.lines.append(f"    {name}[{ranges}] = {body}" if shape else f"    {name} = {body}")
        return Tensor(name, shape)


def translate(problem: Problem, sizes: Mapping[str, int] | None = None) -> str:
    """One program of the language for a problem, at its own sizes or at those given."""
    writer = Writer(dict(problem["dims"]) | dict(sizes or {}))
    arguments = []
    for number, entry in enumerate([*problem["inputs"], *problem["parameters"]]):
        made = Tensor(f"t{number}", writer.shape(entry["shape"]), entry["dtype"])
        writer.known[entry["name"]] = made
        arguments.append(f"{made.name}: {_type(made.dtype, made.shape)}")
    for op in problem["ops"]:
        _write(writer, op)
    result = writer.known[problem["output"]]
    integer = problem["ops"][-1]["op"] == "argmax"
    kind = _type("i64" if integer else "f32", result.shape)
    name = "kb_" + re.sub(r"\W", "_", problem["name"])
    head = f"def {name}({', '.join(arguments)}) -> {kind}:"
    return "\n".join([head, *writer.lines, f"    return {result.name}", ""])


def _type(dtype: str, shape: Shape) -> str:
    return f"{dtype}[{', '.join(map(str, shape))}]" if shape else dtype


def _literal(value: float) -> str:
    return f"({value!r})" if value < 0 else repr(value)


def _write(w: Writer, op: Mapping[str, Any]) -> None:
    if op["op"] == "repeat":
        for turn in range(w.size(op["times"])):
            w.sizes[op["index"]] = turn
            for inner in op["body"]:
                _write(w, inner)
        return
    operands = [w.operand(e) for e in op["in"]]
    w.known[op["out"]] = _OPERATIONS[op["op"]](w, op, operands)


# Elementwise


def _aligned(t: Tensor, shape: Shape, indices: Sequence[str]) -> str:
    """A reading of `t` broadcast to `shape` from the last axis."""
    own = indices[len(shape) - len(t.shape) :]
    full = shape[len(shape) - len(t.shape) :]
    pairs = zip(own, t.shape, full, strict=True)
    return t(*("0" if n == 1 and m != 1 else i for i, n, m in pairs))


def _pointwise(template: str) -> Callable[..., Tensor]:
    def made(w: Writer, op: Mapping[str, Any], operands: Sequence[Tensor]) -> Tensor:
        rank = max(len(t.shape) for t in operands)
        padded = [(1,) * (rank - len(t.shape)) + t.shape for t in operands]
        shape = tuple(max(ns) for ns in zip(*padded, strict=True))
        indices = [f"i{n}" for n in range(rank)]
        values = [_aligned(t, shape, indices) for t in operands]
        numbers = {k: _literal(float(v)) for k, v in op.items() if isinstance(v, int | float)}
        return w.define(shape, template.format(*values, **numbers))

    return made


def _gelu(w: Writer, op: Mapping[str, Any], operands: Sequence[Tensor]) -> Tensor:
    name = "gelu_tanh" if op["approximation"] == "tanh" else "gelu"
    return _pointwise(name + "({0})")(w, {}, operands)


def _mask(w: Writer, op: Mapping[str, Any], operands: Sequence[Tensor]) -> Tensor:
    (x,) = operands
    named = {k: f"i{v % len(x.shape)}" for k, v in op["axes_named"].items()}
    keep = re.sub(r"[A-Za-z_]\w*", lambda m: named.get(m[0], m[0]), op["keep"])
    fill = "-inf" if op["fill"] == "-inf" else _literal(float(op["fill"]))
    return w.define(x.shape, f"where({keep}, {x(*x.full)}, {fill})")


# Contractions


def _einsum(w: Writer, op: Mapping[str, Any], operands: Sequence[Tensor]) -> Tensor:
    left, result = op["spec"].split("->")
    extents: dict[str, int] = {}
    for letters, t in zip(left.split(","), operands, strict=True):
        extents |= dict(zip(letters, t.shape, strict=True))
    product = " * ".join(t(*ls) for ls, t in zip(left.split(","), operands, strict=True))
    inner = [c for c in extents if c not in result]
    body = f"sum[{', '.join(inner)}]({product})" if inner else product
    return w.define(tuple(extents[c] for c in result), body, list(result))


def _linear(w: Writer, op: Mapping[str, Any], operands: Sequence[Tensor]) -> Tensor:
    (x,) = operands
    weight = w.operand(op["weight"])
    outer, last = x.full[:-1], f"i{len(x.shape) - 1}"
    body = f"sum[k]({x(*outer, 'k')} * {weight(last, 'k')})"
    if op["bias"] is not None:
        body += f" + {w.operand(op['bias'])(last)}"
    return w.define((*x.shape[:-1], weight.shape[0]), body)


# Reductions


def _axes(op: Mapping[str, Any], rank: int) -> list[int]:
    listed = op["axes"] if "axes" in op else [op["axis"]]
    return [a % rank for a in listed]


def _reduction(reducer: str) -> Callable[..., Tensor]:
    def made(w: Writer, op: Mapping[str, Any], operands: Sequence[Tensor]) -> Tensor:
        (x,) = operands
        axes = _axes(op, len(x.shape))
        kept = [a for a in range(len(x.shape)) if a not in axes]
        over = ", ".join(f"i{a}" for a in axes)
        body = f"{reducer}[{over}]({x(*x.full)})"
        if not op.get("keepdims"):
            return w.define(tuple(x.shape[a] for a in kept), body, [f"i{a}" for a in kept])
        shape = tuple(1 if a in axes else n for a, n in enumerate(x.shape))
        indices = [f"k{a}" if a in axes else f"i{a}" for a in range(len(x.shape))]
        return w.define(shape, body, indices)

    return made


def _along(name: str) -> Callable[..., Tensor]:
    """A named operation of the prelude along one axis."""

    def made(w: Writer, op: Mapping[str, Any], operands: Sequence[Tensor]) -> Tensor:
        (x,) = operands
        (axis,) = _axes(op, len(x.shape))
        extra = f", {_literal(op['eps'])}" if "eps" in op else ""
        return w.define(x.shape, f"{name}[i{axis}]({x(*x.full)}{extra})")

    return made


def _normalized(
    w: Writer,
    x: Tensor,
    read: Callable[[Tensor, Sequence[str]], str],
    groups: tuple[Shape, list[str]],
    inner: str,
    own: Callable[[Tensor], str],
    op: Mapping[str, Any],
    affine: Sequence[int],
) -> Tensor:
    """(x - mean) / sqrt(variance + eps) * gamma + beta, statistics over `inner`."""
    shape, outer = groups
    element = read(x, outer)
    mean = w.define(shape, f"mean[{inner}]({element})", outer)
    centred = f"({element} - {mean(*outer)})"
    spread = w.define(shape, f"mean[{inner}]({centred} * {centred})", outer)
    at = [f"i{a}" for a in affine]
    gamma, beta = w.operand(op["gamma"]), w.operand(op["beta"])
    scaled = f"({x(*x.full)} - {own(mean)}) / sqrt({own(spread)} + {op['eps']!r})"
    return w.define(x.shape, f"{scaled} * {gamma(*at)} + {beta(*at)}")


def _norm(w: Writer, op: Mapping[str, Any], operands: Sequence[Tensor]) -> Tensor:
    """Batch and layer normalization: the axes are whole axes of the tensor."""
    (x,) = operands
    axes = _axes(op, len(x.shape))
    kept = [a for a in range(len(x.shape)) if a not in axes]
    outer = [f"i{a}" for a in kept]
    return _normalized(
        w,
        x,
        lambda t, _: t(*t.full),
        (tuple(x.shape[a] for a in kept), outer),
        ", ".join(f"i{a}" for a in axes),
        lambda t: t(*outer),
        op,
        op["affine_axes"],
    )


def _group_norm(w: Writer, op: Mapping[str, Any], operands: Sequence[Tensor]) -> Tensor:
    (x,) = operands
    groups = w.size(op["groups"])
    each = x.shape[1] // groups
    later = list(x.full[2:])
    return _normalized(
        w,
        x,
        lambda t, outer: t(outer[0], f"g * {each} + c", *later),
        ((x.shape[0], groups), ["i0", "g"]),
        ", ".join([f"c: {each}", *later]),
        lambda t: t("i0", f"i1 // {each}"),
        op,
        [1],
    )


def _gather(w: Writer, op: Mapping[str, Any], operands: Sequence[Tensor]) -> Tensor:
    x, t = operands
    assert op["axis"] == 1
    return w.define(t.shape, x("i0", t("i0")))


def _cumsum(w: Writer, op: Mapping[str, Any], operands: Sequence[Tensor]) -> Tensor:
    (x,) = operands
    (axis,) = _axes(op, len(x.shape))
    at = list(x.full)
    at[axis] = "j"
    kept = f"j {'>=' if op.get('reverse') else '<='} i{axis}"
    return w.define(x.shape, f"sum[j]({f'where({kept}, {x(*at)}, 0.0)'})")


def _avg_pool(w: Writer, op: Mapping[str, Any], operands: Sequence[Tensor]) -> Tensor:
    (x,) = operands
    width, stride, padding = op["kernel"], op["stride"], op["padding"]
    last, n = f"i{len(x.shape) - 1}", x.shape[-1]
    at = f"{last} * {stride} + j - {padding}"
    inside = f"{at} >= 0 and {at} < {n}"
    value = x(*x.full[:-1], f"max(min({at}, {n - 1}), 0)")
    count = (n + 2 * padding - width) // stride + 1
    body = f"sum[j: {width}](where({inside}, {value}, 0.0)) / {width}"
    return w.define((*x.shape[:-1], count), body)


# Shapes


def _regrouped(old: Shape, new: Shape) -> Iterator[tuple[range, range]]:
    """Runs of axes of the two shapes that hold the same elements, from the left."""
    a = b = 0
    while a < len(old) or b < len(new):
        first, second = a, b
        x = y = 1
        while first == a or x != y or second == b:
            if (x <= y and a < len(old)) or b == len(new):
                x, a = x * old[a], a + 1
            else:
                y, b = y * new[b], b + 1
            if x == y and a == len(old) and b == len(new):
                break
        yield range(first, a), range(second, b)


def _flat(indices: Sequence[str], extents: Sequence[int]) -> str:
    """The row-major position; axes of one element are left out."""
    terms, step = [], 1
    for index, extent in reversed(list(zip(indices, extents, strict=True))):
        if extent > 1:
            terms.append(index if step == 1 else f"{index} * {step}")
        step *= extent
    return " + ".join(reversed(terms)) or "0"


def _split(flat: str, extents: Sequence[int]) -> Iterator[str]:
    """The coordinates of a row-major position."""
    total = step = math.prod(extents)
    for extent in extents:
        step //= extent
        if extent == 1:
            yield "0"
            continue
        whole = f"({flat}) // {step}" if step > 1 else f"({flat})"
        yield whole if step * extent == total else f"({whole}) % {extent}"


def _reshape(w: Writer, op: Mapping[str, Any], operands: Sequence[Tensor]) -> Tensor:
    (x,) = operands
    new = w.shape(op["shape"])
    at: list[str] = []
    for old_axes, new_axes in _regrouped(x.shape, new):
        extents = [new[b] for b in new_axes]
        flat = _flat([f"i{b}" for b in new_axes], extents)
        at += _split(flat, [x.shape[a] for a in old_axes])
    return w.define(new, x(*at))


def _transpose(w: Writer, op: Mapping[str, Any], operands: Sequence[Tensor]) -> Tensor:
    (x,) = operands
    at = [f"i{op['perm'].index(a)}" for a in range(len(x.shape))]
    return w.define(tuple(x.shape[a] for a in op["perm"]), x(*at))


def _slice(w: Writer, op: Mapping[str, Any], operands: Sequence[Tensor]) -> Tensor:
    (x,) = operands
    start, stop = w.size(op["start"]), w.size(op["stop"])
    axis = op["axis"] % len(x.shape)
    at = list(x.full)
    at[axis] = f"i{axis} + {start}"
    return w.define((*x.shape[:axis], stop - start, *x.shape[axis + 1 :]), x(*at))


def _select(w: Writer, op: Mapping[str, Any], operands: Sequence[Tensor]) -> Tensor:
    (x,) = operands
    axis = op["axis"] % len(x.shape)
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    at = [f"i{n}" for n in range(len(shape))]
    return w.define(shape, x(*at[:axis], str(w.size(op["position"])), *at[axis:]))


def _concat(w: Writer, op: Mapping[str, Any], operands: Sequence[Tensor]) -> Tensor:
    first, second = operands
    axis = op["axis"] % len(first.shape)
    n, m = first.shape[axis], second.shape[axis]
    left, right = list(first.full), list(second.full)
    left[axis] = f"min(i{axis}, {n - 1})"
    right[axis] = f"max(i{axis} - {n}, 0)"
    shape = (*first.shape[:axis], n + m, *first.shape[axis + 1 :])
    return w.define(shape, f"where(i{axis} < {n}, {first(*left)}, {second(*right)})")


def _broadcast(w: Writer, op: Mapping[str, Any], operands: Sequence[Tensor]) -> Tensor:
    (x,) = operands
    shape = w.shape(op["shape"])
    return w.define(shape, _aligned(x, shape, [f"i{n}" for n in range(len(shape))]))


def _zeros(w: Writer, op: Mapping[str, Any], operands: Sequence[Tensor]) -> Tensor:
    return w.define(w.shape(op["shape"]), "0.0")


_OPERATIONS: dict[str, Callable[..., Tensor]] = {
    "add": _pointwise("{0} + {1}"),
    "sub": _pointwise("{0} - {1}"),
    "mul": _pointwise("{0} * {1}"),
    "div": _pointwise("{0} / {1}"),
    "minimum": _pointwise("min({0}, {1})"),
    "clamp": _pointwise("min(max({0}, {min}), {max})"),
    "leaky_relu": _pointwise("leaky_relu({0}, {slope})"),
    "elu": _pointwise("elu({0}, {alpha})"),
    **{
        name: _pointwise(name + "({0})")
        for name in ("abs", "exp", "sqrt", "tanh", "sigmoid", "relu", "softsign", "mish")
    },
    "gelu": _gelu,
    "mask": _mask,
    "einsum": _einsum,
    "linear": _linear,
    **{name: _reduction(name) for name in ("sum", "mean", "max", "min", "argmax", "logsumexp")},
    "softmax": _along("softmax"),
    "l2_normalize": _along("l2norm"),
    "batch_norm": _norm,
    "layer_norm": _norm,
    "group_norm": _group_norm,
    "gather": _gather,
    "cumsum": _cumsum,
    "avg_pool1d": _avg_pool,
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "select": _select,
    "concat": _concat,
    "broadcast_to": _broadcast,
    "zeros": _zeros,
}
