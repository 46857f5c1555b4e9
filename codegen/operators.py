"""How each operation is spelled in C++: one entry for every name in `operations.OPERATIONS`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from nautile.codegen.types import CPP, carrier, convert, interval, literal, widest
from nautile.dtypes import DTYPES
from nautile.errors import LoweringError
from nautile.terms import Apply, Cast, Const, Term

__all__ = ["SPELLINGS", "operand_kinds", "spell"]


class Style(Protocol):
    """What an entry may ask of the printer."""

    precise: bool
    tanh_approx: bool


Spelling = Callable[[Sequence[str], str, Style, Apply], str]


def spell(term: Term, inner: Sequence[str], types: Sequence[str], style: Style) -> str:
    """One node over the texts of its children, which have the given element types."""

    if isinstance(term, Cast):
        return _cast(inner[0], types[0], term.dtype)
    if not isinstance(term, Apply):
        raise LoweringError(f"{type(term).__name__} is not pointwise")
    kind = operand_kinds(term.operation, types)
    texts = [convert(t, s, k) for t, s, k in zip(inner, types, kind, strict=True)]
    for i, (argument, k) in enumerate(zip(term.arguments, kind, strict=True)):
        if isinstance(argument, Const) and k == "f64":  # with all its digits
            texts[i] = literal(float(argument.value), k)
    return SPELLINGS[term.operation](texts, kind[-1], style, term)


def operand_kinds(operation: str, types: Sequence[str]) -> list[str]:
    """The carrier that each operand is brought to."""
    if operation in ("and", "or", "not"):
        return ["bool"] * len(types)
    if operation == "where":
        return ["bool", *[widest(*types[1:])] * 2]
    if operation in ("add", "sub", "mul", "neg", "abs", "sign", "floordiv", "mod"):
        return [widest("i32", *types)] * len(types)
    if operation in ("max", "min", "lt", "le", "gt", "ge", "eq", "ne"):
        return [widest(*types)] * len(types)
    return [widest("f32", *types)] * len(types)


def _cast(text: str, source: str, target: str) -> str:

    if target in ("bf16", "f16", "tf32", "f8e4m3", "f8e5m2"):
        if source == target:
            return text
        name = "nt_tf32_of_f32" if target == "tf32" else f"nt_round_{target}"
        return f"({name}({convert(text, source, 'f32')}))"
    if target == "i8":
        return text if source == "i8" else f"((int)(signed char){_to_int(text, source)})"
    if DTYPES[target].kind == "integer" and DTYPES[source].kind == "float":
        return f"(({CPP[target]}){text})"
    return convert(text, source, target)


def _to_int(text: str, source: str) -> str:
    return text if carrier(source) in ("i32", "i64", "bool") else f"(int){text}"


def _infix(symbol: str) -> Spelling:
    return lambda a, kind, style, term: f"({a[0]} {symbol} {a[1]})"


def _call(f32: str, f64: str = "", fast: str = "", integer: str = "") -> Spelling:
    """A function by carrier: accurate f32, f64, its fast form, and one for integers."""

    def entry(a: Sequence[str], kind: str, style: Style, term: Apply) -> str:
        name = {"f32": f32 if style.precise or not fast else fast, "f64": f64 or f32}.get(kind)
        if kind == "bool":
            a = [f"(int){x}" for x in a]
        return f"({name or integer}({', '.join(a)}))"

    return entry


def _floordiv(a: Sequence[str], kind: str, style: Style, term: Apply) -> str:
    if kind in ("i32", "i64"):
        symbol = _plain(term)
        return f"({a[0]} / {a[1]})" if symbol else f"(nt_floordiv_int<{CPP[kind]}>({a[0]}, {a[1]}))"
    return f"({'nt_floordiv' if kind == 'f32' else 'nt_floordiv_f64'}({a[0]}, {a[1]}))"


def _mod(a: Sequence[str], kind: str, style: Style, term: Apply) -> str:
    if kind in ("i32", "i64"):
        symbol = _plain(term)
        return f"({a[0]} % {a[1]})" if symbol else f"(nt_mod_int<{CPP[kind]}>({a[0]}, {a[1]}))"
    return f"({'nt_mod' if kind == 'f32' else 'nt_mod_f64'}({a[0]}, {a[1]}))"


def _plain(term: Apply) -> bool:
    """Whether C++'s truncating division agrees: dividend not negative, divisor positive."""
    a, b = (interval(x) for x in term.arguments)
    return a is not None and b is not None and a[0] >= 0 and b[0] > 0


