"""Calls of programs and named operations.

`softmax[s](m[i,s])` binds the operation's axes: each argument is a term with the axis free, and the
operation unfolds into the term of the line. The result keeps an axis that stands in its type, and
drops the others. `gelu(x[i])`, with scalar arguments only, unfolds the same way.

`attend(Q, K, V)` passes whole tensors; sizes follow from their shapes, and the called program's
definitions become definitions of the caller (a named operation of the prelude unfolds here too).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from nautile.dtypes import DTYPES
from nautile.errors import LimitError, SourceError
from nautile.lang.arguments import (
    check_results,
    complete_sizes,
    convert,
    convert_tensor,
    default_of,
    given_arguments,
    shape_text,
    size_keywords,
)
from nautile.lang.expression import Expression, Scope, read_tensor
from nautile.lang.limits import MAX_CALL_DEPTH, MAX_CALLS
from nautile.lang.module import Module
from nautile.lang.names import BUILTIN
from nautile.lang.ranges import Ranges, bracket, kept_axes
from nautile.lang.session import Frame, Inline, Tensor
from nautile.lang.signature import Parameter, Signature, size_value
from nautile.lang.source import nearest
from nautile.terms import Axis, Index, Term

__all__ = ["axis_call", "is_whole", "whole_call", "whole_calls"]


def is_whole(frame: Frame, node: ast.AST) -> bool:
    """True for a call that passes whole tensors to a program."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return False
    if node.func.id in BUILTIN or node.func.id in DTYPES:
        return False
    signature = frame.lookup(node.func.id)
    return signature is not None and not signature.scalar


def whole_calls(frame: Frame, value: ast.expr) -> dict[int, Tensor]:
    """The results of all whole-tensor calls in an expression, by node."""
    found: dict[int, Tensor] = {}
    for node in _outermost(frame, value):
        found[id(node)] = _only(frame, node, whole_call(frame, node, ()))
    return found


def _outermost(frame: Frame, root: ast.AST) -> Iterator[ast.Call]:
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Call) and is_whole(frame, node):
            yield node
        else:
            stack.extend(reversed(list(ast.iter_child_nodes(node))))


def _only(frame: Frame, node: ast.Call, results: Sequence[Tensor]) -> Tensor:
    if len(results) != 1:
        name = ast.unparse(node.func)[:40]
        message = f"{name} has {len(results)} results: write `a, b = {name}(...)`"
        raise frame.error(node, message, "wrong-arguments")
    return results[0]


# --- calls that bind axes


def axis_call(expression: Expression, node: ast.Call, scope: Scope) -> Term:
    """The term of a call of a named operation."""
    frame = expression.frame
    head = node.func.value if isinstance(node.func, ast.Subscript) else node.func
    assert isinstance(head, ast.Name)
    found = frame.module.find(head.id)
    if found is None:
        raise _unknown_operation(frame, head)
    module, signature = found
    if id(node) in expression.ranges.whole:
        tensor = expression.ranges.whole[id(node)]
        return read_tensor(frame, node, tensor, f"{head.id}(...)", ())
    axes = _bound_axes(expression, node, signature, scope)
    inner = {**scope, **_dropped(expression, node)}
    given = given_arguments(frame, node, signature)
    tensors = {
        p.name: Inline(_argument(expression, p, given, inner), _param_axes(frame, node, p, axes))
        for p in signature.parameters
    }
    sizes = {name: axis.extent for name, axis in axes.items()}
    sizes = complete_sizes(
        frame, node, signature, {**sizes, **size_keywords(frame, node, signature)}
    )
    callee = _frame(frame, module, signature, sizes, tensors, inline=True)
    result = _only(frame, node, _enter(frame, node, callee))
    dims = [d.id for d in signature.results[0].dims if isinstance(d, ast.Name)]
    term = result.at(tuple(Index(axes[d]) for d in dims))
    return frame.session.note(convert(frame, node, term, signature.results[0].dtype, True))


def _unknown_operation(frame: Frame, head: ast.Name) -> SourceError:
    known = (*frame.module.names(), *BUILTIN, *DTYPES)
    if head.id in frame.tensors:
        message = f"{head.id} is a tensor: its elements are written `{head.id}[i]`"
    else:
        message = f"there is no operation or program named {head.id}.{nearest(head.id, known)}"
    return frame.source.error(head, message, "unknown-name")


