"""Random programs as text: every construct of the language over small shapes."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

SIZES = {"N": 4, "M": 6, "K": 2}
INPUTS = {"x": ("N", "M"), "w": ("M", "N"), "v": ("M",), "u": ("N",), "c": ("K", "N", "M")}
UNARY = [
    "exp",
    "exp2",
    "log",
    "log2",
    "sqrt",
    "rsqrt",
    "tanh",
    "erf",
    "sigmoid",
    "sin",
    "cos",
    "abs",
    "floor",
    "round",
    "sign",
    "gelu",
    "silu",
    "relu",
    "bf16",
    "f16",
    "-",
    "+",
]
BINARY = ["+", "-", "*", "/", "**", "//", "%"]
COMPARE = ["<", "<=", ">", ">=", "==", "!="]
NUMBERS = [
    "0.5",
    "2",
    "1e-3",
    "-1.5",
    "inf",
    "-inf",
    "nan",
    "N",
    "M**-0.5",
    "(N // 3)",
    "-0.0",
    "0",
]

Scope = dict[str, str]


@st.composite
def programs(draw: st.DrawFn) -> str:
    """One program with up to four definitions and one or two results."""
    tensors = dict(INPUTS)
    lines = []
    for number in range(draw(st.integers(1, 4))):
        rank = draw(st.integers(0, 2))
        axes = draw(st.permutations(sorted(SIZES)))[:rank]
        names = draw(st.permutations(["i", "j", "t", "s_1", "a"]))[:rank]
        scope = dict(zip(names, axes, strict=True))
        name = f"d{number}"
        left = ", ".join(f"{n}: {size}" for n, size in scope.items())
        body = draw(numbers(tensors, scope, 3))
        lines.append(f"    {name}[{left}] = {body}" if rank else f"    {name} = {body}")
        tensors[name] = tuple(axes)
    results = draw(
        st.lists(
            st.sampled_from([t for t in tensors if t[0] == "d"]),
            min_size=1,
            max_size=2,
            unique=True,
        )
    )
    types = ", ".join(f"bf16[{', '.join(tensors[r])}]" if tensors[r] else "f32" for r in results)
    head = ", ".join(f"{n}: f32[{', '.join(dims)}]" for n, dims in INPUTS.items())
    sizes = ", ".join(f"{n}={v}" for n, v in SIZES.items())
    return "\n".join(
        [
            f"def f({head}, e: i32[N], p: bool[M], eps: f32 = 1e-6, *, {sizes}) -> ({types}):",
            *lines,
            f"    return {', '.join(results)}",
        ]
    )


def _index(draw: st.DrawFn, scope: Scope, size: str) -> str:
    """An integer expression that stays in the dimension."""
    extent = SIZES[size]
    fitting = [n for n, s in scope.items() if SIZES[s] <= extent]
    choices = ["0", str(extent - 1)] + fitting * 4
    choices += [f"({n} + {draw(st.integers(0, 9))}) % {size}" for n in scope]
    choices += [f"{n} // 2" for n in fitting]
    choices += [f"max({n} - 1, 0)" for n in fitting]
    if size == "K":
        choices += [f"{n} % 2" for n in scope]
    if scope:
        choices += [f"min({n} + 1, {extent - 1})" for n in scope]
    return draw(st.sampled_from(choices))


def _load(draw: st.DrawFn, tensors: dict[str, Sequence[str]], scope: Scope) -> str:
    name = draw(st.sampled_from(sorted(tensors)))
    dims = tensors[name]
    if not dims:
        return name
    return f"{name}[{', '.join(_index(draw, scope, d) for d in dims)}]"


@st.composite
def numbers(draw: st.DrawFn, tensors: dict[str, Sequence[str]], scope: Scope, depth: int) -> str:
    """A number-valued expression."""
    if depth == 0:
        kind = draw(st.integers(0, 4))
        if kind == 0:
            return draw(st.sampled_from([*NUMBERS, "eps"]))
        if kind == 1 and scope:
            return draw(st.sampled_from(sorted(scope)))
        return _load(draw, tensors, scope)

    def inner(more: Scope | None = None) -> str:
        return draw(numbers(tensors, scope | (more or {}), depth - 1))

    kind = draw(st.integers(0, 9))
    if kind <= 2:
        return f"({inner()}) {draw(st.sampled_from(BINARY))} ({inner()})"
    if kind == 3:
        return f"{draw(st.sampled_from(UNARY))}({inner()})"
    if kind == 4:
        return f"where({draw(truths(tensors, scope, depth - 1))}, {inner()}, {inner()})"
    if kind == 5:
        return f"({inner()} if {draw(truths(tensors, scope, depth - 1))} else {inner()})"
    if kind == 6:
        return f"{draw(st.sampled_from(['max', 'min']))}({inner()}, {inner()})"
    size = draw(st.sampled_from(sorted(SIZES)))
    name = draw(st.sampled_from(["i", "k", "t", "e1"]))
    if kind == 7:
        other = draw(st.sampled_from(["logsumexp", "variance"]))
        return f"{other}[{name}: {size}]({inner({name: size})})"
    if kind == 8 and scope:
        kept = draw(st.sampled_from(sorted(scope)))
        return f"softmax[{kept}]({inner()})"
    reducer = draw(st.sampled_from(["sum", "prod", "max", "min", "mean", "argmax", "argmin"]))
    return f"{reducer}[{name}: {size}]({inner({name: size})})"


@st.composite
def truths(draw: st.DrawFn, tensors: dict[str, Sequence[str]], scope: Scope, depth: int) -> str:
    """A truth-valued expression."""
    kind = draw(st.integers(0, 5))
    if kind == 0:
        return f"p[{_index(draw, scope, 'M')}]"
    if kind == 1 and depth > 0:
        joined = draw(st.sampled_from(["and", "or"]))
        left, right = (draw(truths(tensors, scope, depth - 1)) for _ in range(2))
        return f"({left} {joined} {right})"
    if kind == 2 and depth > 0:
        return f"(not {draw(truths(tensors, scope, depth - 1))})"
    if kind == 3 and depth > 0:
        inner = draw(truths(tensors, scope | {"k": "N"}, depth - 1))
        return f"{draw(st.sampled_from(['any', 'all']))}[k: N]({inner})"
    parts = [draw(numbers(tensors, scope, max(depth - 1, 0))) for _ in range(2 + (kind == 4))]
    signs = [draw(st.sampled_from(COMPARE)) for _ in parts[1:]]
    tail = "".join(f" {sign} ({part})" for sign, part in zip(signs, parts[1:], strict=True))
    return f"(({parts[0]}){tail})"
