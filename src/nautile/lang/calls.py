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

from nautile.dtypes import DTYPES, is_float, is_integer
from nautile.errors import LimitError, SourceError
from nautile.lang.expression import Expression, Scope, read_tensor
from nautile.lang.limits import MAX_CALL_DEPTH, MAX_CALLS
from nautile.lang.module import Module
from nautile.lang.names import BUILTIN
from nautile.lang.ranges import Ranges, bracket, kept_axes
from nautile.lang.session import Frame, Inline, Stored, Tensor
from nautile.lang.signature import Parameter, Signature, Type, checked_size, number, size_value
from nautile.lang.source import nearest
from nautile.terms import Axis, Cast, Const, Index, Load, Term
from nautile.types import carried

__all__ = ["axis_call", "complete_sizes", "convert", "is_whole", "whole_call", "whole_calls"]


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
    given = _arguments(frame, node, signature)
    tensors = {
        p.name: Inline(_argument(expression, p, given, inner), _param_axes(frame, node, p, axes))
        for p in signature.parameters
    }
    sizes = {name: axis.extent for name, axis in axes.items()}
    sizes = complete_sizes(
        frame, node, signature, {**sizes, **_size_keywords(frame, node, signature)}
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
    for size, (name, item, _) in zip(sizes, items, strict=True):
        if size in kept and name not in scope:
            message = (
                f"{signature.name}[{name}] keeps the axis {name}, "
                f"but {name} is no index of this line; write it on the left"
            )
            raise frame.error(item, message, "no-range")
        axes[size] = scope[name] if size in kept else expression.ranges.inner[id(node), name]
    return axes


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
        return _default(parameter)
    node = given[parameter.name]
    if isinstance(node, ast.Name) and node.id in frame.tensors and node.id not in scope:
        rank = len(frame.tensors[node.id].shape)
        if rank:
            indices = ",".join("ijklmnop"[:rank])
            message = f"with axes in brackets, arguments are elements: write {node.id}[{indices}]"
            raise frame.error(node, message, "wrong-rank")
    return convert(frame, node, expression.term(node, scope), parameter.type.dtype)


def _default(parameter: Parameter) -> Term:
    assert parameter.default is not None
    value = parameter.default
    return Const(value if is_float(parameter.type.dtype) else int(value))


# --- calls that pass whole tensors


def whole_call(frame: Frame, node: ast.Call, targets: tuple[str, ...]) -> list[Tensor]:
    """The results of a call that passes whole tensors; `targets` names what it is assigned to."""
    assert isinstance(node.func, ast.Name)
    found = frame.module.find(node.func.id)
    assert found is not None
    module, signature = found
    given = _arguments(frame, node, signature)
    tensors = {p.name: _whole_argument(frame, p, given) for p in signature.parameters}
    sizes = _infer(frame, node, signature, tensors, given)
    callee = _frame(frame, module, signature, sizes, tensors, inline=frame.inline)
    callee.renamed = _renamed(frame, signature, targets)
    results = _enter(frame, node, callee)
    pairs = zip(results, signature.results, strict=True)
    return [_convert_tensor(frame, node, r, t.dtype, True) for r, t in pairs]


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
        return Inline(_default(parameter))
    node = given[parameter.name]
    tensor = _passed(frame, parameter, node)
    if len(tensor.shape) != len(parameter.type.dims):
        message = (
            f"{parameter.name} has {len(parameter.type.dims)} dimensions, "
            f"but this tensor has {len(tensor.shape)}"
        )
        raise frame.error(node, message, "wrong-rank")
    return _convert_tensor(frame, node, tensor, parameter.type.dtype)


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
    sizes = _size_keywords(frame, node, signature)
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
            message = f"{parameter.name} has shape {_shape(shape)}, not {_shape(wanted)}"
            place = given.get(parameter.name, node)
            raise frame.error(place, message, "size-mismatch")
    return sizes


def _shape(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"


# --- what both have in common


def _arguments(frame: Frame, node: ast.Call, signature: Signature) -> dict[str, ast.expr]:
    """Arguments by parameter name. Raises SourceError (wrong-arguments)."""
    names = [p.name for p in signature.parameters]
    if len(node.args) > len(names):
        message = f"{signature.name} takes at most {len(names)} arguments, not {len(node.args)}"
        raise frame.error(node.args[len(names)], message, "wrong-arguments")
    given = dict(zip(names, node.args, strict=False))
    for keyword in node.keywords:
        if keyword.arg in signature.sizes:
            continue
        if keyword.arg is None or keyword.arg not in names or keyword.arg in given:
            state = "twice" if keyword.arg in given else "no"
            hint = nearest(keyword.arg or "", (*names, *signature.sizes))
            message = f"{signature.name} has {state} argument {keyword.arg or '**'}.{hint}"
            raise frame.error(keyword.value, message, "wrong-arguments")
        given[keyword.arg] = keyword.value
    missing = [p.name for p in signature.parameters if p.name not in given and p.default is None]
    if missing:
        message = f"{signature.name} needs the argument {missing[0]} as well"
        raise frame.error(node, message, "wrong-arguments")
    return given


def _size_keywords(frame: Frame, node: ast.Call, signature: Signature) -> dict[str, int]:
    return {
        k.arg: size_value(frame.source, k.value, frame.sizes)
        for k in node.keywords
        if k.arg in signature.sizes and k.arg is not None
    }


def complete_sizes(
    frame: Frame, node: ast.AST, signature: Signature, known: Mapping[str, int]
) -> dict[str, int]:
    """All sizes of a program, those not `known` from their defaults."""
    sizes = dict(known)
    for name, default in signature.sizes.items():
        if name in sizes:
            continue
        if default is None:
            message = f"the size {name} of {signature.name} has no value: pass `{name}=...`"
            raise frame.error(node, message, "no-size")
        sizes[name] = checked_size(
            signature.source, default, _whole_number(signature, default, sizes)
        )
    return sizes


def _whole_number(signature: Signature, node: ast.expr, sizes: Mapping[str, int]) -> int:
    value = number(signature.source, node, sizes)
    if isinstance(value, bool) or not isinstance(value, int):
        message = f"a size must be an integer, not {value!r}"
        raise signature.source.error(node, message, "bad-size")
    return value


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


def check_results(frame: Frame, results: Sequence[Tensor]) -> None:
    """Raises SourceError where results do not have the ranks and extents of their types."""
    place = frame.signature.node.body[-1]
    wanted = frame.signature.results
    if len(results) != len(wanted):
        message = f"{len(results)} values are returned, but {len(wanted)} types are stated"
        raise frame.error(place, message, "wrong-rank")
    for position, (tensor, type_) in enumerate(zip(results, wanted, strict=True), 1):
        _check_result(frame, place, tensor, type_, position)


def _check_result(frame: Frame, place: ast.AST, tensor: Tensor, type_: Type, position: int) -> None:
    shape = type_.shape(frame.source, frame.sizes)
    if shape != tensor.shape:
        code = "wrong-rank" if len(shape) != len(tensor.shape) else "size-mismatch"
        message = (
            f"result {position} has shape {_shape(tensor.shape)}, but its type says {_shape(shape)}"
        )
        raise frame.error(place, message, code)


def convert(frame: Frame, node: ast.AST, term: Term, dtype: str, result: bool = False) -> Term:
    """The term as a value of a declared type: a rounding where the type is narrower than what the
    term carries, the term itself where it is f32 (arithmetic's own type) and for integers. A result
    may round a float to an integer type, an argument may not. Raises SourceError."""
    have, want = frame.type(term), carried(dtype)
    if (have == "bool") != (want == "bool"):
        kinds = ("a truth value", "a number") if want == "bool" else ("a number", "a truth value")
        raise frame.error(node, f"expected {kinds[0]} here, not {kinds[1]}", "wrong-type")
    if is_float(have) and not is_float(dtype) and not result:
        raise frame.error(node, f"expected an integer ({dtype}) here, not a float", "wrong-type")
    if dtype in ("f32", "bool", have) or _has_type(term, dtype):
        return term
    if is_integer(have) and dtype in ("i32", "i64"):
        return term
    return Cast(dtype, term)


def _has_type(term: Term, dtype: str) -> bool:
    match term:
        case Load(buffer, _):
            return buffer.dtype == dtype
        case Cast(stated, _):
            return stated == dtype
    return False


def _convert_tensor(
    frame: Frame, node: ast.AST, tensor: Tensor, dtype: str, result: bool = False
) -> Tensor:
    if isinstance(tensor, Stored):
        session = frame.session
        axes = tuple(session.axis("i", e, MAX_CALL_DEPTH) for e in tensor.shape)
        element = tensor.at(tuple(Index(a) for a in axes))
        converted = convert(frame, node, element, dtype, result)
        return tensor if converted is element else Inline(session.note(converted), axes)
    return Inline(convert(frame, node, tensor.term, dtype, result), tensor.axes)
