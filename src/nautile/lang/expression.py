"""The right-hand side of a line: from the syntax tree to terms.

Names are resolved in this order: indices of the line, tensors and scalars, sizes, `inf` and `nan`.
Operations are checked for the kinds of their arguments (numbers or truth values), and folded where
all arguments are numbers; every coordinate must be an affine integer that stays in its dimension.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping

from nautile.dtypes import DTYPES
from nautile.lang.bounds import interval, tried
from nautile.lang.names import BUILTIN, COMPARISONS, FUNCTIONS, INFIX, INSTEAD, REDUCERS, is_size
from nautile.lang.ranges import Ranges, bracket, tensor_at
from nautile.lang.session import Frame, Inline, Tensor
from nautile.lang.source import nearest
from nautile.operations import OPERATIONS
from nautile.terms import Apply, Axis, Cast, Const, Index, Reduce, Term, transform

__all__ = ["Expression", "read_tensor"]

Scope = Mapping[str, Axis]
Call = Callable[["Expression", ast.Call, Scope], Term]


class Expression:
    """Reads the expressions of one line. `call` unfolds calls of named operations."""

    def __init__(self, frame: Frame, ranges: Ranges, call: Call) -> None:
        self.frame, self.ranges, self.call = frame, ranges, call

    def term(self, node: ast.expr, scope: Scope) -> Term:
        """The term of an expression. Raises SourceError at the part that is wrong."""
        match node:
            case ast.Name(id=name):
                return self._name(node, name, scope)
            case ast.Constant(value=bool() | int() | float() as value):
                return self._note(node, Const(value))
            case ast.Subscript():
                return self._load(node, scope)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in INFIX:
                parts = (self.term(left, scope), self.term(right, scope))
                return self.apply(node, INFIX[type(op)], *parts)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self.apply(node, "neg", self.term(operand, scope))
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.term(operand, scope)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self.apply(node, "not", self.term(operand, scope))
            case ast.BoolOp(op=op, values=values):
                name = "and" if isinstance(op, ast.And) else "or"
                return self._chain(node, name, [self.term(v, scope) for v in values])
            case ast.Compare():
                return self._compare(node, scope)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                three = (self.term(test, scope), self.term(body, scope), self.term(orelse, scope))
                return self.apply(node, "where", *three)
            case ast.Call():
                return self._call(node, scope)
        raise self._unsupported(node)

    def _note(self, node: ast.expr, term: Term) -> Term:
        if isinstance(term, Const) and isinstance(term.value, int) and abs(term.value) >= 2**63:
            raise self.frame.error(node, "integers have at most 64 bits; write a float", "bad-size")
        return self.frame.session.note(term)

    def _unsupported(self, node: ast.expr) -> Exception:
        operators = getattr(node, "ops", None) or [getattr(node, "op", node)]
        for part in (*operators, node):
            if type(part) in INSTEAD:
                return self.frame.error(node, INSTEAD[type(part)], "unsupported")
        text = ast.unparse(node)[:40]
        return self.frame.error(
            node, f"this is no expression of the language: {text}", "unsupported"
        )

    # --- names and elements

    def _name(self, node: ast.Name, name: str, scope: Scope) -> Term:
        if name in scope:
            return self._note(node, Index(scope[name]))
        if name in self.frame.tensors:
            return read_tensor(self.frame, node, self.frame.tensors[name], name, ())
        if name in self.frame.sizes:
            return Const(self.frame.sizes[name])
        if name in ("inf", "nan"):
            return Const(float(name))
        raise self.unknown(node, name, scope)

    def unknown(self, node: ast.expr, name: str, scope: Scope) -> Exception:
        """The error for a name that nothing here has."""
        frame = self.frame
        if name == frame.current or name in frame.lines:
            return self._too_early(node, name)
        if name in BUILTIN:
            form = f"{name}[i](...)" if name in REDUCERS else f"{name}(...)"
            return frame.error(node, f"{name} is called, as in `{form}`", "syntax")
        if name in frame.signature.sizes:
            message = f"the size {name} has no value: give it a default, as in `*, {name}=1024`"
            return frame.error(node, message, "no-size")
        kind = "size" if is_size(name) else "tensor, scalar or index"
        known = (*scope, *frame.tensors, *frame.sizes, *frame.module.names())
        message = f"there is no {kind} named {name} here.{nearest(name, known)}"
        return frame.error(node, message, "unknown-name")

    def _too_early(self, node: ast.expr, name: str) -> Exception:
        frame = self.frame
        if frame.current in _reached(name, frame.reads):
            message = (
                f"{frame.current} is defined by itself"
                if name == frame.current
                else f"{frame.current} and {name} are defined by each other"
            )
            return frame.error(
                node, message + "; a definition cannot be cyclic", "cyclic-definition"
            )
        message = f"{name} is defined on line {frame.lines[name]}, after its use; move it up"
        return frame.error(node, message, "used-before-definition")

    def _load(self, node: ast.Subscript, scope: Scope) -> Term:
        tensor = tensor_at(self.frame, node.value, self.ranges.whole)
        if tensor is None:
            if isinstance(node.value, ast.Name):
                raise self.unknown(node.value, node.value.id, scope)
            raise self.frame.error(node, "only tensors have indices, as in `x[i,j]`", "unsupported")
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        label = ast.unparse(node.value)[:40]
        _check_rank(self.frame, node, label, tensor, len(items))
        coordinates = tuple(self._coordinate(i, scope) for i in items)
        for place, (item, term, extent) in enumerate(
            zip(items, coordinates, tensor.shape, strict=True), 1
        ):
            self._check_bounds(item, term, extent, f"dimension {place} of {label}")
        return read_tensor(self.frame, node, tensor, label, coordinates)

    def _coordinate(self, node: ast.expr, scope: Scope) -> Term:
        if isinstance(node, ast.Slice):
            message = (
                "a coordinate is one position; ranges are declared on the left or in `sum[j: J]`"
            )
            raise self.frame.error(node, message, "syntax")
        term = self.term(node, scope)
        if self.frame.type(term) not in ("i32", "i64"):
            message = "a coordinate must be an integer: use // to divide, i32(...) to convert"
            raise self.frame.error(node, message, "wrong-type")
        self._check_affine(node, term)
        return term

    def _check_affine(self, node: ast.expr, term: Term) -> None:
        stack = [term]
        while stack:
            part = stack.pop()
            if not isinstance(part, Apply):
                continue
            stack.extend(part.arguments)
            if not _is_affine(part):
                message = "coordinates are affine: products with and // and % by positive constants"
                raise self.frame.error(node, message, "unsupported")

    def _check_bounds(self, node: ast.expr, term: Term, extent: int, what: str) -> None:
        found = interval(term, self.frame.session.intervals)
        if found is None or _inside(found, extent):
            return
        found = tried(term) or found
        if _inside(found, extent):
            return
        low, high = found
        if low < -(2**62) or high > 2**62:
            if high < 0 or low >= extent:
                message = f"no position of {what} is reached: it has {extent} (0 to {extent - 1})"
                raise self.frame.error(node, message, "out-of-range")
            return
        message = (
            f"this runs from {low} to {high}, but {what} has {extent} positions "
            f"(0 to {extent - 1}); clamp it with min and max or declare a smaller range"
        )
        raise self.frame.error(node, message, "out-of-range")

    # --- operations

    def apply(self, node: ast.expr, operation: str, *arguments: Term) -> Term:
        """The operation on terms, checked and folded."""
        kinds = [self.frame.type(a) for a in arguments]
        self._check_kinds(node, operation, kinds)
        return self._note(node, self.frame.session.simplified(Apply(operation, arguments)))

    def _check_kinds(self, node: ast.expr, operation: str, kinds: list[str]) -> None:
        truths = [k == "bool" for k in kinds]
        spelled = OPERATIONS[operation].infix or operation
        if operation in ("and", "or", "not"):
            if not all(truths):
                message = f"`{spelled}` joins truth values; compare numbers first, as in `x > 0`"
                raise self.frame.error(node, message, "wrong-type")
        elif operation == "where":
            if not truths[0]:
                message = "the condition must be a truth value, as in `x > 0`"
                raise self.frame.error(node, message, "wrong-type")
            if truths[1] != truths[2]:
                message = "both values must be numbers, or both truth values"
                raise self.frame.error(node, message, "wrong-type")
        elif any(truths) and not (all(truths) and operation in ("eq", "ne")):
            message = f"`{spelled}` takes numbers, not truth values: write `where(p, 1, 0)`"
            raise self.frame.error(node, message, "wrong-type")

    def _chain(self, node: ast.expr, operation: str, terms: list[Term]) -> Term:
        result = terms[0]
        for term in terms[1:]:
            result = self.apply(node, operation, result, term)
        return result

    def _compare(self, node: ast.Compare, scope: Scope) -> Term:
        odd = next((op for op in node.ops if type(op) not in COMPARISONS), None)
        if odd is not None:
            raise self._unsupported(node)
        terms = [self.term(n, scope) for n in (node.left, *node.comparators)]
        pairs = zip(node.ops, terms, terms[1:], strict=False)
        parts = [self.apply(node, COMPARISONS[type(op)], a, b) for op, a, b in pairs]
        return self._chain(node, "and", parts)

    # --- calls

    def _call(self, node: ast.Call, scope: Scope) -> Term:
        head = node.func
        if isinstance(head, ast.Subscript) and isinstance(head.value, ast.Name):
            if head.value.id in REDUCERS:
                return self._reduce(node, head.value.id, head.slice, scope)
            return self.call(self, node, scope)
        if not isinstance(head, ast.Name):
            raise self._unsupported(head)
        if head.id in DTYPES:
            return self._cast(node, head.id, scope)
        if head.id in FUNCTIONS and self.frame.lookup(head.id) is None:
            return self._function(node, head.id, scope)
        if head.id in REDUCERS:
            message = f"reductions name their axes: write `{head.id}[i](...)`"
            raise self.frame.error(node, message, "syntax")
        return self.call(self, node, scope)

    def _arguments(self, node: ast.Call, scope: Scope) -> list[Term]:
        if node.keywords:
            name = ast.unparse(node.func)[:40]
            message = f"{name} takes no keyword arguments"
            raise self.frame.error(node.keywords[0].value, message, "wrong-arguments")
        return [self.term(a, scope) for a in node.args]

    def _cast(self, node: ast.Call, dtype: str, scope: Scope) -> Term:
        arguments = self._arguments(node, scope)
        if len(arguments) != 1:
            raise self._count(node, dtype, "one argument")
        return self._note(node, Cast(dtype, arguments[0]))

    def _function(self, node: ast.Call, name: str, scope: Scope) -> Term:
        arguments = self._arguments(node, scope)
        arity = OPERATIONS[name].arity
        if name in ("max", "min") and len(arguments) > 2:
            return self._chain(node, name, arguments)
        if len(arguments) != arity:
            hint = (
                f"; a reduction names its axis, as in `{name}[i](...)`" if name in REDUCERS else ""
            )
            raise self._count(node, name, f"{arity} argument{'s' * (arity > 1)}{hint}")
        return self.apply(node, name, *arguments)

    def _count(self, node: ast.Call, name: str, wanted: str) -> Exception:
        message = f"{name} takes {wanted}, not {len(node.args)}"
        return self.frame.error(node, message, "wrong-arguments")

    def _reduce(self, node: ast.Call, name: str, items: ast.expr, scope: Scope) -> Term:
        names = [n for n, _, _ in bracket(self.frame, items)]
        axes = {n: self.ranges.inner[id(node), n] for n in names}
        arguments = self._arguments(node, {**scope, **axes})
        if len(arguments) != 1:
            raise self._count(node, name, "one expression")
        if name.startswith("arg") and len(axes) > 1:
            message = f"{name} goes over one axis; there is no position in several"
            raise self.frame.error(node, message, "unsupported")
        self._check_reduced(node, name, arguments[0])
        term, count = arguments[0], 1
        for axis in reversed(axes.values()):
            term, count = Reduce("sum" if name == "mean" else name, axis, term), count * axis.extent
        self._note(node, term)
        return self.apply(node, "div", term, Const(count)) if name == "mean" else term

    def _check_reduced(self, node: ast.Call, name: str, body: Term) -> None:
        truth = self.frame.type(body) == "bool"
        if truth and name not in ("any", "all"):
            message = f"{name} takes numbers, not truth values: write `{name}[i](where(p, 1, 0))`"
            raise self.frame.error(node, message, "wrong-type")
        if not truth and name in ("any", "all"):
            message = f"{name} takes truth values: compare numbers first, as in `x[i] > 0`"
            raise self.frame.error(node, message, "wrong-type")


def read_tensor(
    frame: Frame, node: ast.AST, tensor: Tensor, label: str, coordinates: tuple[Term, ...]
) -> Term:
    """The element of a tensor, its new constants folded. Raises SourceError for a wrong rank."""
    _check_rank(frame, node, label, tensor, len(coordinates))
    term = tensor.at(coordinates)
    if isinstance(tensor, Inline) and any(isinstance(c, Const) for c in coordinates):
        session = frame.session
        term = transform(term, lambda part: session.note(session.simplified(part)))
    return frame.session.note(term)


def _check_rank(frame: Frame, node: ast.AST, label: str, tensor: Tensor, given: int) -> None:
    rank = len(tensor.shape)
    if given != rank:
        shape = ", ".join(map(str, tensor.shape))
        has = f"has {rank} dimension{'s' * (rank > 1)} ({shape})" if rank else "is a scalar"
        indices = f"{given} {'index is' if given == 1 else 'indices are'} given"
        message = f"{label} {has}, but {indices}"
        raise frame.error(node, message, "wrong-rank")


def _inside(found: tuple[int, int], extent: int) -> bool:
    return found[0] >= 0 and found[1] < extent


def _is_affine(term: Apply) -> bool:
    """Whether the outermost operation of an integer term keeps it affine."""
    left, right = term.arguments[0], term.arguments[-1]
    match term.operation:
        case "mul":
            return isinstance(left, Const) or isinstance(right, Const)
        case "floordiv" | "mod":
            return isinstance(right, Const) and right.value > 0
    return True


def _reached(name: str, reads: Mapping[str, Iterable[str]]) -> set[str]:
    """The definitions that `name` reads, through any number of others, and itself."""
    found, stack = {name}, [name]
    while stack:
        for other in reads.get(stack.pop(), ()):
            if other not in found:
                found.add(other)
                stack.append(other)
    return found
