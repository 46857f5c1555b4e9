"""The launches of a manifest: each has implementations, and each of those its kernels.

```
Launch         ::= program, name, implementations [Implementation]     the best first
Implementation ::= schedule (text for people), kernels [Kernel]        run one after the other
Kernel         ::= kernel (its symbol), source (file), cubins {architecture: file}, grid [x, y, z],
                   threads, shared_bytes, maps [TensorMap], arguments [buffer names], counters
                   (words of i32), options [NVRTC options], architecture (the lowest that it
                   needs), zeroed [buffer names], overlaps (optional: it waits for the kernels
                   before it on the device)
TensorMap      ::= buffer, dtype, extents, strides, box, swizzle, offset   (see codegen/source.py)
```

The launcher takes the first implementation that runs on the device present. Parameters of a kernel
are its maps (128 bytes each, by value), the pointers of its arguments, and a pointer to counters if
there are any. Bounds of tensor maps are those of cuTensorMapEncodeTiled (CUDA driver API, "Tensor
Map Object Management"); a map never reaches beyond its buffer. Needs the standard library alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nautile.bundle.fields import (
    ARCHITECTURE,
    FILE,
    ITEM_BYTES,
    MAX_BYTES,
    count,
    counts,
    is_count,
    is_text,
    items,
    known,
    mapping,
    match,
    names,
    rows,
    text,
    wrong,
)
from nautile.codegen.source import TensorMap
from nautile.errors import BundleError

if TYPE_CHECKING:
    from nautile.bundle.manifest import Buffer

__all__ = [
    "Implementation",
    "Kernel",
    "Launch",
    "check_launch",
    "launch",
    "launch_of_format_1",
    "refusal",
]

MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_THREADS = 1024
MAX_SHARED = 228 * 1024
MAX_COUNTERS = 1 << 24
MAX_MAPS = 30  # 4 KB of parameters hold that many, and pointers
SWIZZLES = (0, 32, 64, 128)

_SYMBOL = r"[A-Za-z_][A-Za-z0-9_]{0,200}"
_OPTION = (
    r"--?std=c\+\+\d\d|--?(ftz|prec-div|prec-sqrt|fmad)=(true|false)|--?maxrregcount=\d{1,3}"
    r"|--?(default-device|device-as-default-execution-space|extra-device-vectorization)"
    r"|-D[A-Za-z_]\w*(=\w+)?"
)


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel as it is launched; `arguments` are the buffers whose pointers it takes."""

    kernel: str
    source: str
    cubins: Mapping[str, str]
    grid: tuple[int, int, int]
    threads: int
    shared_bytes: int
    arguments: tuple[str, ...]
    options: tuple[str, ...]
    architecture: str
    zeroed: tuple[str, ...] = ()
    maps: tuple[TensorMap, ...] = ()
    counters: int = 0
    overlaps: bool = False

    @property
    def buffers(self) -> frozenset[str]:
        """The tensors that it reads or writes."""
        return frozenset(self.arguments) | {m.buffer for m in self.maps}


@dataclass(frozen=True, slots=True)
class Implementation:
    """One way to do a launch's work: usually one kernel."""

    schedule: str
    kernels: tuple[Kernel, ...]


@dataclass(frozen=True, slots=True)
class Launch:
    """One step of a program, and the ways to do it: the best first."""

    program: str
    name: str
    implementations: tuple[Implementation, ...]

    @property
    def kernels(self) -> Iterator[Kernel]:
        """The kernels of all implementations."""
        return (k for way in self.implementations for k in way.kernels)

    @property
    def written(self) -> frozenset[str]:
        """The tensors that every implementation reads or writes."""
        return frozenset.intersection(
            *(frozenset().union(*(k.buffers for k in w.kernels)) for w in self.implementations)
        )


def launch(row: Mapping[str, Any], where: str) -> Launch:
    """A launch row. BundleError names the first field that is wrong."""
    ways = rows(row, "implementations", _implementation, where)
    if not ways:
        raise wrong(f"{where}: implementations", [], "at least one")
    return Launch(text(row, "program", where), text(row, "name", where), ways)


def launch_of_format_1(row: Mapping[str, Any], where: str) -> Launch:
    """A launch row of bundles of format 1: one kernel."""
    made = _kernel({"maps": [], "counters": 0} | dict(row), where)
    return Launch(text(row, "program", where), made.kernel, (Implementation("", (made,)),))


def _implementation(row: Mapping[str, Any], where: str) -> Implementation:
    kernels = rows(row, "kernels", _kernel, where)
    if not kernels:
        raise wrong(f"{where}: kernels", [], "at least one")
    return Implementation(text(row, "schedule", where, least=0), kernels)


