"""Counterexamples as data for people and scripts, and laws evaluated at given values.

```
counterexample ::= {"type": f32 | f64 | fractions | mod 2147483647, "method",
                    "extents": {axis: n}, "values": {name: value}, "at": {axis: i}, "left", "right",
                    "reproduce": one line of shell,
                    "carriers": {name: [max | min | mean, axis]}, "blocks": {axis: ends}}
value          ::= number | {"axes": [axis], "data": nested lists of numbers}
number         ::= as in JSON, or "NaN", "inf", "-inf", "-0.0"
```
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nautile.errors import InputError

from .exactly import PRIME, exact_sides
from .instance import Instance, axis_names, instance_of
from .law import Rule
from .parser import parse
from .setting import Chance, Setting, Unsupported, extents_of
from .shrink import Refutation
from .trials import Method, block_sides, sides
from .values import Array, meet

__all__ = ["counterexample", "evaluate"]


def counterexample(rule: Rule, method: Method, refutation: Refutation) -> dict[str, Any]:
    """The object that describes a refutation."""
    instance, values, found = refutation
    setting = instance.setting
    used = {a for n in values for a in setting.axes.get(n, ())} | set(found.at)
    own = _own_axes(instance) | used | {n for n in setting.extents if n[0].isupper()}
    shown = {n: _value(instance, n, v) for n, v in values.items()}
    shown |= {n: shown[twin] for n, twin in setting.twins.items()}
    result: dict[str, Any] = {
        "type": method.precision,
        "method": method.name,
        "extents": {a: e for a, e in setting.extents.items() if a in own},
        "values": shown,
        "at": found.at,
        "left": _number(found.left),
        "right": _number(found.right),
    }
    if setting.carriers:
        result["carriers"] = {n: list(c) for n, c in setting.carriers.items()}
    if method.forward:
        result["blocks"] = dict(setting.ends)
    result["reproduce"] = _reproduce(rule, result)
    return result


def _own_axes(instance: Instance) -> set[str]:
    outer = {"outer_p", "outer_q", "stream"}
    named = set(axis_names(instance.rule)) - outer
    return named | {s for _, s in instance.setting.carriers.values()}


def _value(instance: Instance, name: str, value: Array) -> Any:
    axes = [c.axis.family for c in instance.loads[name].coordinates]  # type: ignore[attr-defined]
    data = _listed(value.tolist())
    return {"axes": axes, "data": data} if axes else data


def _listed(data: Any) -> Any:
    return [_listed(d) for d in data] if isinstance(data, list) else _number(data)


def _number(x: float | int | bool) -> float | int | bool | str:
    """A number as JSON can hold it."""
    if isinstance(x, float) and not math.isfinite(x):
        return "NaN" if x != x else "inf" if x > 0 else "-inf"
    return "-0.0" if isinstance(x, float) and x == 0 and math.copysign(1, x) < 0 else x


def _reproduce(rule: Rule, shown: Mapping[str, Any]) -> str:
    """A command that prints both sides at the values."""
    values = {
        n: (",".join(v["axes"]), v["data"]) if isinstance(v, dict) else v
        for n, v in shown["values"].items()
    }
    more = f", {shown['type']!r}"
    given = {a for v in shown["values"].values() if isinstance(v, dict) for a in v["axes"]}
    extents = {a: e for a, e in shown["extents"].items() if a not in given}
    more += f", extents={extents!r}" if extents else ""
    for name in ("carriers", "blocks"):
        more += f", {name}={shown[name]!r}" if shown.get(name) else ""
    call = f"rules.evaluate({_law(rule)!r}, {values!r}{more})"
    code = f"from nautile import rules; print({call})"
    plain = not any(c in code for c in '"$`\\!')
    return f'python -c "{code}"' if plain else f"python -c {shlex.quote(code)}"


def _law(rule: Rule) -> str:
    return f"{rule.numerics}: {rule.text}"


def evaluate(
    law: str | Rule,
    values: Mapping[str, Any],
    precision: str = "f64",
    *,
    extents: Mapping[str, int] | None = None,
    carriers: Mapping[str, Sequence[str]] | None = None,
    blocks: Mapping[str, Sequence[int]] | None = None,
) -> tuple[Any, Any]:
    """Both sides of a law at given values, over the axes that either has free.

    `law` is a rule, or its text behind its class: "real: sum[j](a) >> a, j not in a". A value is a
    number or (axes, nested lists): ("j,k", [[1, 2], [3, 4]]); strings such as "NaN" are numbers.
    With `blocks` streams are taken block by block. Raises InputError for values that do not fit.
    """
    rule = law if isinstance(law, Rule) else _parsed(law)
    tensors = {n: _tensor(n, v) for n, v in values.items()}
    setting = _setting(rule, tensors, extents or {})
    setting.carriers = {n: (c[0], c[1]) for n, c in (carriers or {}).items()}
    setting.ends = {a: list(e) for a, e in (blocks or {}).items()}
    try:
        instance = instance_of(rule, setting, forward=blocks is not None)
    except (Unsupported, KeyError) as reason:
        raise InputError(f"the values do not fit the law: {reason}") from None
    arrays = _typed(instance, tensors)
    if precision in ("fractions", "mod 2147483647"):
        left, right, _, _ = exact_sides(instance, arrays, None if precision[0] == "f" else PRIME)
    elif blocks is None:
        left, right = sides(instance, arrays, precision)
    else:
        left, right = block_sides(instance, arrays)
    return left.tolist(), right.tolist()


def _parsed(law: str) -> Rule:
    numerics, _, text = law.partition(":")
    if not text or not numerics.strip().isidentifier():
        raise InputError("a law stands behind its class: 'real: a + 0 >> a'")
    (rule,) = parse(f"with {numerics.strip()}:\n    law = {text.strip()}\n")
    return rule


def _tensor(name: str, value: Any) -> tuple[tuple[str, ...], Array]:
    axes, data = value if isinstance(value, tuple) else ("", value)
    array = np.array(data)
    if array.dtype.kind not in "biuf":
        array = np.array(data, dtype=object).astype(np.float64)
    names = tuple(filter(None, (a.strip() for a in axes.split(","))))
    if array.ndim != len(names):
        raise InputError(
            f"{name} has {array.ndim} dimensions and axes {', '.join(names) or 'none'}"
        )
    return names, array


def _setting(
    rule: Rule, tensors: Mapping[str, tuple[tuple[str, ...], Array]], extents: Mapping[str, int]
) -> Setting:
    source = Chance(np.random.default_rng(0))
    found = dict.fromkeys(axis_names(rule), 1)
    found |= {n: 1 for n in extents_of(rule, axis_names(rule), source, None) if n not in found}
    found |= dict(extents)
    for names, array in tensors.values():
        found |= dict(zip(names, array.shape, strict=True))
    return Setting(source, found, axes={n: frozenset(names) for n, (names, _) in tensors.items()})


def _typed(
    instance: Instance, tensors: Mapping[str, tuple[tuple[str, ...], Array]]
) -> dict[str, Array]:
    """The values in the order of the instance's axes and in its types, as its conditions ask."""
    found: dict[str, Array] = {}
    for name, load in instance.loads.items():
        if name not in tensors:
            raise InputError(f"no value for {name}")
        names, array = tensors[name]
        own = [c.axis.family for c in load.coordinates]  # type: ignore[attr-defined]
        if set(own) != set(names):
            raise InputError(f"{name} is over {', '.join(own) or 'no axes'}")
        kind = {"bool": np.bool_, "i64": np.int64, "f64": np.float64}.get(load.buffer.dtype)
        with np.errstate(all="ignore"):
            moved: Array = np.transpose(array, [names.index(a) for a in own])
            found[name] = moved.astype(kind or np.float32)
    met = meet(instance, found)
    wrong = [n for n, v in found.items() if not _same(v, met[n])]
    if wrong:
        raise InputError(f"the value of {wrong[0]} does not meet the law's conditions")
    return found


def _same(one: Array, two: Array) -> bool:
    return np.array_equal(one, two, equal_nan=one.dtype.kind == "f")
