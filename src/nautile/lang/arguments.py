"""What a call passes and gets back: arguments by name, sizes, and values of the declared types."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from nautile.dtypes import DTYPES, is_float, is_integer
from nautile.lang.limits import MAX_CALL_DEPTH
from nautile.lang.session import Frame, Inline, Stored, Tensor
from nautile.lang.signature import Parameter, Signature, Type, checked_size, number, size_value
from nautile.lang.source import nearest
from nautile.terms import Cast, Const, Index, Load, Term
from nautile.types import carried

__all__ = [
    "check_results",
    "complete_sizes",
    "convert",
    "convert_tensor",
    "default_of",
    "given_arguments",
    "shape_text",
    "size_keywords",
]


def given_arguments(frame: Frame, node: ast.Call, signature: Signature) -> dict[str, ast.expr]:
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


def size_keywords(frame: Frame, node: ast.Call, signature: Signature) -> dict[str, int]:
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
        have, want = shape_text(tensor.shape), shape_text(shape)
        message = f"result {position} has shape {have}, but its type says {want}"
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


def convert_tensor(
    frame: Frame, node: ast.AST, tensor: Tensor, dtype: str, result: bool = False
) -> Tensor:
    if isinstance(tensor, Stored):
        session = frame.session
        axes = tuple(session.axis("i", e, MAX_CALL_DEPTH) for e in tensor.shape)
        element = tensor.at(tuple(Index(a) for a in axes))
        converted = convert(frame, node, element, dtype, result)
        return tensor if converted is element else Inline(session.note(converted), axes)
    return Inline(convert(frame, node, tensor.term, dtype, result), tensor.axes)


def default_of(parameter: Parameter) -> Term:
    """The default of a scalar as a constant of its type."""
    assert parameter.default is not None
    value, kind = parameter.default, DTYPES[parameter.type.dtype].kind
    return Const(value if kind == "float" else bool(value) if kind == "bool" else int(value))


def shape_text(shape: tuple[int, ...]) -> str:
    """`[4, 8]`."""
    return f"[{', '.join(map(str, shape))}]"


# --- bodies
