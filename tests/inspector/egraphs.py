"""E-graphs for tests: real ones, one with hostile names, and synthetic ones of any size."""

from __future__ import annotations

import random
from functools import cache
from importlib import resources

from nautile import lang, stages
from nautile.options import Options
from nautile.snapshot import Node, Report, Snapshot
from nautile.stages import Optimization
from nautile.terms import Axis, Buffer, Index, Load

__all__ = ["HOSTILE", "chosen", "hostile", "synthetic"]

HOSTILE = (
    '</script><img src=x onerror="document.title=1">',
    'a"];}\\" -> "b\\',
    "&lt;b&gt; <b> <![CDATA[ ]]> \\N \\G \\l",
    "line one\nline two\ttab",
    "\u202eright to left\u202c",
    "nul\x00bell\x07",
    "x" * 10_000,
)


@cache
def chosen(example: str, numerics: str = "real") -> Optimization:
    """The first program of an example, saturated and chosen."""
    text = (resources.files("nautile.examples") / f"{example}.nau").read_text()
    result = Optimization(lang.parse(text)[0], Options(numerics=numerics))
    stages.saturate(result)
    stages.choose(result)
    return result


def hostile() -> Snapshot:
    """A sum of tensors whose names, axes, rules and types are of HOSTILE."""
    axes = tuple(Axis(name, 0, 4) for name in HOSTILE)
    classes: dict[int, tuple[Node, ...]] = {}
    for i, (name, axis) in enumerate(zip(HOSTILE, axes, strict=True)):
        load = Load(Buffer(name, (4,), "f32"), (Index(axis),))
        classes[i] = (Node("load", load),)
    n = len(HOSTILE)
    for i in range(n):
        below = (i, n + i - 1) if i else (0, 0)
        classes[n + i] = (Node("apply", "add", below), Node("reduce", ("sum", axes[i]), (i,)))
    made = {n + i: (name,) for i, name in enumerate(HOSTILE)}
    free = {c: (1 << (c % n)) for c in classes}
    dtype = dict(zip(classes, [*HOSTILE, *HOSTILE], strict=True))
    return Snapshot(classes, axes, free, dtype, (2 * n - 1,), made, {}, _report(2 * n))


def synthetic(nodes: int, seed: int = 0) -> Snapshot:
    """A snapshot of about `nodes` e-nodes: sums and products of each other in many orders, as rules
    of associativity and commutativity leave them, with ties (classes that hold themselves)."""
    pick = random.Random(seed)
    axes = tuple(Axis(name, 0, 2 ** (i + 2)) for i, name in enumerate("bhts"))
    leaves = [
        Node("load", Load(Buffer(f"x{i}", (axes[i % 4].extent,), "f32"), (Index(axes[i % 4]),)))
        for i in range(64)
    ]
    classes: dict[int, tuple[Node, ...]] = {i: (leaf,) for i, leaf in enumerate(leaves)}
    free = {i: 1 << (i % 4) for i in classes}
    made: dict[int, tuple[str, ...]] = {}
    total = len(leaves)
    while total < nodes:
        c = len(classes)
        found: dict[Node, None] = {}
        for _ in range(pick.choice([1, 2, 2, 3, 5, 8, 40 if c % 97 == 0 else 3])):
            near = [max(0, c - 1 - int(pick.expovariate(1 / 40))) for _ in range(2)]
            operation = pick.choice(["add", "mul", "sub", "max", "exp"])
            children = (near[0],) if operation == "exp" else (near[0], near[1])
            found[Node("apply", operation, children)] = None
            if operation == "mul":
                found[Node("apply", "mul", (near[1], near[0]))] = None
        if c % 50 == 0:
            found[Node("apply", "add", (c, c - 1))] = None
        classes[c] = tuple(found)
        free[c] = pick.randrange(16)
        made[c] = (pick.choice(["swap_mul", "mul_assoc", "factor_sum", "add_assoc"]),)
        total += len(found)
    dtype = dict.fromkeys(classes, "f32")
    roots = (len(classes) - 1,)
    source = {c: ns[0] for c, ns in classes.items() if c % 3 == 0}
    return Snapshot(classes, axes, free, dtype, roots, made, source, _report(total))


def _report(rows: int) -> Report:
    return Report("rows", rows, 3, 0.5, {"swap_mul": 7})
