"""The lines of a program: definitions, each assigned once, and the results that end it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from nautile.dtypes import DTYPES
from nautile.errors import LimitError
from nautile.lang.calls import axis_call, is_whole, whole_call, whole_calls
from nautile.lang.expression import Expression
from nautile.lang.limits import MAX_DEFINITIONS
from nautile.lang.module import is_docstring
from nautile.lang.names import INSTEAD, RESERVED, is_size
from nautile.lang.ranges import Ranges
from nautile.lang.session import Frame, Inline, Stored, Tensor
from nautile.terms import Axis, Definition, Term

__all__ = ["run", "store"]


def run(frame: Frame) -> list[Tensor]:
    """Read a body; the tensors that it returns."""
    statements = frame.signature.node.body
    if statements and is_docstring(statements[0]):
        statements = statements[1:]
    if len(statements) > MAX_DEFINITIONS:
        raise LimitError(f"{frame.session.name}: has more than {MAX_DEFINITIONS} lines")
    _note_order(frame, statements)
    for statement in statements[:-1]:
        _line(frame, statement)
    if not statements or not isinstance(statements[-1], ast.Return):
        place = statements[-1] if statements else frame.signature.node
        if statements:
            _line(frame, place)
        message = f"{frame.signature.name} ends without `return`"
        raise frame.error(place, message, "syntax")
    return _return(frame, statements[-1])


def _note_order(frame: Frame, statements: list[ast.stmt]) -> None:
    for statement in statements:
        if isinstance(statement, ast.Assign):
            used = {n.id for n in ast.walk(statement.value) if isinstance(n, ast.Name)}
            names = [*_targets(statement.targets[0])]
            if not frame.level:
                frame.session.reserved.update(names)
            for name in names:
                frame.lines.setdefault(name, statement.lineno)
                frame.reads.setdefault(name, frozenset(used))


def _targets(node: ast.expr) -> Iterator[str]:
    for part in node.elts if isinstance(node, ast.Tuple) else [node]:
        name = part.value if isinstance(part, ast.Subscript) else part
        if isinstance(name, ast.Name):
            yield name.id


def _line(frame: Frame, statement: ast.stmt) -> None:
    match statement:
        case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=name), slice=left) as target]):
            _define(frame, target, name, left, statement.value)
        case ast.Assign(targets=[ast.Name(id=name) as target], value=value):
            if is_whole(frame, value):
                _define_whole(frame, [target], value)
            else:
                _define(frame, target, name, None, value)
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=value) if is_whole(frame, value):
            _define_whole(frame, targets, value)
        case ast.Assign():
            message = "expected one name on the left, as in `y[i,j] = ...` or `s = ...`"
            raise frame.error(statement, message, "syntax")
        case ast.Return():
            raise frame.error(statement, "`return` stands on the last line only", "syntax")
        case _:
            message = INSTEAD.get(type(statement), "expected a definition, as in `y[i] = ...`")
            raise frame.error(statement, message, "unsupported")


def _check_name(frame: Frame, node: ast.AST, name: str) -> None:
    if name in frame.tensors:
        line = next((d.line for d in frame.session.definitions if d.name == name), 0)
        where = f" on line {line}" if line and not frame.level else ""
        kind = "is already defined" if where or name in frame.reads else "is an argument"
        message = f"{name} {kind}{where}; every name is assigned once, take another"
        raise frame.error(node, message, "assigned-twice")
    if name in frame.sizes:
        raise frame.error(node, f"{name} names a size; take another name", "name-clash")
    if name in RESERVED or name in DTYPES:
        raise frame.error(node, f"{name} is a word of the language; take another", "reserved")


def _define(
    frame: Frame, node: ast.expr, name: str, left: ast.expr | None, value: ast.expr
) -> None:
    if isinstance(left, ast.Tuple) and not left.elts:
        left = None
    _check_name(frame, node, name)
    frame.current = name
    ranges = Ranges(frame, whole_calls(frame, value))
    ranges.find(left, value)
    body = Expression(frame, ranges, axis_call).term(value, ranges.left)
    ranges.check()
    frame.tensors[name] = store(frame, name, tuple(ranges.left.values()), body, node)
    frame.current = ""
    frame.lines.pop(name, None)


def store(frame: Frame, name: str, axes: tuple[Axis, ...], body: Term, node: ast.AST) -> Tensor:
    """A definition's tensor: stored under its name, or its term in a body that unfolds."""
    if frame.inline:
        return Inline(body, axes)
    stored = frame.renamed.get(name, name)
    if stored in frame.session.reserved and (name in frame.renamed or not frame.level):
        frame.session.names.add(stored)
    else:
        stored = frame.session.unique(f"{frame.signature.name}_{name}" if frame.level else name)
    line = getattr(node, "lineno", 0)
    definition = Definition(stored, axes, body, line, frame.type(body))
    frame.session.definitions.append(definition)
    if len(frame.session.definitions) > MAX_DEFINITIONS:
        raise LimitError(f"{frame.session.name}: has more than {MAX_DEFINITIONS} definitions")
    return Stored(definition.buffer)


