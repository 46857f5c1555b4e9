"""The signature of a kernel with roles, where its rings lie, and its barriers set up."""

from __future__ import annotations

from nautile.codegen.sm80.context import STORED
from nautile.codegen.sm90.context import Context
from nautile.codegen.sm90.options import ALIGNMENT
from nautile.terms import Buffer

__all__ = ["TOGETHER", "prelude"]

TOGETHER = ("nt_cluster_arrive();", "nt_cluster_wait();")  # all blocks of a cluster meet


def prelude(
    ctx: Context, name: str, reads: list[Buffer], writes: list[Buffer], counters: int
) -> None:
    """The head of the kernel, to where all its threads know its barriers; with `counters`, an
    argument for them."""
    program = ctx.roles
    args = [f"const __grid_constant__ nt_map {m}" for m in ctx.maps.values()]
    args += [f"const {STORED[b.dtype]}* __restrict__ {ctx.buffer(b)}" for b in reads]
    args += [f"{STORED[b.dtype]}* __restrict__ {ctx.buffer(b)}" for b in writes]
    args += ["int* __restrict__ counter"] * bool(counters)
    cluster = program.geometry.cluster
    dims = f" __cluster_dims__({cluster}, 1, 1)" * (cluster > 1)
    ctx.emit(
        f'extern "C" __global__ void{dims} __launch_bounds__({program.geometry.threads}, 1)',
        f"{name}({', '.join(args)}) {{",
        "extern __shared__ unsigned char memory[];",
        f"const nt_u32 shared = (nt_shared(memory) + {ALIGNMENT - 1}) & ~{ALIGNMENT - 1}u;",
    )
    for ring in program.rings:
        held = ", ".join(b.name for b in ring.boxes)
        ctx.emit(
            f"const nt_u32 in_{ring.name} = shared + {ring.offset};  // {ring.stages} x"
            f" {ring.slot_bytes} bytes: {held}",
            f"const nt_u32 full_{ring.name} = shared + {ring.barriers};",
            f"const nt_u32 empty_{ring.name} = shared + {ring.barriers + 8 * ring.stages};",
        )
    ctx.emit("const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;")
    ctx.emit("const int warpgroup = nt_uniform(threadIdx.x >> 7);")
    if cluster > 1:
        ctx.emit(f"const int rank = blockIdx.x % {cluster};")
    ctx.emit("if (threadIdx.x == 0) {")
    ctx.emit(*[f"nt_map_prefetch(&{m});" for m in ctx.maps.values()])
    for ring in program.rings:
        several = ring.stages > 1
        ctx.emit(f"for (int i = 0; i < {ring.stages}; i++) {{") if several else None
        at = " + 8 * i" * several
        ctx.emit(f"nt_barrier_init(full_{ring.name}{at}, {1 + ring.formers});")
        ctx.emit(f"nt_barrier_init(empty_{ring.name}{at}, {ring.arrivals * ring.blocks});")
        ctx.emit("}") if several else None
    ctx.emit("nt_barrier_init_done();", "}")
    ctx.emit(*(TOGETHER if program.geometry.cluster > 1 else ("__syncthreads();",)))
