"""The source program priced as it stands: one kernel for each definition."""

from __future__ import annotations

from collections.abc import Mapping

from nautile.dtypes import DTYPES
from nautile.extract.device import Device
from nautile.extract.roofline import schedules
from nautile.terms import Definition, Index, Load, Output, Program, buffers

__all__ = ["baseline", "source_kernels"]


def source_kernels(program: Program) -> tuple[tuple[Output, ...], ...]:
    """What each kernel of the unoptimized program stores: one kernel a definition that the outputs
    depend on; an output that is a definition as it stands is stored by that definition's kernel."""
    definitions = {d.name: d for d in program.definitions}
    needed = _needed(program, definitions)
    kernels: dict[str, list[Output]] = {}
    read = _read_by_others(program, needed, definitions)
    for name in needed:
        d = definitions[name]
        kernels[name] = [Output(d.buffer, d.axes, d.body)] if name in read else []
    alone: list[list[Output]] = []
    for output in program.outputs:
        name = _same_as(output)
        if name in kernels:
            d = definitions[name]
            kernels[name].append(Output(output.buffer, d.axes, d.body))
        else:
            alone.append([output])
    return tuple(tuple(k) for k in [*kernels.values(), *alone] if k)


def _needed(program: Program, definitions: Mapping[str, Definition]) -> list[str]:
    found: set[str] = set()
    todo = [o.term for o in program.outputs]
    while todo:
        for buffer in buffers(todo.pop()):
            if buffer.name in definitions and buffer.name not in found:
                found.add(buffer.name)
                todo.append(definitions[buffer.name].body)
    return [d.name for d in program.definitions if d.name in found]


def _same_as(output: Output) -> str:
    """The name of the tensor that the output repeats element by element, or ""."""
    term = output.term
    same = isinstance(term, Load) and term.coordinates == tuple(Index(a) for a in output.axes)
    return term.buffer.name if same and isinstance(term, Load) else ""


def _read_by_others(
    program: Program, needed: list[str], definitions: Mapping[str, Definition]
) -> set[str]:
    terms = [definitions[n].body for n in needed]
    terms += [o.term for o in program.outputs if _same_as(o) not in definitions]
    return {b.name for t in terms for b in buffers(t)}


def baseline(program: Program, device: Device) -> dict[str, float]:
    """Kernels, bytes through memory and predicted seconds of the source program on `device`."""
    kernels = source_kernels(program)
    moved, seconds = 0, 0.0
    for outputs in kernels:
        best = schedules(outputs, device, 1)
        if best:
            prediction = best[0][1]
            moved += prediction.reads_bytes + prediction.writes_bytes
            seconds += prediction.seconds
        else:
            own = _bytes(outputs)
            moved, seconds = moved + own, seconds + own / device.memory_bandwidth
    return {"kernels": len(kernels), "bytes": moved, "seconds": seconds}


def _bytes(outputs: tuple[Output, ...]) -> int:
    """Bytes of a kernel's tensors, each once: what is left where no schedule fits."""
    tensors = {b.name: b for o in outputs for b in (*buffers(o.term), o.buffer)}
    return sum(b.size * DTYPES[b.dtype].bytes for b in tensors.values())
