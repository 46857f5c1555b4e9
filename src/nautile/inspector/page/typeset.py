"""Terms as trees that a page typesets: index notation with its own layout, safe to draw.

```
Tree ::= {"k": kind, "t": text, "c": [Tree], "id": number}
kind ::= "num" | "idx" | "load" | "op" | "call" | "cast" | "fold" | "run" | "before" | "online"
       | "..."
```

`t` is the number, axis, tensor, operator, type or monoid; of a fold, `a` is its axis. `id` tells
apart the subterms of one program that something is linked to. A tree has at most `LIMIT` nodes:
what is beyond stands as "..." with no children, so that a term that shares its parts many times
over cannot grow into a page that does not open.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from nautile.operations import OPERATIONS
from nautile.terms import (
    Apply,
    Before,
    Cast,
    Const,
    Index,
    Load,
    Online,
    Reduce,
    Running,
    Term,
    children,
    walk,
)

__all__ = ["LIMIT", "linked", "tree"]

LIMIT = 300
Tree = dict[str, Any]


def tree(root: Term, ids: Mapping[Term, int], limit: int = LIMIT) -> Tree:
    """The tree of a term, cut breadth first where it would have more than `limit` nodes, so that
    what stands near the root is kept. `ids` gives the number of each linked subterm."""
    made = _node(root, ids)
    waiting, room = [(root, made)], limit - 1
    for term, node in waiting:
        parts = children(term)
        if len(parts) > room:
            node.update(k="...", t="…")
            continue
        room -= len(parts)
        node["c"] = [_node(part, ids) for part in parts]
        waiting.extend(zip(parts, node["c"], strict=True))
    return made


def _node(term: Term, ids: Mapping[Term, int]) -> Tree:
    node = _head(term)
    if term in ids:
        node["id"] = ids[term]
    return node


def _head(term: Term) -> Tree:
    match term:
        case Const(value):
            return {"k": "num", "t": _number(value)}
        case Index(axis):
            return {"k": "idx", "t": axis.name}
        case Load(buffer, _):
            return {"k": "load", "t": buffer.name}
        case Cast(dtype, _):
            return {"k": "cast", "t": dtype}
        case Apply(operation, _):
            infix = OPERATIONS[operation].infix
            return {"k": "op" if infix else "call", "t": infix or operation}
        case Reduce(monoid, axis, _):
            return {"k": "fold", "t": monoid, "a": axis.name}
        case Running():
            return {"k": "run", "t": "running", "a": term.axis.name}
        case Before():
            return {"k": "before", "t": "before", "a": term.axis.name}
        case Online(axis):
            return {"k": "online", "t": "online", "a": axis.name}
    raise TypeError(f"not a term: {term!r}")


def _number(value: bool | int | float) -> str:
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, float):
        return _real(value)
    whole = f"{value:d}" if abs(value) < 10**15 else f"{value:#x}"
    return whole if len(whole) <= 40 else f"{whole[:20]}…"


def _real(value: float) -> str:
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return f"{value:.7g}"


def linked(roots: list[Term]) -> list[Term]:
    """The subterms of all roots that something can be linked to: all but numbers and positions."""
    found = (t for t in walk(*roots) if not isinstance(t, (Const, Index)))
    return list(dict.fromkeys(found))