def _bound_axes(
    expression: Expression, node: ast.Call, signature: Signature, scope: Scope
) -> dict[str, Axis]:
    frame = expression.frame
    sizes = signature.axes()
    if sizes is None:
        message = f"{signature.name} takes whole tensors: write `{signature.name}(x, ...)`"
        raise frame.error(node, message, "unsupported")
    items = [*bracket(frame, node.func.slice)] if isinstance(node.func, ast.Subscript) else []
    if len(items) != len(sizes):
        form = f"{signature.name}[{', '.join(s.lower() for s in sizes)}](...)" if sizes else ""
        count = f"{len(sizes)} {'axis' if len(sizes) == 1 else 'axes'}"
        wanted = f"names {count}, as in `{form}`" if sizes else "names no axes"
        message = f"a call of {signature.name} {wanted}; {len(items)} given"
        raise frame.error(node, message, "wrong-rank")
    kept = kept_axes(signature)
    axes = {}
    for size, (name, item, declared) in zip(sizes, items, strict=True):
        if size in kept and name not in scope:
            message = (
                f"{signature.name}[{name}] keeps the axis {name}, "
                f"but {name} is no index of this line; write it on the left"
            )
            raise frame.error(item, message, "no-range")
        axes[size] = scope[name] if size in kept else expression.ranges.inner[id(node), name]
        if declared is not None:
            _check_declared(frame, declared, name, axes[size])
    return axes


def _check_declared(frame: Frame, node: ast.expr, name: str, axis: Axis) -> None:
    extent = size_value(frame.source, node, frame.sizes)
    if extent != axis.extent:
        message = f"the index {name} walks {axis.extent} positions, not {extent}"
        raise frame.error(node, message, "size-mismatch")


def _dropped(expression: Expression, node: ast.Call) -> dict[str, Axis]:
    return {
        name: axis for (call, name), axis in expression.ranges.inner.items() if call == id(node)
    }


def _param_axes(
    frame: Frame, node: ast.Call, parameter: Parameter, axes: Mapping[str, Axis]
) -> tuple[Axis, ...]:
    found = tuple(axes[d.id] for d in parameter.type.dims if isinstance(d, ast.Name))
    if len(set(found)) < len(found):
        message = f"{parameter.name} has one size twice: pass a whole tensor, without axes"
        raise frame.error(node, message, "unsupported")
    return found


def _argument(
    expression: Expression, parameter: Parameter, given: Mapping[str, ast.expr], scope: Scope
) -> Term:
    frame = expression.frame
    if parameter.name not in given:
        return default_of(parameter)
    node = given[parameter.name]
    if isinstance(node, ast.Name) and node.id in frame.tensors and node.id not in scope:
        rank = len(frame.tensors[node.id].shape)
        if rank:
            indices = ",".join("ijklmnop"[:rank])
            message = f"with axes in brackets, arguments are elements: write {node.id}[{indices}]"
            raise frame.error(node, message, "wrong-rank")
    return convert(frame, node, expression.term(node, scope), parameter.type.dtype)


def whole_call(frame: Frame, node: ast.Call, targets: tuple[str, ...]) -> list[Tensor]:
    """The results of a call that passes whole tensors; `targets` names what it is assigned to."""
    assert isinstance(node.func, ast.Name)
    found = frame.module.find(node.func.id)
    assert found is not None
    module, signature = found
    given = given_arguments(frame, node, signature)
    tensors = {p.name: _whole_argument(frame, p, given) for p in signature.parameters}
    sizes = _infer(frame, node, signature, tensors, given)
    callee = _frame(frame, module, signature, sizes, tensors, inline=frame.inline)
    callee.renamed = _renamed(frame, signature, targets)
    results = _enter(frame, node, callee)
    pairs = zip(results, signature.results, strict=True)
    return [convert_tensor(frame, node, r, t.dtype, True) for r, t in pairs]


