"""Random programs as text, biased towards reductions that depend on reductions.

```
program ::= inputs, definitions (1..6), one or two results
definition ::= carrier    c[n] = max[m](row)                 also min, sum, mean, argmax, any, ..
             | dependent  l[n] = sum[m](body of row, carriers and other rows)
             | product    o[n,d] = sum[m](body * v[m,d])     a contraction with the stream
             | row        p[n,m] = body                      stored, or read by later definitions
             | scalar     z[n] = function of carriers and sums
             | named      an operation of the prelude along m
```

A row varies along the stream (one size, walked by `m`), a scalar does not. Bodies are templates of
what is known to fuse (exponentials of differences, squares, products and quotients of both) and of
what is not; holes are rows, scalars, masks and other bodies, so that chains, several carriers,
empty and fully masked rows, gathers, casts and unguarded quotients all come together. A program is
a function of Hypothesis' choices alone: equal seeds give equal programs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

from . import random_templates as t

__all__ = ["programs"]

Scope = dict[str, str]  # the letter that walks a size
Dims = tuple[str, ...]


@st.composite
def programs(draw: st.DrawFn, most: int = 5) -> str:
    """One program, `def f(..)`, in the language, of at most so many definitions."""
    sizes = {n: draw(st.sampled_from(t.EXTENTS[n])) for n in t.SIZES}
    sketch = _Sketch(draw, sizes)
    for _ in range(min(most, draw(st.sampled_from((1, 2, 2, 3, 3, 3, 4, 4, 5))))):
        sketch.define()
    return sketch.text()


@dataclass
class _Sketch:
    """A program in the making: inputs and definitions by name, with dimensions and kind (a float
    type, "mask", "length", or "label:M" for positions along M)."""

    draw: st.DrawFn
    sizes: dict[str, int]
    inputs: dict[str, tuple[Dims, str]] = field(default_factory=dict)
    tensors: dict[str, tuple[Dims, str]] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        pick = self.pick
        self.stream = pick(("M",) * 14 + ("N", "D"))
        others = [s for s in t.SIZES if s != self.stream]
        outer: tuple[Dims, ...] = ((others[0],),) * 6 + ((), (others[1],), tuple(others))
        self.outer: Dims = pick(outer)
        self.wide = next((s for s in others if s not in self.outer), None)

    # ---- choices -------------------------------------------------------------------------------

    def pick(self, choices: Sequence):  # type: ignore[no-untyped-def, type-arg]
        return self.draw(st.sampled_from(choices))

    def chance(self, percent: int) -> bool:
        return self.draw(st.integers(0, 99)) < percent

    # ---- definitions ---------------------------------------------------------------------------

    def define(self) -> None:
        scalars = [n for n, t in self.tensors.items() if t[0] == self.outer and _real(t[1])]
        kinds = ["carrier"] * (4 if not scalars else 1) + ["row", "named", "summary", "label"]
        kinds += ["dependent"] * 9 + ["product"] * (4 if self.wide else 0)
        kinds += ["scalar"] * min(2, len(scalars))
        getattr(self, f"_{self.pick(kinds)}")()

    def _carrier(self) -> None:
        reducer = self.pick(t.CARRIERS)
        inside = self.masked if reducer == "max" else self.row
        self._define(self.outer, lambda scope: self._reduced(reducer, scope, inside))

    def _dependent(self) -> None:
        reducer = self.pick(t.REDUCERS)
        self._define(self.outer, lambda scope: self._reduced(reducer, scope, self.body))

    def _product(self) -> None:
        assert self.wide
        self._define((*self.outer, self.wide), self._contraction)

    def _row(self) -> None:
        if self.chance(40):
            self._define((*self.outer, self.stream), self.masked, "low")
        else:
            self._define((*self.outer, self.stream), self._finished)

    def _scalar(self) -> None:
        self._define(self.outer, lambda scope: self._fill(self.pick(t.SCALARS), scope))

    def _named(self) -> None:
        self._define((*self.outer, self.stream), self._operation)

    def _summary(self) -> None:
        self._define(self.outer, self._summarised)

    def _label(self) -> None:
        monoid = self.pick(t.LABELS)
        kind = f"label:{self.stream}" if monoid.startswith("arg") else "mask"

        def body(scope: Scope) -> str:
            inside = self.row if monoid.startswith("arg") else self.mask
            return self._reduced(monoid, scope, inside)

        self._define(self.outer, body, kind)

    def _define(self, dims: Dims, body, kind: str = "f32") -> None:  # type: ignore[no-untyped-def]
        scope = {s: t.LETTERS[s][0] for s in dims}
        text = body(scope)
        name = f"t{len(self.tensors)}"
        left = ", ".join(f"{scope[s]}: {s}" for s in dims)
        self.lines.append(f"{name}[{left}] = {text}" if dims else f"{name} = {text}")
        self.tensors[name] = (dims, kind)

    # ---- expressions ---------------------------------------------------------------------------

    def _reduced(self, monoid: str, scope: Scope, inside) -> str:  # type: ignore[no-untyped-def]
        letter, within = self._opened(scope)
        return f"{monoid}[{letter}: {self.stream}]({inside(within)})"

    def _opened(self, scope: Scope) -> tuple[str, Scope]:
        """A letter of the stream that is free in the scope, and the scope with it."""
        taken = scope.get(self.stream)
        letter = next(c for c in t.LETTERS[self.stream] if c != taken)
        return letter, {**scope, self.stream: letter}

    def _contraction(self, scope: Scope) -> str:
        letter, within = self._opened(scope)
        narrow = {s: c for s, c in within.items() if s != self.wide}
        body = self.body(narrow) if self.chance(80) else self.row(narrow)
        value = self._value(within)
        return f"sum[{letter}: {self.stream}](({body}) * {value})"

    def _value(self, scope: Scope) -> str:
        assert self.wide
        if self.chance(12):  # a gather along the stream
            table = self._input((self.stream, self.wide), self.pick(t.FLOATS))
            label = self._labels(scope)
            return f"{table}[{label}, {scope[self.wide]}]"
        return self._load((self.stream, self.wide), scope)

    def _finished(self, scope: Scope) -> str:
        if self.chance(25):
            return self._fill(self.pick(t.FINISHED), scope)
        return self.body(scope) if self.chance(60) else self._score(scope)

    def _score(self, scope: Scope) -> str:
        """A row made by a contraction with an axis of its own, where one is left."""
        if not self.wide or self.wide in scope or not self.outer:
            return self.row(scope)
        letter = t.LETTERS[self.wide][1]
        within = {**scope, self.wide: letter}
        left = self._load((self.outer[0], self.wide), within)
        right = self._load((self.stream, self.wide), within)
        return f"sum[{letter}: {self.wide}]({left} * {right}) * 0.5"

    def _operation(self, scope: Scope) -> str:
        return self._fill(self.pick(t.NAMED), scope).replace("{i}", scope[self.stream])

    def _summarised(self, scope: Scope) -> str:
        letter, within = self._opened(scope)
        return self._fill(self.pick(t.SUMMARIES), within).replace("{i}", letter)

    def body(self, scope: Scope, depth: int = 2) -> str:
        """A function of rows and scalars that varies along the stream."""
        templates = t.DEPENDENT if self.chance(88) else t.INDEPENDENT
        template = self.pick(templates if depth else t.INDEPENDENT)
        return self._fill(template, scope, depth)

    def row(self, scope: Scope) -> str:
        """A value along the stream: an input, a definition, or a light function of them."""
        if self.chance(55):
            return self._load(self._dims(scope), scope)
        template = self.pick(t.CHOSEN if self.chance(25) else t.ROWS)
        return self._fill(template, scope, 0)

    def masked(self, scope: Scope) -> str:
        """A row that may hold -inf, for a maximum or the argument of an exponential."""
        low = [n for n, (d, k) in self._every().items() if k == "low" and self.stream in d]
        low = [n for n in low if set(self._every()[n][0]) <= set(scope)]
        if low and self.chance(60):
            return self._named_load(self.pick(low), scope)
        if self.chance(50):
            return self.row(scope)
        return self._fill(self.pick(t.MASKED), scope, 0)

    def _dims(self, scope: Scope) -> Dims:
        own = tuple(s for s in (*self.outer, self.stream) if s in scope)
        return own if self.chance(85) else (self.stream,)

    def scalar(self, scope: Scope) -> str:
        """A value that the stream does not walk: mostly a reduction over it."""
        rest = {s: c for s, c in scope.items() if s != self.stream}
        known = [n for n, (d, k) in self.tensors.items() if set(d) <= set(rest) and _real(k)]
        if known and self.chance(75):
            return self._named_load(self.pick(known), rest)
        if self.chance(12):
            return self._load(tuple(s for s in self.outer if s in rest), rest)
        letter, within = self._opened(scope)
        reducer = self.pick(t.CARRIERS)
        inside = self.masked(within) if reducer == "max" else self.row(within)
        return f"{reducer}[{letter}: {self.stream}]({inside})"

    def mask(self, scope: Scope) -> str:
        """A truth value along the stream; some are empty, some full."""
        i = scope[self.stream]
        o = next((scope[s] for s in self.outer if s in scope), "1")
        kinds = [f"{i} <= {o}"] * 3 + [f"{i} < {o}", f"{i} % 2 == 0", f"{i} // 2 == {o} // 2"]
        kinds += [f"abs({i} - {o}) < 3", f"{i} >= {o} + 2", f"{i} < 0", f"{i} >= 0", f"{i} > 3"]
        kinds += ["tensor"] * 4 + ["length", "length", "compare", "both"]
        kind = self.pick(kinds)
        if kind == "tensor":
            return self._load(self._dims(scope), scope, "mask")
        if kind == "length":
            dims = tuple(s for s in self.outer if s in scope)
            return f"{i} < {self._load(dims, scope, 'length')}"
        if kind == "compare":
            return f"{self._input_load(self._dims(scope), scope)} > {self.pick(t.NUMBERS)}"
        if kind == "both":
            return f"({self.mask(scope)}) and not ({self.mask(scope)})"
        return str(kind)

    def _fill(self, template: str, scope: Scope, depth: int = 1) -> str:
        """The template with its holes filled; equal letters are equal texts."""
        holes = {
            "s": lambda: self._atom(scope, 0),
            "w": lambda: self._atom(scope, 1),
            "e": lambda: f"({self.masked(scope)})" if self.stream in scope else self.scalar(scope),
            "o": lambda: self._load(self._dims(scope), scope, "low"),
            "c": lambda: self.scalar(scope),
            "l": lambda: self.scalar(scope),
            "z": lambda: self._load(tuple(s for s in self.outer if s in scope), scope),
            "v": lambda: self._load((self.stream,), scope),
            "k": lambda: self.pick(t.NUMBERS),
            "q": lambda: self.mask(scope),
        }
        template = self._matched(template, scope)
        for hole, fill in holes.items():
            if f"{{{hole}}}" in template:
                text = fill()
                template = template.replace(f"{{{hole}}}", text)
                template = template.replace(f"{{{hole}'}}", self._walked_again(text, scope))
        while "{b}" in template:
            template = template.replace("{b}", self.body(scope, max(depth - 1, 0)), 1)
        return template

    def _matched(self, template: str, scope: Scope) -> str:
        """The template, at times with the extreme or the mean of its own row as the carrier: what
        is reduced in one pass with it, where that of another row is no bound."""
        if self.stream not in scope or not self.chance(75):
            return template
        for hole, reducers in (("e", ("max",)), ("s", ("mean", "mean", "max", "sum"))):
            if f"{{{hole}}} - {{c}}" in template:
                letter, _ = self._opened(scope)
                own = f"{self.pick(reducers)}[{letter}: {self.stream}]({{{hole}'}})"
                return template.replace("{c}", own)
        return template

    def _walked_again(self, text: str, scope: Scope) -> str:
        """A row's text along the other letter of the stream."""
        if self.stream not in scope:
            return text
        letter, _ = self._opened(scope)
        return re.sub(rf"\b{scope[self.stream]}\b", letter, text)

    def _atom(self, scope: Scope, place: int) -> str:
        if self.stream not in scope:
            return self.scalar(scope)
        if place == 0 and self.chance(25):
            return f"({self.row(scope)})"
        return self._load(self._dims(scope), scope)

    # ---- tensors -------------------------------------------------------------------------------

    def _load(self, dims: Dims, scope: Scope, kind: str = "") -> str:
        """A tensor of these dimensions: one that is known, mostly, or a new input."""
        known = [
            n
            for n, (d, k) in self._every().items()
            if d == dims and (k == kind if kind else _real(k))
        ]
        if known and self.chance(80):
            return self._named_load(self.pick(known), scope)
        return self._named_load(self._input(dims, kind or self.pick(t.FLOATS)), scope)

    def _input_load(self, dims: Dims, scope: Scope) -> str:
        known = [n for n, (d, k) in self.inputs.items() if d == dims and _real(k)]
        name = self.pick(known) if known else self._input(dims, "f32")
        return self._named_load(name, scope)

    def _named_load(self, name: str, scope: Scope) -> str:
        dims = self._every()[name][0]
        return f"{name}[{', '.join(scope[s] for s in dims)}]" if dims else name

    def _input(self, dims: Dims, kind: str) -> str:
        name = f"{'x' if _real(kind) else 'y' if kind == 'low' else 'b'}{len(self.inputs)}"
        self.inputs[name] = (dims, kind)
        return name

    def _labels(self, scope: Scope) -> str:
        """A position along the stream: a label that was computed, or an input of them."""
        kind = f"label:{self.stream}"
        known = [n for n, (d, k) in self._every().items() if k == kind and set(d) <= set(scope)]
        name = self.pick(known) if known and self.chance(70) else self._input((self.stream,), kind)
        return self._named_load(name, scope)

    # ---- text ----------------------------------------------------------------------------------

    def text(self) -> str:
        names = list(self.tensors)
        results = [n for n in names if not self._read(n)][-3:]
        if len(names) > len(results) and self.chance(25):
            results.append(self.pick([n for n in names if n not in results]))
        types = ", ".join(self._result(n) for n in results)
        heads = [f"{n}: {_spelt(k)}{_shape(d)}" for n, (d, k) in self.inputs.items()]
        used = [s for s in t.SIZES if any(s in d for d, _ in self._all()) or self._said(s)]
        heads += ["*", *(f"{s}={self.sizes[s]}" for s in used)] if used else []
        body = "\n".join(f"    {line}" for line in self.lines)
        return f"def f({', '.join(heads)}) -> ({types}):\n{body}\n    return {', '.join(results)}\n"

    def _read(self, name: str) -> bool:
        """Whether another definition reads this one."""
        return any(name in line for line in self.lines if not line.startswith(name))

    def _said(self, size: str) -> bool:
        return any(f": {size}]" in line or f": {size}," in line for line in self.lines)

    def _every(self) -> dict[str, tuple[Dims, str]]:
        return self.inputs | self.tensors

    def _all(self) -> list[tuple[Dims, str]]:
        return [*self.inputs.values(), *self.tensors.values()]

    def _result(self, name: str) -> str:
        dims, kind = self.tensors[name]
        dtype = self.pick(t.RESULTS) if _real(kind) or kind == "low" else _spelt(kind)
        return f"{dtype}{_shape(dims)}"


def _real(kind: str) -> bool:
    return kind in ("f64", "f32", "bf16", "f16")


def _spelt(kind: str) -> str:
    other = {"mask": "bool", "length": "i32", "low": "f32"}
    return other.get(kind, "i32" if kind.startswith("label") else kind)


def _shape(dims: Dims) -> str:
    return f"[{', '.join(dims)}]" if dims else ""