def _div(a: Sequence[str], kind: str, style: Style, term: Apply) -> str:
    if kind == "f64" or style.precise:
        return f"({a[0]} / {a[1]})"
    divisor = term.arguments[1]
    if isinstance(divisor, Const) and divisor.value != 0:
        return f"({a[0]} * {literal(1.0 / float(divisor.value), 'f32')})"
    return f"(nt_div({a[0]}, {a[1]}))"


_POWERS = {
    2: "({0} * {0})",
    3: "({0} * {0} * {0})",
    4: "(({0} * {0}) * ({0} * {0}))",
    1: "({0})",
    -1: "({1} / {0})",
}


def _pow(a: Sequence[str], kind: str, style: Style, term: Apply) -> str:
    exponent = term.arguments[1]
    simple = a[0].replace("_", "").isalnum()
    if isinstance(exponent, Const) and exponent.value in _POWERS and simple:
        return _POWERS[int(exponent.value)].format(a[0], "1.0f" if kind == "f32" else "1.0")
    return f"({'powf' if kind == 'f32' else 'pow'}({a[0]}, {a[1]}))"


def _abs(a: Sequence[str], kind: str, style: Style, term: Apply) -> str:
    if kind in ("f32", "f64"):
        return f"({'fabsf' if kind == 'f32' else 'fabs'}({a[0]}))"
    return f"({a[0]} < 0 ? -{a[0]} : {a[0]})"


def _tanh(a: Sequence[str], kind: str, style: Style, term: Apply) -> str:
    if kind == "f64":
        return f"(tanh({a[0]}))"
    fast = "nt_tanh_approx" if style.tanh_approx else "nt_tanh_fast"
    return f"({'tanhf' if style.precise else fast}({a[0]}))"


SPELLINGS: dict[str, Spelling] = {
    "or": _infix("||"),
    "and": _infix("&&"),
    "not": lambda a, kind, style, term: f"(!{a[0]})",
    "lt": _infix("<"),
    "le": _infix("<="),
    "gt": _infix(">"),
    "ge": _infix(">="),
    "eq": _infix("=="),
    "ne": _infix("!="),
    "add": _infix("+"),
    "sub": _infix("-"),
    "mul": _infix("*"),
    "div": _div,
    "floordiv": _floordiv,
    "mod": _mod,
    "neg": lambda a, kind, style, term: f"(-{a[0]})",
    "pow": _pow,
    "abs": _abs,
    "sign": _call("nt_sign", "nt_sign_f64", integer="nt_sign_int"),
    "max": _call("nt_max", "nt_max_f64", integer="nt_max_int"),
    "min": _call("nt_min", "nt_min_f64", integer="nt_min_int"),
    "exp": _call("expf", "exp", "nt_exp_fast"),
    "exp2": _call("exp2f", "exp2", "nt_ex2"),
    "log": _call("logf", "log", "nt_log_fast"),
    "log2": _call("log2f", "log2", "nt_lg2"),
    "sqrt": _call("sqrtf", "sqrt", "nt_sqrt_fast"),
    "rsqrt": _call("rsqrtf", "rsqrt"),
    "tanh": _tanh,
    "erf": _call("erff", "erf", "nt_erf_fast"),
    "sigmoid": _call("nt_sigmoid", "nt_sigmoid_f64", "nt_sigmoid_fast"),
    "sin": _call("sinf", "sin", "nt_sin_fast"),
    "cos": _call("cosf", "cos", "nt_cos_fast"),
    "floor": _call("floorf", "floor"),
    "round": _call("rintf", "rint"),
    "where": lambda a, kind, style, term: f"({a[0]} ? {a[1]} : {a[2]})",
}
