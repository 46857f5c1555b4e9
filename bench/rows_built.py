"""Builds the variants of rows_variants.py: machine code and how it is launched, in one folder."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nautile import lang
from nautile.codegen.compile import compile_kernel
from nautile.codegen.lower import lower
from nautile.codegen.rows import (
    RowOptions,
    RowProgram,
    as_rows,
    emit_rows,
    emit_rows_cluster,
    emit_rows_walked,
)
from nautile.codegen.rows.geometry import DEFAULT
from nautile.codegen.source import CudaKernel
from nautile.errors import NautileError
from nautile.extract.kernel import Kernel
from nautile.stages import Optimization, Options, choose, saturate
from nautile.terms import buffers
from nautile.worker import Worker

__all__ = ["build_all"]

SIZES = {
    "layernorm_rows": (65536, 4096, 1024, 16384, 32768),
    "rmsnorm_residual": (65536, 4096, 16384, 1024, 32768),
    "softmax_rows": (65536, 4096, 16384, 1024, 32768),
    "layernorm_rows_f32": (65536, 4096, 16384),
    "softmax_rows_f32": (65536, 4096, 1024, 16384, 32768),
    "logsumexp_rows": (128256, 4096, 32768),
    "bias_gelu_gate": (4096, 14336),
    "swiglu_rows": (4096, 14336),
}
HINTS = {
    "plain stores": ("st.global.cs.", "st.global."),
    "loads kept": ("ld.global.nc.L1::no_allocate.", "ld.global.nc."),
    "L2 of 256": ("ld.global.nc.L1::no_allocate.", "ld.global.nc.L1::no_allocate.L2::256B."),
}
WIDTH = {"softmax_rows_f32": 4, "layernorm_rows_f32": 4}


@dataclass(frozen=True, slots=True)
class Variant:
    """A schedule, the cache hints that are replaced, and whether a streamed fold is made resident
    (each fold complete before the next) before it is lowered."""

    options: RowOptions = DEFAULT
    hint: str = ""
    resident: bool = False

    @property
    def name(self) -> str:
        o = self.options
        fields = {"c": o.cluster, "t": o.threads, "h": o.held, "r": o.block_rows, "o": o.occupancy}
        said = [f"{k}{v}" for k, v in fields.items() if v != (1 if k == "c" else 0)]
        said += [f"k{o.room}"] * (o.room != DEFAULT.room)
        said += ["staged"] * o.staged + [f"s{o.ring}"] * bool(o.ring)
        said += ["taken"] * o.taken
        said += [f"e{o.early}"] * (o.early != DEFAULT.early) + ["alone"] * (not o.overlap)
        said += [self.hint] * bool(self.hint) + ["resident"] * self.resident
        return " ".join(said) or "chosen"


def build_all(programs: Path, folder: Path, only: str) -> int:
    """Write DIR/variants.json and the machine code of all variants; what fails is told there."""
    folder.mkdir(parents=True, exist_ok=True)
    worker = Worker()
    cases = []
    for name, columns in _ordered():
        case = f"{name}-4096x{columns}"
        if only in case:
            kernel = _chosen(programs, name, columns, worker)
            cases.append({"case": case, "program": name, **_built(kernel, case, folder)})
            print(case, len(cases[-1]["variants"]), flush=True)
            (folder / "variants.json").write_text(json.dumps(cases, indent=1) + "\n")
    worker.close()
    return 0


def _ordered() -> list[tuple[str, int]]:
    """The first size of every program, then the second of each: a run may end early."""
    rows = ([(name, c) for c in sizes] for name, sizes in SIZES.items())
    return [pair for row in itertools.zip_longest(*rows) for pair in row if pair]


def _chosen(programs: Path, name: str, columns: int, worker: Worker) -> Kernel:
    (program,) = (
        p for p in lang.parse_file(programs, dims={"M": 4096, "N": columns}) if p.name == name
    )
    made = Optimization(program, Options())
    saturate(made, worker)
    choose(made)
    assert made.plan is not None
    (kernel,) = made.plan.kernels
    return kernel


def _built(kernel: Kernel, case: str, folder: Path) -> dict[str, Any]:
    program = case.partition("-")[0]
    columns = int(case.rpartition("x")[2])
    wanted = list(dict.fromkeys(_variants(program, columns // WIDTH.get(program, 8))))
    with ThreadPoolExecutor() as pool:
        rows = list(pool.map(lambda v: _compiled(kernel, v, case, folder), wanted))
    inputs = list(buffers(*(o.term for o in kernel.outputs)))
    outputs = [o.buffer for o in kernel.outputs]
    described = [
        {"name": b.name, "shape": b.shape, "dtype": b.dtype, "output": b in outputs}
        for b in (*inputs, *outputs)
    ]
    return {
        "buffers": described,
        "variants": [r for r in rows if "cubin" in r],
        "failed": [r for r in rows if "cubin" not in r],
    }


def _variants(program: str, vectors: int) -> Iterator[Variant]:
    """What is tried for rows of so many vectors of 16 bytes."""
    yield Variant()
    yield Variant(RowOptions(overlap=False))
    if program in ("bias_gelu_gate", "swiglu_rows"):
        for threads, held in itertools.product((128, 256, 512), (1, 2, 4)):
            if math.ceil(vectors / (threads * held)) * threads * held <= vectors * 1.15:
                yield Variant(RowOptions(threads=threads, held=held))
        return
    if vectors <= 4096:
        yield from (Variant(RowOptions(early=n)) for n in (16, 32))
    yield from _clusters(vectors)
    yield from _rings(program, vectors)


def _clusters(vectors: int) -> Iterator[Variant]:
    """One row after the other in a cluster."""
    for cluster, threads in itertools.product((2, 4, 8), (256, 512)):
        held = vectors / cluster / threads
        if vectors >= 4096 and 2 <= held <= 8:
            for n in (0, 768, 1024):
                fixed = RowOptions(cluster, threads, occupancy=n // threads)
                yield Variant(fixed, resident=True)


def _rings(program: str, vectors: int) -> Iterator[Variant]:
    """Rings of rows, by one block or a cluster; results stored by threads or taken away."""
    sizes = itertools.product((1, 2, 4, 8), (1, 2, 4, 8), (2, 3), (False, True))
    for cluster, held, ring, taken in sizes:
        part = vectors // cluster
        threads = part // held
        if not 32 <= threads <= 1024 or threads % 32 or (cluster > 1 and part < 1024):
            continue
        for room in (0, 32) if program.startswith("softmax") and vectors <= 1024 else (0,):
            fixed = RowOptions(cluster, threads, room=room, ring=ring, taken=taken)
            yield Variant(fixed, resident=True)


def _compiled(kernel: Kernel, variant: Variant, case: str, folder: Path) -> dict[str, Any]:
    try:
        cuda = _emitted(kernel, variant)
        made = compile_kernel(cuda, "sm_90")
    except NautileError as error:
        return {"variant": variant.name, "error": str(error)[:200]}
    file = f"{case}-{variant.name}.cubin".replace(" ", "_").replace(":", "")
    (folder / file).write_bytes(made.cubin)
    return {
        "variant": variant.name,
        "cubin": file,
        "kernel": cuda.name,
        "grid": cuda.grid,
        "threads": cuda.threads,
        "shared": cuda.shared_bytes,
        "arguments": cuda.buffers,
        "registers": made.report.registers,
        "overlaps": cuda.overlaps,
    }


def _emitted(kernel: Kernel, variant: Variant) -> CudaKernel:
    rows = _rows(kernel, variant.resident)
    precise = any(o.buffer.dtype == "f32" for o in kernel.outputs)
    options = variant.options
    alone = emit_rows if options.cluster == 1 else emit_rows_cluster
    emit = emit_rows_walked if options.ring else alone
    cuda = emit(rows, "rows", precise, options)
    return replace(cuda, text=cuda.text.replace(*HINTS[variant.hint])) if variant.hint else cuda


def _rows(kernel: Kernel, resident: bool) -> RowProgram:
    (part,) = kernel.parts
    if resident:
        tiles = {a: a.extent if a in part.streams else t for a, t in part.tiles.items()}
        part = replace(part, tiles=tiles, streams=())
    rows = as_rows(lower(replace(kernel, parts=(part,)), part))
    assert rows is not None
    return rows
