"""Wrong plans made from right ones: an online sum's repair, offset, guards and running values
changed one at a time.

```
mutant ::= repair dropped | repair upside down | repair's sign | guard dropped
         | offset dropped | offset upside down | offset's sign
         | body before its position | body of final values
merge  ::= repair dropped | repair's sign | guard dropped | offset dropped | offset's sign
```

"Upside down" swaps old and new running values. A guard is a `where` of a repair or an offset that
is no part of a carrier; without it, its second branch stands alone. A merge is a sum over chunks of
states that were repaired and moved by an offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from nautile.extract.kernel import Kernel, Part, Plan
from nautile.terms import (
    Apply,
    Before,
    Const,
    Load,
    Online,
    Output,
    Reduce,
    Running,
    Term,
    apply,
    children,
    rebuild,
    transform,
    walk,
)

__all__ = ["merge_mutants", "mutants", "online_sums", "replaced"]

Change = Callable[[Term], Term]


def mutants(plan: Plan) -> Iterator[tuple[str, Plan]]:
    """Every mutant of every online sum of a plan, by the sum's number and what was changed."""
    for number, online in enumerate(online_sums(plan)):
        for name, wrong in _wrong(online):
            if wrong != online:
                yield f"{number}: {name}", replaced(plan, online, wrong)


def merge_mutants(plan: Plan) -> Iterator[tuple[str, Plan]]:
    """Every mutant of every sum over chunks in the last kernel of a split plan."""
    merges = [t for t in walk(*(o.term for o in plan.kernels[-1].outputs)) if _merges(t)]
    for number, merge in enumerate(merges):
        assert isinstance(merge, Reduce)
        for name, wrong in _wrong_merge(merge.body):
            if wrong != merge.body:
                yield (
                    f"{number}: {name}",
                    replaced(plan, merge, Reduce(merge.monoid, merge.axis, wrong)),
                )


def _merges(term: Term) -> bool:
    """Whether a term sums states that were repaired or moved, not as they are stored."""
    return isinstance(term, Reduce) and term.monoid == "sum" and not isinstance(term.body, Load)


def _wrong_merge(body: Term) -> Iterator[tuple[str, Term]]:
    moved, offset = body, None
    if isinstance(body, Apply) and body.operation == "add":
        moved, offset = body.arguments
        yield "offset dropped", moved
        yield "offset's sign", apply("sub", moved, offset)
    if isinstance(moved, Apply) and moved.operation == "where":
        state, _ = moved.arguments[2].arguments  # type: ignore[attr-defined]
        yield "repair dropped", state if offset is None else apply("add", state, offset)
    yield "repair's sign", outside(body, _negated_exponent)
    for number, guard in enumerate(_guards(body)):
        bare = outside(body, lambda t, g=guard: g.arguments[2] if t is g else t)  # type: ignore[misc]
        yield f"guard {number} dropped", bare


def online_sums(plan: Plan) -> list[Online]:
    """The distinct online sums of a plan, inner ones first."""
    terms = (o.term for k in plan.kernels for o in k.outputs)
    return [t for t in walk(*terms) if isinstance(t, Online)]


def replaced(plan: Plan, old: Term, new: Term) -> Plan:
    """The plan with one term in place of another, wherever it stands."""

    def change(term: Term) -> Term:
        return transform(term, lambda t: new if t is old else t)

    kernels = tuple(_kernel(k, change) for k in plan.kernels)
    return replace(plan, kernels=kernels)


def _kernel(kernel: Kernel, change: Change) -> Kernel:
    def part(p: Part) -> Part:
        outputs = tuple(Output(o.buffer, o.axes, change(o.term)) for o in p.outputs)
        return replace(p, outputs=outputs)

    return replace(kernel, parts=tuple(part(p) for p in kernel.parts))


def _wrong(online: Online) -> Iterator[tuple[str, Term]]:
    axis, repair, body, offset = online.axis, online.repair, online.body, online.offset
    yield "repair dropped", Online(axis, Const(1.0), body, offset)
    yield "repair upside down", Online(axis, outside(repair, _swapped), body, offset)
    yield "repair's sign", Online(axis, outside(repair, _negated_exponent), body, offset)
    for number, guard in enumerate(_guards(repair)):
        bare = outside(repair, lambda t, g=guard: g.arguments[2] if t is g else t)  # type: ignore[misc]
        yield f"guard {number}{_of(guard)} of the repair dropped", Online(axis, bare, body, offset)
    yield "body before its position", Online(axis, repair, outside(body, _before), offset)
    yield "body of final values", Online(axis, repair, outside(body, _final), offset)
    if offset is None:
        return
    yield "offset dropped", Online(axis, repair, body)
    yield "offset upside down", Online(axis, repair, body, outside(offset, _swapped))
    yield "offset's sign", Online(axis, repair, body, apply("neg", offset))
    for number, guard in enumerate(_guards(offset)):
        bare = outside(offset, lambda t, g=guard: g.arguments[2] if t is g else t)  # type: ignore[misc]
        yield f"guard {number}{_of(guard)} of the offset dropped", Online(axis, repair, body, bare)


def outside(root: Term, change: Change) -> Term:
    """`change` applied to every subterm that is no part of a carrier, and to carriers' moments."""
    if isinstance(root, (Running, Before)):
        return change(root)
    rebuilt = rebuild(root, tuple(outside(c, change) for c in children(root)))
    return change(rebuilt) if rebuilt is not root else change(root)


def _guards(root: Term) -> list[Apply]:
    found: dict[Apply, None] = {}

    def look(term: Term) -> Term:
        if isinstance(term, Apply) and term.operation == "where":
            found[term] = None
        return term

    outside(root, look)
    return list(found)


def _of(guard: Apply) -> str:
    """Which running values a guard looks at."""
    found: set[str] = set()

    def look(term: Term) -> Term:
        if isinstance(term, (Running, Before)):
            found.add("new" if isinstance(term, Running) else "old")
        return term

    outside(guard.arguments[0], look)
    return f" ({' and '.join(sorted(found))})"


def _swapped(term: Term) -> Term:
    match term:
        case Before(reduction):
            return Running(reduction)
        case Running(reduction):
            return Before(reduction)
    return term


def _before(term: Term) -> Term:
    return Before(term.reduction) if isinstance(term, Running) else term


def _final(term: Term) -> Term:
    return term.reduction if isinstance(term, Running) else term


def _negated_exponent(term: Term) -> Term:
    if isinstance(term, Apply) and term.operation in ("exp", "exp2"):
        return apply(term.operation, apply("neg", *term.arguments))
    return term
