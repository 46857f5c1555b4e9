"""Which range each index of a line walks, found before its terms are built.

An index takes its extent from its declaration (`t: T`), else from the dimensions that it indexes
directly (`x[t]`), which must agree.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nautile.lang.names import REDUCERS, is_size
from nautile.lang.session import Binding, Frame, Inline, Tensor
from nautile.lang.signature import Signature, size_value
from nautile.terms import Axis

__all__ = ["Ranges", "bracket", "kept_axes", "tensor_at"]


@dataclass(slots=True)
class Binder:
    """An index of the line while its range is being found. `use` says where it was found, `alias`
    how the caller spells the axis that it walks."""

    name: str
    node: ast.AST
    extent: int | None
    declared: bool
    use: str = ""
    alias: Binding | None = None


Scope = Mapping[str, Binder]
Whole = Mapping[int, Tensor]


def bracket(frame: Frame, node: ast.expr) -> Iterator[tuple[str, ast.expr, ast.expr | None]]:
    """The indices of `[i, j: J]`: name, place and declared size."""
    items = node.elts if isinstance(node, ast.Tuple) else [node]
    seen: set[str] = set()
    for item in items:
        match item:
            case ast.Name(id=name):
                size: ast.expr | None = None
            case ast.Slice(lower=ast.Name(id=name), upper=ast.expr() as upper, step=None):
                size = upper
            case _:
                message = "expected an index name here, as in `i` or `i: N`"
                raise frame.error(item, message, "syntax")
        _check_name(frame, item, name)
        if name in seen:
            raise frame.error(item, f"the index {name} stands here twice", "assigned-twice")
        seen.add(name)
        yield name, item, size


def _check_name(frame: Frame, node: ast.AST, name: str) -> None:
    if is_size(name):
        message = f"{name} cannot be an index: indices are lowercase, capitals name sizes"
        raise frame.error(node, message, "bad-index")
    scalar = name in frame.tensors and not frame.tensors[name].shape
    if scalar or name in ("inf", "nan"):
        message = f"{name} is a scalar here and cannot be an index too; rename one"
        raise frame.error(node, message, "name-clash")


def kept_axes(signature: Signature) -> frozenset[str]:
    """The sizes of an operation's result: a call keeps the axes that it binds to them."""
    dims = (d for t in signature.results for d in t.dims)
    return frozenset(d.id for d in dims if isinstance(d, ast.Name))


def tensor_at(frame: Frame, node: ast.expr, whole: Whole) -> Tensor | None:
    """The tensor that stands before `[...]`: a name or the call of a program."""
    if isinstance(node, ast.Name):
        return frame.tensors.get(node.id)
    return whole.get(id(node))


class Ranges:
    """The axes of one line: `left` those of its left-hand side by name, `inner` those that its
    reductions and calls bind, by the node that binds them and the name."""

    def __init__(self, frame: Frame, whole: Whole) -> None:
        self.frame, self.whole = frame, whole
        self.left: dict[str, Axis] = {}
        self.inner: dict[tuple[int, str], Axis] = {}
        self._bound: list[tuple[int, Binder]] = []
        self._missing: list[Binder] = []

    def find(self, left: ast.expr | None, value: ast.expr) -> None:
        """Find every range of `[left] = value`. Raises SourceError (size-mismatch)."""
        items = bracket(self.frame, left) if left is not None else ()
        scope = {name: self._binder(name, node, size) for name, node, size in items}
        self.find_in(scope, value)

    def find_free(self, names: Mapping[str, ast.expr], value: ast.expr) -> None:
        """The same for a value without left-hand side whose free indices are `names`."""
        self.find_in({n: self._binder(n, node, None) for n, node in names.items()}, value)

    def find_in(self, scope: dict[str, Binder], value: ast.expr) -> None:
        self._visit(value, scope)
        for name, binder in scope.items():
            self.left[name] = self._seal(binder)
        for node, binder in self._bound:
            self.inner[node, binder.name] = self._seal(binder)

    def _binder(self, name: str, node: ast.AST, size: ast.expr | None) -> Binder:
        extent = None if size is None else size_value(self.frame.source, size, self.frame.sizes)
        return Binder(name, node, extent, size is not None)

    def _seal(self, binder: Binder) -> Axis:
        if binder.extent is None:
            self._missing.append(binder)
        spelled = binder.alias or Binding(binder.name, self.frame.level, 0)
        return self.frame.session.axis(spelled.name, binder.extent or 1, spelled.level)

    def check(self) -> None:
        """Raises SourceError (no-range) for an index whose range nothing tells. It is called after
        the terms are built, so that a misspelt tensor is reported as such."""
        for binder in self._missing:
            message = (
                f"the index {binder.name} has no range: use it directly, as in `x[{binder.name}]`, "
                f"or declare it, as in `{binder.name}: N`"
            )
            raise self.frame.error(binder.node, message, "no-range")

    def _visit(self, node: ast.AST, scope: Scope) -> None:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
            self._visit_call(node, node.func, scope)
            return
        if isinstance(node, ast.Subscript):
            self._visit_load(node, scope)
        for child in ast.iter_child_nodes(node):
            self._visit(child, scope)

    def _visit_call(self, node: ast.Call, head: ast.Subscript, scope: Scope) -> None:
        inner = dict(scope)
        if isinstance(head.value, ast.Name):
            for name, item, size in self.binds(head.value.id, head.slice):
                binder = self._binder(name, item, size)
                self._bound.append((id(node), binder))
                inner[name] = binder
        for child in (*node.args, *(k.value for k in node.keywords)):
            self._visit(child, inner)

    def binds(
        self, called: str, items: ast.expr
    ) -> Iterator[tuple[str, ast.expr, ast.expr | None]]:
        """The indices that a call binds: all of a reduction's, those that an operation drops."""
        if called in REDUCERS:
            yield from bracket(self.frame, items)
            return
        signature = self.frame.lookup(called)
        axes = signature.axes() if signature else None
        if signature and axes:
            kept = kept_axes(signature)
            for size, item in zip(axes, bracket(self.frame, items), strict=False):
                if size not in kept:
                    yield item

    def _visit_load(self, node: ast.Subscript, scope: Scope) -> None:
        tensor = tensor_at(self.frame, node.value, self.whole)
        if tensor is None:
            return
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        for place, (item, extent) in enumerate(zip(items, tensor.shape, strict=False)):
            if isinstance(item, ast.Name) and item.id in scope:
                binder = scope[item.id]
                if isinstance(tensor, Inline):
                    self._spell(binder, tensor.axes[place])
                what = f"dimension {place + 1} of {ast.unparse(node.value)[:40]}"
                self._use(binder, item, extent, what)

    def _spell(self, binder: Binder, axis: Axis) -> None:
        """Inside a call, the caller's name of the axis that an index walks is the one to keep."""
        spelled = self.frame.session.bindings[axis.family]
        if binder.alias is None and spelled.level < self.frame.level:
            binder.alias = spelled

    def _use(self, binder: Binder, node: ast.AST, extent: int, what: str) -> None:
        if binder.declared:
            return
        if binder.extent is None:
            binder.extent, binder.use = extent, what
        elif binder.extent != extent:
            message = (
                f"the index {binder.name} walks {binder.extent} positions of {binder.use} "
                f"and {extent} of {what}"
            )
            raise self.frame.error(node, message, "size-mismatch")