def _kernel(row: Mapping[str, Any], where: str) -> Kernel:
    cubins = mapping(row, "cubins", is_text, where)
    maps = rows(row, "maps", _map, where)
    if len(maps) > MAX_MAPS:
        raise wrong(f"{where}: maps", len(maps), f"at most {MAX_MAPS}")
    return Kernel(
        kernel=match(row.get("kernel"), _SYMBOL, f"{where}.kernel"),
        source=match(row.get("source"), FILE, f"{where}.source"),
        cubins={
            match(a, ARCHITECTURE, f"{where}.cubins"): match(f, FILE, f"{where}.cubins")
            for a, f in cubins.items()
        },
        grid=_grid(row, where),
        threads=count(row, "threads", 1, MAX_THREADS, where),
        shared_bytes=count(row, "shared_bytes", 0, MAX_SHARED, where),
        arguments=names(row, "arguments", where),
        options=tuple(match(o, _OPTION, f"{where}.options") for o in items(row, "options", where)),
        architecture=match(row.get("architecture"), ARCHITECTURE, f"{where}.architecture"),
        zeroed=names(row, "zeroed", where),
        maps=maps,
        counters=count(row, "counters", 0, MAX_COUNTERS, where),
        overlaps=_flag(row, "overlaps", where),
    )


def _flag(row: Mapping[str, Any], field: str, where: str) -> bool:
    """True or false; false where the field is missing."""
    value = row.get(field, False)
    if not isinstance(value, bool):
        raise wrong(f"{where}.{field}", value, "true or false")
    return value


def _grid(row: Mapping[str, Any], where: str) -> tuple[int, int, int]:
    grid = items(row, "grid", where)
    fits = len(grid) == 3 and all(
        is_count(n, 1, most) for n, most in zip(grid, MAX_GRID, strict=True)
    )
    if not fits:
        raise wrong(f"{where}.grid", grid, f"three numbers from 1 to {MAX_GRID}")
    return (grid[0], grid[1], grid[2])


def _map(row: Mapping[str, Any], where: str) -> TensorMap:
    dtype = text(row, "dtype", where)
    swizzle: Any = row.get("swizzle")
    if dtype not in ITEM_BYTES:
        raise wrong(f"{where}.dtype", dtype, f"one of {', '.join(ITEM_BYTES)}")
    if not is_count(swizzle, 0, 128) or swizzle not in SWIZZLES:
        raise wrong(f"{where}.swizzle", swizzle, f"one of {SWIZZLES}")
    made = TensorMap(
        buffer=text(row, "buffer", where),
        dtype=dtype,
        extents=counts(row, "extents", 1, 2**32, where),
        strides=counts(row, "strides", 0, 2**40 - 1, where),
        box=counts(row, "box", 1, 256, where),
        swizzle=swizzle,
        offset=count(row, "offset", 0, MAX_BYTES, where),
    )
    _check_map(made, where)
    return made


def _check_map(made: TensorMap, where: str) -> None:
    reason = refusal(made)
    if reason:
        raise wrong(where, made, reason)


def refusal(view: TensorMap, nbytes: int = MAX_BYTES) -> str:
    """What cuTensorMapEncodeTiled would not take of a map's fields together, or where the view
    ends beyond a buffer of `nbytes`; empty if nothing is wrong."""
    rank, item = len(view.extents), ITEM_BYTES[view.dtype]
    if not 1 <= rank <= 5 or len(view.box) != rank or len(view.strides) != rank - 1:
        return "1 to 5 extents, as many boxes, a stride less"
    if view.offset % 16 or any(s % 16 for s in view.strides):
        return "offset and strides in multiples of 16 bytes"
    inner = view.box[0] * item
    if inner % 16 or inner > (view.swizzle or MAX_SHARED):
        return "a box whose rows are multiples of 16 bytes and at most the swizzle"
    last = sum((n - 1) * s for n, s in zip(view.extents[1:], view.strides, strict=True))
    end = view.offset + last + view.extents[0] * item
    return f"an end within {nbytes} bytes, not at {end}" if end > nbytes else ""


def check_launch(
    made: Launch, buffers: Mapping[tuple[str, str], Buffer], files: Mapping[str, Any]
) -> None:
    """BundleError unless every name that the launch uses is in the bundle."""
    where = f"launch {made.name}"
    for kernel in made.kernels:
        for name in (*kernel.arguments, *kernel.zeroed, *(m.buffer for m in kernel.maps)):
            if (made.program, name) not in buffers:
                raise BundleError(f"{where}: no buffer '{name}' in program {made.program}")
        for name in kernel.zeroed:
            if buffers[made.program, name].role == "input":
                raise BundleError(f"{where}: would clear the input '{name}'")
        for view in kernel.maps:
            reason = refusal(view, buffers[made.program, view.buffer].nbytes)
            if reason:
                raise BundleError(f"{where}: a map of '{view.buffer}' needs {reason}")
        for name in (kernel.source, *kernel.cubins.values()):
            known(name, files, where, "file")
