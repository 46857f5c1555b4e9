"""Terms as the e-graph has them: binders stay as they are written, running values hold bodies.

`terms.rebuild` makes binders canonical; a rewrite of the e-graph does not. And a running value is
known by what its reduction adds up, not by the reduction's total, so the parts of `Running(r)` are
those of r. Everything here keeps to that.

```
parts(Running(Reduce(monoid, axis, body)))   body
parts(Online(axis, repair, body))            repair, body, 0.0         (as its e-node has three)
parts(any other term)                        its children; none of a Load
```
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from nautile.terms import Apply, Before, Cast, Const, Load, Online, Reduce, Running, Term

__all__ = [
    "build",
    "over",
    "parts",
    "replaced",
    "same_shape",
    "subterms",
    "tree_size",
    "written_in",
]

ZERO = Const(0.0)


def parts(term: Term) -> tuple[Term, ...]:
    """The direct parts of a term that a rule may rewrite."""
    match term:
        case Apply(_, arguments):
            return arguments
        case Cast(_, argument):
            return (argument,)
        case Reduce(_, _, body):
            return (body,)
        case Running(reduction) | Before(reduction):
            return parts(reduction)
        case Online(_, repair, body, offset):
            return (repair, body, ZERO if offset is None else offset)
    return ()


def build(term: Term, new: tuple[Term, ...]) -> Term:
    """The same term over other parts."""
    match term:
        case Apply(operation, _):
            return Apply(operation, new)
        case Cast(dtype, _):
            return Cast(dtype, new[0])
        case Reduce(monoid, axis, _):
            return Reduce(monoid, axis, new[0])
        case Running(reduction):
            return Running(build(reduction, new))
        case Before(reduction):
            return Before(build(reduction, new))
        case Online(axis):
            return Online(axis, *new)
    return term


def subterms(*roots: Term) -> Iterator[Term]:
    """Every distinct subterm once, parts before wholes."""
    seen: set[Term] = set()
    stack: list[tuple[Term, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        term, ready = stack.pop()
        if ready:
            yield term
        elif term not in seen:
            seen.add(term)
            stack.append((term, True))
            stack.extend((p, False) for p in reversed(parts(term)) if p not in seen)


def over(root: Term, step: Callable[[Term], Term]) -> Term:
    """Rebuilt bottom-up, `step` applied to every rebuilt subterm once."""
    done: dict[Term, Term] = {}
    for term in subterms(root):
        done[term] = step(build(term, tuple(done[p] for p in parts(term))))
    return done[root]


def replaced(root: Term, old: Term, new: Term) -> Term:
    """The term with `new` for every occurrence of `old` (none inside `new` itself)."""
    done: dict[Term, Term] = {old: new}
    for term in subterms(root):
        if term not in done:
            inner = parts(term)
            now = tuple(done[p] for p in inner)
            done[term] = term if now == inner else build(term, now)
    return done[root]


def written_in(root: Term, tensors: Mapping[str, Term]) -> Term:
    """The term with tensors replaced by what they hold, where each is read along its own axes."""
    done: dict[Term, Term] = {}

    def visit(top: Term) -> Term:
        for term in subterms(top):
            if term in done:
                continue
            if isinstance(term, Load) and term.buffer.name in tensors:
                done[term] = visit(tensors[term.buffer.name])
            else:
                done[term] = build(term, tuple(done[p] for p in parts(term)))
        return done[top]

    return visit(root)


def same_shape(a: Term, b: Term) -> bool:
    """Whether two terms are one operation over parts that may differ."""
    inner = parts(a)
    return len(inner) == len(parts(b)) and bool(inner) and build(b, inner) is a


def tree_size(root: Term) -> int:
    """Operations, shared ones counted at every use."""
    sizes: dict[Term, int] = {}
    for term in subterms(root):
        sizes[term] = 1 + sum(sizes[p] for p in parts(term))
    return sizes[root]
