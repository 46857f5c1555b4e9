"""Whether one kernel can hold a term at all: its body put together node by node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nautile.extract.classes import Classes
from nautile.extract.partial import Partial, combine, leaf
from nautile.snapshot import Node, term_of
from nautile.terms import Term

from .generated import only

__all__ = ["Formed", "extracted", "formed"]


@dataclass(frozen=True, slots=True)
class Formed:
    """The body of a term; or, where no kernel holds it, the class at which it breaks, with the
    bodies of its parts that do stand."""

    body: Partial | None
    at: int | None = None
    text: str = ""


def formed(classes: Classes, nodes: Mapping[int, Node], root: int) -> Formed:
    """The body that computes `root` by these nodes and reads nothing from memory but inputs."""
    own = Classes(
        only(classes.snapshot, nodes),
        classes.outputs,
        classes.device,
        classes.prefix,
        classes.numerics,
        guarded=classes.guarded,
    )
    known: dict[int, Partial] = {}
    stack = [root]
    while stack:
        c = stack[-1]
        if c in own.leaves:
            known[stack.pop()] = leaf(own, c)
            continue
        node = own.nodes[c][0]
        waiting = [k for k in node.children if k not in known]
        if waiting:
            if any(k in stack for k in waiting):
                return Formed(None, c, "it is defined by itself")
            stack += waiting
            continue
        made = combine(own, c, node, {k: known[k] for k in node.children})
        if made is None:
            return Formed(None, c, _why(known, node))
        known[stack.pop()] = made
    return Formed(known[root])


def _why(known: Mapping[int, Partial], node: Node) -> str:
    """In words, what a kernel has no place for."""
    below = [known[k] for k in node.children]
    if node.kind == "reduce" and any(a == node.payload[1] for p in below for a, _ in p.follows):
        return "a running value stands open in it, which an online sum alone can end"
    if node.kind == "online" and any(p.follows for p in below):
        return "its running values are those of different passes"
    return (
        "a kernel with a tensor contraction has room for no other kind of contraction, and for "
        "folds along its depth alone"
    )


def extracted(classes: Classes, choice: Mapping[int, Node], root: int) -> Term | None:
    """The term by which a choice computes a class; what it does not compute is read from memory."""
    known: dict[int, Term] = {}
    stack = [root]
    while stack:
        c = stack[-1]
        node = choice.get(c)
        if node is None:
            known[stack.pop()] = classes.load(c)
            continue
        waiting = [k for k in node.children if k not in known]
        if any(k in stack for k in waiting):
            return None
        if waiting:
            stack += waiting
            continue
        known[stack.pop()] = term_of(node, tuple(known[k] for k in node.children))
    return known[root]
