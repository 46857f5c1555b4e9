"""Files and texts to programs."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

from nautile.errors import InputError, LimitError
from nautile.lang.limits import read
from nautile.lang.module import Module, prelude, read_module
from nautile.lang.program import read_program, resolve_sizes
from nautile.lang.signature import Signature
from nautile.lang.source import Source, nearest
from nautile.terms import Program

__all__ = ["parse", "parse_file"]


def parse_file(path: str | Path, dims: Mapping[str, int] | None = None) -> tuple[Program, ...]:
    """The programs of a file; see `parse`. Raises InputError as well where it cannot be read."""
    return parse(read(Path(path)), str(path), dims)


def parse(
    text: str, filename: str = "<text>", dims: Mapping[str, int] | None = None
) -> tuple[Program, ...]:
    """The checked programs of a text, in order, with `dims` in place of default sizes.

    A program that others of the text call, and whose sizes are not all known or whose arguments are
    all scalars, is an operation of theirs and no program of its own. Raises SourceError at the
    place of a mistake, LimitError where a limit is passed.
    """
    module = read_module(Source(text, filename), prelude())
    wanted = dict(dims or {})
    _check_dims(module, wanted)
    called = _called(module)
    try:
        programs = [
            read_program(module, signature, sizes)
            for signature in module.programs.values()
            if (sizes := _sizes(signature, called, wanted)) is not None
        ]
        if not programs and module.programs:  # all are called: they call each other
            first = next(iter(module.programs.values()))
            programs = [read_program(module, first, resolve_sizes(first, wanted))]
    except RecursionError:
        raise LimitError(f"{filename}: expressions are nested too deeply to be read") from None
    if not programs:
        raise InputError(
            f"{filename}: holds no program: write `def name(x: f32[N], *, N=1024) -> f32[N]:`",
            code="no-program",
        )
    return tuple(programs)


def _check_dims(module: Module, dims: Mapping[str, int]) -> None:
    known = {size for signature in module.programs.values() for size in signature.sizes}
    for name, value in dims.items():
        if name not in known:
            message = f"{module.source.filename}: there is no size named {name}"
            raise InputError(f"{message}.{nearest(name, known)}", code="unknown-name")
        if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
            message = f"{module.source.filename}: the size {name} must be a positive integer"
            raise InputError(f"{message}, not {value!r}", code="bad-size")


def _sizes(
    signature: Signature, called: frozenset[str], dims: Mapping[str, int]
) -> dict[str, int] | None:
    """The sizes of a program, or None for an operation that only others of the file use."""
    sizes = resolve_sizes(signature, dims)
    complete = len(sizes) == len(signature.sizes)
    if (not complete or signature.scalar) and signature.name in called:
        return None
    return sizes


def _called(module: Module) -> frozenset[str]:
    """The names that programs of the file call, each other than itself."""
    found = set()
    for name, signature in module.programs.items():
        for node in ast.walk(signature.node):
            if isinstance(node, ast.Call):
                head = node.func.value if isinstance(node.func, ast.Subscript) else node.func
                if isinstance(head, ast.Name) and head.id != name:
                    found.add(head.id)
    return frozenset(found)