def _define_whole(frame: Frame, targets: list[ast.expr], value: ast.expr) -> None:
    assert isinstance(value, ast.Call)
    names = []
    for target in targets:
        if not isinstance(target, ast.Name) or (is_size(target.id) and target.id in frame.sizes):
            raise frame.error(target, "expected a name, as in `y, h = f(x)`", "syntax")
        _check_name(frame, target, target.id)
        names.append(target.id)
    frame.current = names[0]
    results = whole_call(frame, value, tuple(names))
    if len(results) != len(names):
        message = f"{len(results)} results are assigned to {len(names)} names"
        raise frame.error(value, message, "wrong-arguments")
    for name, target, result in zip(names, targets, results, strict=True):
        if isinstance(result, Inline):
            result = store(frame, name, result.axes, result.term, target)
        frame.tensors[name] = result
        frame.lines.pop(name, None)
    frame.current = ""


def _return(frame: Frame, statement: ast.Return) -> list[Tensor]:
    value = statement.value
    if value is None:
        raise frame.error(statement, "`return` names the result, as in `return y`", "syntax")
    if is_whole(frame, value):
        assert isinstance(value, ast.Call)
        return whole_call(frame, value, ())
    values = value.elts if isinstance(value, ast.Tuple) else [value]
    return [_returned(frame, v) for v in values]


def _returned(frame: Frame, value: ast.expr) -> Tensor:
    if isinstance(value, ast.Name) and value.id in frame.tensors:
        return frame.tensors[value.id]
    ranges = Ranges(frame, whole_calls(frame, value))
    ranges.find_free(_free_names(frame, value), value)
    body = Expression(frame, ranges, axis_call).term(value, ranges.left)
    ranges.check()
    return Inline(body, tuple(ranges.left.values()))


def _free_names(frame: Frame, value: ast.expr) -> dict[str, ast.expr]:
    """The indices of a returned expression, in order of first use as a coordinate."""
    found: dict[str, ast.expr] = {}
    _collect(frame, value, frozenset(), found)
    return found


def _collect(
    frame: Frame, node: ast.AST, bound: frozenset[str], found: dict[str, ast.expr]
) -> None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
        inner = bound | _bound_by(frame, node.func)
        for child in (*node.args, *(k.value for k in node.keywords)):
            _collect(frame, child, inner, found)
        return
    if isinstance(node, ast.Subscript):
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        for item in items:
            if isinstance(item, ast.Name) and item.id not in bound and _may_index(frame, item.id):
                found.setdefault(item.id, item)
    for part in ast.iter_child_nodes(node):
        _collect(frame, part, bound, found)


def _bound_by(frame: Frame, head: ast.Subscript) -> frozenset[str]:
    ranges = Ranges(frame, {})
    name = head.value.id if isinstance(head.value, ast.Name) else ""
    return frozenset(n for n, _, _ in ranges.binds(name, head.slice))


def _may_index(frame: Frame, name: str) -> bool:
    scalar = name in frame.tensors and not frame.tensors[name].shape
    return not scalar and not is_size(name)
