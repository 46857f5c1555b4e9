"""What the page shows beside the explanation: the source and its definitions, and for each kernel
its tile programs and CUDA, every line with the definition that it belongs to.

```
Program  ::= {"lines", "filename", "definitions": [Definition], "device", "kernels": [name]}
Definition ::= {"name", "axes", "tree", "line",       line of the source, from 0
                "class": key of its e-class as the explorer spells it, or null}
Kernel   ::= {"name", "ways": [{"architecture", "schedule", "steps": [Step]}]}
Step     ::= {"name", "tile": [Line], "cuda": [text], "origin": [[number of a tile line]]}
Line     ::= {"text", "piece": number of a definition or -1, "equal": [numbers of source terms]}
```
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from nautile.codegen.kernel_text import identifier
from nautile.codegen.lower import meanings
from nautile.codegen.show import show
from nautile.codegen.tile import (
    Fold,
    Loop,
    Map,
    Mma,
    Read,
    Ref,
    Statement,
    TileProgram,
    Write,
)
from nautile.errors import LoweringError
from nautile.inspector.page.lines import origins
from nautile.inspector.page.pieces import Place, Sources
from nautile.inspector.page.typeset import tree
from nautile.terms import walk

if TYPE_CHECKING:
    from nautile.built import Implementation, Step
    from nautile.extract.kernel import Kernel, Part
    from nautile.stages import Optimization
    from nautile.terms import Program

__all__ = ["kernel_data", "program_data", "sources"]


def sources(result: Optimization) -> Sources:
    """The pieces of a result's program."""
    kernels = () if result.plan is None else result.plan.kernels
    return Sources.of(result.work, result.regions, result.snapshots, kernels)


def program_data(result: Optimization, found: Sources) -> dict[str, Any]:
    """The source, its definitions and the device that figures are for."""
    program = result.program
    lines = program.source.splitlines()
    places = _assigned(program)
    return {
        "filename": program.filename,
        "lines": lines,
        "definitions": [
            {
                "name": d.buffer.name,
                "axes": [a.name for a in d.axes],
                "tree": tree(d.term, found.ids),
                "line": places.get(d.buffer.name),
                "class": _key(home, len(result.snapshots)),
            }
            for d, home in zip(found.definitions, found.homes, strict=True)
        ],
        "device": _device(result.options.target),
        "kernels": [b.kernel.name for b in result.built],
        "pieces": [sorted(_pieces(k, found)) for k in _chosen(result)],
    }


def _key(home: tuple[int, int] | None, regions: int) -> str | None:
    """As exports/table.py spells it."""
    if home is None:
        return None
    region, number = home
    return f"{number}" if regions == 1 else f"{region}.{number}"


def _chosen(result: Optimization) -> tuple[Kernel, ...]:
    return () if result.plan is None else result.plan.kernels


def _pieces(kernel: Kernel, found: Sources) -> set[int]:
    """The definitions that a kernel's terms belong to."""
    places = (found.place(t) for o in kernel.outputs for t in walk(o.term))
    return {p.piece for p in places if p is not None}


def _assigned(program: Program) -> dict[str, int]:
    """The line of the source, from 0, where each name is assigned; none where it does not parse."""
    try:
        parsed = ast.parse(program.source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    found: dict[str, int] = {}
    for node in ast.walk(parsed):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for name in (n for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)):
                found.setdefault(name.id, node.lineno - 1)
                break
    return found


def _device(target: str) -> dict[str, Any]:
    from nautile import extract

    d = extract.device(target)
    return {
        "name": d.name,
        "description": d.description,
        "bytes": {"dram": d.memory_bandwidth, "l2": d.l2_bandwidth},
        "flops": {"fp32": d.fp32, **{f"tensor {k}": d.tensor_rate(k) for k in d.tensor[d.path]}},
        "special": d.special,
        "launch_seconds": d.launch_seconds,
    }


def kernel_data(result: Optimization, number: int, found: Sources) -> dict[str, Any]:
    """One kernel of a built result with its ways to run, all the way down."""
    built = result.built[number]
    rounding = result.options.numerics != "exact"
    return {
        "name": built.kernel.name,
        "ways": [
            {
                "architecture": way.architecture,
                "schedule": way.schedule,
                "steps": list(_steps(way, found, rounding)),
            }
            for way in built.implementations
        ],
    }


def _steps(way: Implementation, found: Sources, rounding: bool) -> Iterator[dict[str, Any]]:
    parts = iter(way.kernel.parts)
    for step in way.steps:
        pairs = [(program, next(parts)) for program in step.tiles]
        yield _step(way.kernel, step, pairs, found, rounding)


def _step(
    kernel: Kernel,
    step: Step,
    pairs: Sequence[tuple[TileProgram, Part]],
    found: Sources,
    rounding: bool,
) -> dict[str, Any]:
    lines: list[dict[str, Any]] = []
    tiles: dict[str, int] = {}
    buffers: dict[str, int] = {}
    readers: dict[int, list[int]] = {}
    for program, part in pairs:
        held = _held(kernel, part, rounding)
        texts = show(program).splitlines()
        lines.append({"text": texts[0], "piece": -1, "equal": []})
        for text, statement in zip(texts[1:], _flat(program.body), strict=True):
            place = _place(statement, held, found)
            for name in _read(statement):
                if name in tiles:
                    readers.setdefault(tiles[name], []).append(len(lines))
            _register(statement, len(lines), tiles, buffers)
            piece, equal = (-1, ()) if place is None else (place.piece, place.equal)
            lines.append({"text": text, "piece": piece, "equal": list(equal)})
    cuda = step.cuda.text.splitlines()
    found_at = origins(cuda, tiles, buffers, readers)
    return {
        "name": step.cuda.name,
        "tile": lines,
        "cuda": cuda,
        "origin": [list(o) for o in found_at],
    }


def _held(kernel: Kernel, part: Part, rounding: bool) -> dict[str, Any]:
    """What the tiles hold; nothing where the part does not lower by itself."""
    try:
        return dict(meanings(kernel, part, rounding=rounding))
    except LoweringError:
        return {}


def _flat(body: Sequence[Statement]) -> Iterator[Statement]:
    for statement in body:
        yield statement
        if isinstance(statement, Loop):
            yield from _flat(statement.body)


def _place(statement: Statement, held: dict[str, Any], found: Sources) -> Place | None:
    if isinstance(statement, Loop):
        return None
    name = statement.source.name if isinstance(statement, Write) else statement.target.name
    term = held.get(name)
    return None if term is None else found.place(term)


def _read(statement: Statement) -> Iterator[str]:
    """Names of the tiles that a statement reads."""
    match statement:
        case Map(_, value):
            yield from (t.tile.name for t in walk(value) if isinstance(t, Ref))
        case Fold():
            yield from (t.name for t in (statement.source, statement.repair) if t is not None)
        case Mma():
            read = (statement.left, statement.right, statement.repair)
            yield from (t.name for t in read if t is not None)
        case Write():
            yield statement.source.name


def _register(
    statement: Statement, line: int, tiles: dict[str, int], buffers: dict[str, int]
) -> None:
    """Names in CUDA that stand for the statement: its tile's, and the tensor's that it touches."""
    if isinstance(statement, Write):
        buffers[identifier(statement.buffer.name)] = line
    elif not isinstance(statement, Loop):
        tiles.setdefault(statement.target.name, line)
        before = getattr(statement, "before", None)
        if before is not None:
            tiles.setdefault(before.name, line)
        if isinstance(statement, Read):
            buffers.setdefault(identifier(statement.buffer.name), line)
