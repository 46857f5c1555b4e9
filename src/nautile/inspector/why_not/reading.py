"""A term that a question asks about: text of the expression language over a program's own names.

```
Asked ::= expression | name[i, j: J] = expression
```

An expression is what `lang` reads on the right of a line, with `online[s](repair, body[, offset])`,
`running[s](reduction)` and `before[s](reduction)` as `lang.show_term` prints them. An index is
named as the program names it; any other name is an index over the dimension that it walks. The term
comes back over the program's axes, so that it can be looked for in the program's e-graph.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from nautile.errors import InputError, LimitError
from nautile.lang.body import run
from nautile.lang.calls import axis_call, whole_calls
from nautile.lang.expression import Expression, Scope
from nautile.lang.limits import parse_tree
from nautile.lang.module import prelude
from nautile.lang.ranges import Binder, Ranges, bracket
from nautile.lang.session import Frame, Session, Stored, Tensor
from nautile.lang.signature import Signature
from nautile.lang.source import Source
from nautile.terms import (
    Axis,
    Before,
    Index,
    Online,
    Program,
    Reduce,
    Running,
    Term,
    children,
    transform,
    walk,
)

from .naming import Asked, Naming

__all__ = ["LONGEST", "Asked", "read_term"]

LONGEST = 20_000  # characters of a question
NUMBERS = ("inf", "nan")
MOMENTS = ("running", "before")


def read_term(text: str, program: Program) -> Asked:
    """The term that `text` denotes in the program.

    Raises SourceError at the place of a mistake (unknown names come with the nearest known one),
    LimitError for texts that are too long or too deep, InputError for what is no expression.
    """
    if len(text) > LONGEST:
        raise LimitError(f"a question of {len(text)} characters; at most {LONGEST} are read")
    source = Source(" ".join(text.split()), "<question>")
    try:
        target, value = _parsed(source)
        return _read(source, target, value, program)
    except RecursionError:
        raise LimitError("the question is nested too deeply to be read") from None


def _parsed(source: Source) -> tuple[ast.expr | None, ast.expr]:
    """The indices on the left, where there are such, and the expression."""
    body = parse_tree(source).body
    match body:
        case [ast.Expr(value=value)]:
            return None, value
        case [ast.Assign(targets=[ast.Subscript(value=ast.Name(), slice=left)], value=value)]:
            return left, value
        case [ast.Assign(targets=[ast.Name()], value=value)]:
            return None, value
    message = "a question is one expression, as in `sum[s](exp(x[t,s]))`"
    raise InputError(message, code="not-a-term")


def _read(source: Source, left: ast.expr | None, value: ast.expr, program: Program) -> Asked:
    frame = _frame(source, program)
    known = {a.name: a for a in _axes(program)}
    ranges = _Ranges(frame, whole_calls(frame, value))
    given = {name for name, _, _ in bracket(frame, left)} if left is not None else set()
    free = {**dict.fromkeys(given), **_free(frame, value, frozenset(), known)}
    binders: dict[str, Binder] = {}
    for name in free:
        size = _declared(frame, left, name)
        binder = ranges.binder(name, value, size)
        if size is None and name in known and not _walked(frame, value, name):
            binder.extent = known[name].extent
        binders[name] = binder
    ranges.find_in(binders, value)
    raw = _Expression(frame, ranges, axis_call).term(value, ranges.left)
    ranges.check()
    if frame.session.definitions:
        message = "a question cannot hold calls that define tensors; write them out"
        raise InputError(message, code="not-a-term")
    return Naming(program, frame.session).asked(raw, ranges.left, known)


def _frame(source: Source, program: Program) -> Frame:
    node = ast.parse("def question(): pass").body[0]
    assert isinstance(node, ast.FunctionDef)
    signature = Signature("question", (), {}, (), node, source)
    session = Session("question", run)
    buffers = (*program.inputs, *(d.buffer for d in program.definitions))
    tensors: dict[str, Tensor] = {b.name: Stored(b) for b in buffers}
    return Frame(session, signature, program.sizes, tensors, prelude(), inline=True)


def _declared(frame: Frame, left: ast.expr | None, name: str) -> ast.expr | None:
    items = bracket(frame, left) if left is not None else ()
    return next((size for found, _, size in items if found == name), None)


def _axes(program: Program) -> Iterator[Axis]:
    """Every axis of a program, those of its definitions first."""
    for d in program.definitions:
        yield from d.axes
    for o in program.outputs:
        yield from o.axes
    for term in walk(*(d.body for d in program.definitions)):
        if isinstance(term, (Reduce, Online)):
            yield term.axis


# ---- free indices --------------------------------------------------------------------------------


def _free(
    frame: Frame, node: ast.AST, bound: frozenset[str], known: Mapping[str, Axis]
) -> dict[str, None]:
    """The free indices of an expression: coordinates that are bare names, and other names that the
    program has for its axes, in order of appearance."""
    found: dict[str, None] = {}
    if isinstance(node, ast.Call):
        inner = bound
        if isinstance(node.func, ast.Subscript):
            inner = bound | _binds(frame, node.func)
            kept = node.func if inner == bound else None
            if kept is not None:
                found |= _free(frame, kept.slice, bound, known)
        for child in (*node.args, *(k.value for k in node.keywords)):
            found |= _free(frame, child, inner, known)
        return found
    if isinstance(node, ast.Subscript):
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        for item in items:
            if isinstance(item, ast.Name) and _may_index(frame, item.id, bound):
                found.setdefault(item.id)
            else:
                found |= _free(frame, item, bound, known)
        return found
    if isinstance(node, ast.Name):
        if node.id in known and _may_index(frame, node.id, bound):
            found.setdefault(node.id)
        return found
    for part in ast.iter_child_nodes(node):
        found |= _free(frame, part, bound, known)
    return found


def _binds(frame: Frame, head: ast.Subscript) -> frozenset[str]:
    name = head.value.id if isinstance(head.value, ast.Name) else ""
    return frozenset(n for n, _, _ in _Ranges(frame, {}).binds(name, head.slice))


def _may_index(frame: Frame, name: str, bound: frozenset[str]) -> bool:
    scalar = name in frame.tensors and not frame.tensors[name].shape
    return name not in bound and not scalar and name not in frame.sizes and name not in NUMBERS


def _walked(frame: Frame, node: ast.AST, name: str) -> bool:
    """Whether the index stands directly in a dimension of some tensor."""
    loads = (n for n in ast.walk(node) if isinstance(n, ast.Subscript))
    for load in loads:
        items = load.slice.elts if isinstance(load.slice, ast.Tuple) else [load.slice]
        tensor = isinstance(load.value, ast.Name) and load.value.id in frame.tensors
        if tensor and any(isinstance(i, ast.Name) and i.id == name for i in items):
            return True
    return False


# ---- running values, which the language lacks ----------------------------------------------------


class _Ranges(Ranges):
    """Ranges of a line in which `online` binds an axis."""

    def binds(
        self, called: str, items: ast.expr
    ) -> Iterator[tuple[str, ast.expr, ast.expr | None]]:
        if called == "online":
            yield from bracket(self.frame, items)
        elif called not in MOMENTS:
            yield from super().binds(called, items)

    def binder(self, name: str, node: ast.AST, size: ast.expr | None) -> Binder:
        """A free index whose range is to be found."""
        return self._binder(name, node, size)


class _Expression(Expression):
    """Expressions with online sums and running values."""

    def _call(self, node: ast.Call, scope: Scope) -> Term:
        head = node.func
        if isinstance(head, ast.Subscript) and isinstance(head.value, ast.Name):
            if head.value.id == "online":
                return self._online(node, head, scope)
            if head.value.id in MOMENTS:
                return self._moment(node, head, scope)
        return super()._call(node, scope)

    def _online(self, node: ast.Call, head: ast.Subscript, scope: Scope) -> Term:
        own = {n: self.ranges.inner[id(node), n] for n in self._names(head)}
        axis = self._axis(node, head, own)
        parts = self._arguments(node, {**scope, **own})
        if len(parts) not in (2, 3):
            raise self._count(node, "online", "a repair, a body, and an offset if there is one")
        return self._note(node, Online(axis, *parts))

    def _moment(self, node: ast.Call, head: ast.Subscript, scope: Scope) -> Term:
        axis = self._axis(node, head, scope)
        parts = self._arguments(node, scope)
        if len(parts) != 1 or not isinstance(parts[0], (Reduce, Online)):
            message = (
                f"{ast.unparse(head.value)} takes one reduction, as in `running[s](max[s](x[s]))`"
            )
            raise self.frame.error(node, message, "wrong-arguments")
        follows = _over(parts[0], {parts[0].axis: axis})
        assert isinstance(follows, (Reduce, Online))
        kind = Running if ast.unparse(head.value) == "running" else Before
        return self._note(node, kind(follows))

    def _names(self, head: ast.Subscript) -> list[str]:
        return [n for n, _, _ in bracket(self.frame, head.slice)]

    def _axis(self, node: ast.Call, head: ast.Subscript, scope: Scope) -> Axis:
        names = self._names(head)
        if len(names) != 1 or names[0] not in scope:
            message = f"{ast.unparse(head.value)} names the one axis that it runs along"
            raise self.frame.error(node, message, "no-range")
        return scope[names[0]]


def _over(root: Term, axes: Mapping[Axis, Axis]) -> Term:
    """The term with axes exchanged, binders included (every binder has an axis of its own)."""

    def step(term: Term) -> Term:
        match term:
            case Index(axis):
                return Index(axes.get(axis, axis))
            case Reduce(monoid, axis, body):
                return Reduce(monoid, axes.get(axis, axis), body)
            case Online(axis):
                return Online(axes.get(axis, axis), *children(term))
        return term

    return transform(root, step)