def _renamed(frame: Frame, signature: Signature, targets: tuple[str, ...]) -> dict[str, str]:
    """What the returned definitions of the called program are called in the caller."""
    last = signature.node.body[-1]
    if not isinstance(last, ast.Return) or frame.level or last.value is None:
        return {}
    values = last.value.elts if isinstance(last.value, ast.Tuple) else [last.value]
    return {
        value.id: target
        for value, target, type_ in zip(values, targets, signature.results, strict=False)
        if isinstance(value, ast.Name) and type_.dtype in ("f32", "bool")
    }


def _whole_argument(frame: Frame, parameter: Parameter, given: Mapping[str, ast.expr]) -> Tensor:
    if parameter.name not in given:
        return Inline(default_of(parameter))
    node = given[parameter.name]
    tensor = _passed(frame, parameter, node)
    if len(tensor.shape) != len(parameter.type.dims):
        message = (
            f"{parameter.name} has rank {len(parameter.type.dims)}, but this tensor "
            f"{len(tensor.shape)}; name the axes to work along, as in `softmax[j](x[i,j])`"
        )
        raise frame.error(node, message, "wrong-rank")
    return convert_tensor(frame, node, tensor, parameter.type.dtype)


def _passed(frame: Frame, parameter: Parameter, node: ast.expr) -> Tensor:
    if isinstance(node, ast.Name) and node.id in frame.tensors:
        return frame.tensors[node.id]
    if isinstance(node, ast.Call) and is_whole(frame, node):
        return _only(frame, node, whole_call(frame, node, ()))
    ranges = Ranges(frame, whole_calls(frame, node))
    expression = Expression(frame, ranges, axis_call)
    if not parameter.type.dims:
        ranges.find(None, node)
        term = expression.term(node, {})
        ranges.check()
        return Inline(term)
    if isinstance(node, ast.Name):
        raise expression.unknown(node, node.id, {})
    message = f"pass the whole tensor {parameter.name} by its name, or name the axes in brackets"
    raise frame.error(node, message, "wrong-arguments")


def _infer(
    frame: Frame,
    node: ast.Call,
    signature: Signature,
    tensors: Mapping[str, Tensor],
    given: Mapping[str, ast.expr],
) -> dict[str, int]:
    """Sizes from keywords, then from shapes, then from defaults; all shapes must agree."""
    sizes = size_keywords(frame, node, signature)
    for parameter in signature.parameters:
        shape = tensors[parameter.name].shape
        for dim, extent in zip(parameter.type.dims, shape, strict=True):
            if isinstance(dim, ast.Name):
                sizes.setdefault(dim.id, extent)
    sizes = complete_sizes(frame, node, signature, sizes)
    for parameter in signature.parameters:
        wanted = parameter.type.shape(signature.source, sizes)
        shape = tensors[parameter.name].shape
        if wanted != shape:
            message = f"{parameter.name} has shape {shape_text(shape)}, not {shape_text(wanted)}"
            place = given.get(parameter.name, node)
            raise frame.error(place, message, "size-mismatch")
    return sizes


def _frame(
    caller: Frame,
    module: Module,
    signature: Signature,
    sizes: Mapping[str, int],
    tensors: Mapping[str, Tensor],
    inline: bool,
) -> Frame:
    return Frame(
        session=caller.session,
        signature=signature,
        sizes=sizes,
        tensors=dict(tensors),
        module=module,
        level=caller.level + 1,
        inline=inline or module.parent is None,
    )


def _enter(frame: Frame, node: ast.Call, callee: Frame) -> list[Tensor]:
    """Read the body of a called program. Its errors are told at the call where the text is not the
    user's own."""
    signature, calls = callee.signature, frame.session.calls
    here = (signature.source.filename, signature.name)
    if here in calls:
        message = f"{signature.name} calls itself; a program cannot be recursive"
        raise frame.error(node, message, "cyclic-definition")
    frame.session.call_count += 1
    if len(calls) >= MAX_CALL_DEPTH or frame.session.call_count > MAX_CALLS:
        raise LimitError(
            f"{frame.session.name}: more than {MAX_CALLS} calls, or calls nested deeper than "
            f"{MAX_CALL_DEPTH}"
        )
    calls.append(here)
    try:
        results = frame.session.run(callee)
        check_results(callee, results)
    except SourceError as error:
        if signature.source is frame.source:
            raise
        message = f"in {signature.name}: {error.message}"
        raise frame.error(node, message, error.code) from None
    finally:
        calls.pop()
    return results
