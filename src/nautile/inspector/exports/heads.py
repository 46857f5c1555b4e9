"""How an e-node is written: its head, and what its arguments need around them.

```
Head ::= atom(text, precedence) | call(text) | prefix(text, own, argument)
       | infix(text, own, left, right)
```

A reader needs the heads and the children alone to write any term of an e-graph as `lang.show_term`
writes it, so that one that is no Python (the page) has no table of operations of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nautile.lang import show_term
from nautile.lang.printer import precedences
from nautile.operations import OPERATIONS
from nautile.snapshot import Node, term_of
from nautile.terms import Axis, Index, Load, walk

__all__ = ["Head", "Text", "Uses", "head_of", "length", "uses_of", "written"]

_ATOM = 100
_NEGATIVE = 7  # as strong as a negation binds


@dataclass(frozen=True, slots=True)
class Head:
    """`form` is atom, call, prefix or infix; `own` tells how strongly the whole binds, `left` and
    `right` what its first and its last argument must bind with to go without parentheses."""

    text: str
    form: str
    own: int = _ATOM
    left: int = 0
    right: int = 0


@dataclass(frozen=True, slots=True)
class Text:
    """Text of a term and how strongly it binds."""

    text: str
    own: int = _ATOM

    def within(self, precedence: int) -> str:
        """The text, in parentheses where it binds more weakly."""
        return self.text if self.own >= precedence else f"({self.text})"


@dataclass(frozen=True, slots=True)
class Uses:
    """Of the axes of a term, as bitmasks: those that stand alone as a coordinate, and those of them
    whose extent is not that of the dimension there. A binder of the former and not of the latter
    prints without its extent."""

    direct: int = 0
    odd: int = 0

    def without(self, bit: int) -> Uses:
        """The same outside a binder."""
        return Uses(self.direct & ~bit, self.odd & ~bit)

    @staticmethod
    def of_all(uses: Iterable[Uses]) -> Uses:
        """Those of several terms together."""
        direct = odd = 0
        for use in uses:
            direct, odd = direct | use.direct, odd | use.odd
        return Uses(direct, odd)


def uses_of(load: Load, axes: Sequence[Axis]) -> Uses:
    """The axes that the coordinates of a load, and of loads inside them, are."""
    bits = {axis: 1 << i for i, axis in enumerate(axes)}
    direct = odd = 0
    for term in walk(load):
        if isinstance(term, Load):
            for place, extent in zip(term.coordinates, term.buffer.shape, strict=True):
                if isinstance(place, Index):
                    bit = bits.get(place.axis, 0)
                    direct |= bit
                    odd |= bit if place.axis.extent != extent else 0
    return Uses(direct, odd)


def head_of(node: Node, told: bool = True) -> Head:
    """The head of a node; `told` says whether a direct use in its body tells a binder's extent."""
    match node.kind:
        case "const":
            text = repr(node.payload)
            return Head(text, "atom", _NEGATIVE if text.startswith("-") else _ATOM)
        case "index" | "load":
            return Head(show_term(term_of(node, ())), "atom")
        case "apply":
            return _operation(node.payload)
        case "cast":
            return Head(str(node.payload), "call")
        case "reduce":
            monoid, axis = node.payload
            return Head(f"{monoid}[{axis.name if told else f'{axis.name}: {axis.extent}'}]", "call")
    return Head(f"{node.kind}[{node.payload.name}]", "call")


def _operation(name: str) -> Head:
    operation = OPERATIONS[name]
    if not operation.infix:
        return Head(name, "call")
    form = "prefix" if operation.arity == 1 else "infix"
    space = " " if form == "prefix" and operation.infix.isalpha() else ""
    return Head(operation.infix + space, form, *precedences(name))


def written(head: Head, parts: Sequence[Text]) -> str:
    """The head over its arguments' texts."""
    match head.form:
        case "atom":
            return head.text
        case "prefix":
            return head.text + parts[0].within(head.left)
        case "infix":
            return f"{parts[0].within(head.left)} {head.text} {parts[1].within(head.right)}"
    return f"{head.text}({', '.join(p.text for p in parts)})"


def length(head: Head, parts: Sequence[tuple[int, int]]) -> int:
    """How long `written` is, given the arguments' lengths and how strongly each binds."""
    if head.form == "atom":
        return len(head.text)
    if head.form == "call":
        return len(head.text) + 2 * len(parts) + sum(size for size, _ in parts)
    needs = (head.left, head.right)
    inner = sum(n if own >= least else n + 2 for (n, own), least in zip(parts, needs, strict=False))
    return len(head.text) + inner + (2 if head.form == "infix" else 0)
