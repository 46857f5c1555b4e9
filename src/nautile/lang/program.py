"""Programs: a checked body with its inputs, sizes and results, over canonical axes."""

from __future__ import annotations

from collections.abc import Mapping

from nautile.lang.arguments import check_results
from nautile.lang.body import run, store
from nautile.lang.families import canonical
from nautile.lang.module import Module
from nautile.lang.session import Frame, Inline, Session, Stored, Tensor
from nautile.lang.signature import Parameter, Signature, Type, checked_size, number
from nautile.terms import Buffer, Definition, Index, Load, Output, Program

__all__ = ["read_program", "resolve_sizes"]


def resolve_sizes(signature: Signature, dims: Mapping[str, int]) -> dict[str, int]:
    """The sizes that are known: from `dims`, else from their defaults. Raises SourceError."""
    sizes: dict[str, int] = {}
    for name, default in signature.sizes.items():
        place = signature.node if default is None else default
        if name in dims:
            sizes[name] = checked_size(signature.source, place, dims[name])
        elif default is not None:
            value = number(signature.source, default, sizes)
            if isinstance(value, bool) or not isinstance(value, int):
                message = f"the size {name} must be an integer, not {value!r}"
                raise signature.source.error(default, message, "bad-size")
            sizes[name] = checked_size(signature.source, default, value)
    return sizes


def read_program(module: Module, signature: Signature, sizes: Mapping[str, int]) -> Program:
    """The program of a head and its body. Raises SourceError, LimitError."""
    session = Session(signature.name, run)
    inputs = tuple(_input(signature, p, sizes) for p in signature.parameters)
    session.names.update(b.name for b in inputs)
    session.calls.append((signature.source.filename, signature.name))
    tensors: dict[str, Tensor] = {b.name: Stored(b) for b in inputs}
    frame = Frame(session, signature, sizes, tensors, module)
    results = run(frame)
    check_results(frame, results)
    returned = [_result(frame, t, r) for t, r in zip(signature.results, results, strict=True)]
    _check_distinct(frame, [name for name, _ in returned])
    scalars = {b.name for b in inputs if not b.shape}
    scalars |= {d.name for d in session.definitions if not d.axes}
    definitions = canonical(session.definitions, session.bindings, scalars)
    by_name = {d.name: d for d in definitions}
    return Program(
        name=signature.name,
        inputs=inputs,
        definitions=tuple(definitions),
        outputs=tuple(_output(by_name[name], dtype) for name, dtype in returned),
        sizes=dict(sizes),
        defaults={p.name: p.default for p in signature.parameters if p.default is not None},
        source=signature.source.segment(signature.node),
        filename=signature.source.filename,
    )


def _input(signature: Signature, parameter: Parameter, sizes: Mapping[str, int]) -> Buffer:
    type_ = parameter.type
    return Buffer(parameter.name, type_.shape(signature.source, sizes), type_.dtype)


def _result(frame: Frame, type_: Type, tensor: Tensor) -> tuple[str, str]:
    """The definition that holds a result, and its declared type."""
    session = frame.session
    defined = {d.name: d for d in session.definitions}
    if isinstance(tensor, Inline):
        tensor = _stored(frame, tensor)
    elif tensor.buffer.name not in defined:
        axes = tuple(session.axis("ijklmnop"[n % 8], e, 1) for n, e in enumerate(tensor.shape))
        tensor = _stored(frame, Inline(tensor.at(tuple(Index(a) for a in axes)), axes))
    have = tensor.buffer.dtype
    if (have == "bool") != (type_.dtype == "bool"):
        place = frame.signature.node.body[-1]
        message = f"{tensor.buffer.name} holds {have} values, but its result type is {type_.dtype}"
        raise frame.error(place, message, "wrong-type")
    return tensor.buffer.name, type_.dtype


def _check_distinct(frame: Frame, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            message = f"{name} is returned twice; return it once"
            raise frame.error(frame.signature.node.body[-1], message, "assigned-twice")


def _stored(frame: Frame, tensor: Inline) -> Stored:
    place = frame.signature.node.body[-1]
    stored = store(frame, "result", tensor.axes, tensor.term, place)
    assert isinstance(stored, Stored)
    return stored


def _output(definition: Definition, dtype: str) -> Output:
    buffer = Buffer(definition.name, definition.buffer.shape, dtype)
    return Output(
        buffer, definition.axes, Load(definition.buffer, tuple(Index(a) for a in definition.axes))
    )
