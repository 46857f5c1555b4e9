"""Hopper's device primitives compile for sm_90a, to the instructions that they promise."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nautile.codegen.compile import compile_kernel
from nautile.codegen.headers import blocks, inline
from nautile.codegen.sm90.wgmma import DEPTH, OPERANDS, Pinned, Product, Waiting, wrappers
from nautile.codegen.source import CudaKernel

HEADERS = ("scalar.cuh", "copy.cuh", "mma.cuh", "sm90.cuh")
SIXTEEN = ("bf16", "f16")
# How the parameters of a primitive are given in the kernel that calls all of them.
ARGUMENTS = {
    "const nt_map*": "&map",
    "const void*": "from",
    "void*": "to",
    "nt_u32": "at",
    "nt_u16": "(nt_u16)3",
    "int": "i",
    "float": "x",
    "nt_u32&": "at",
    "nt_u32*": "words",
}
# what stands beside products only: the tests of those use it
ELSEWHERE = {"nt_map", "nt_descriptor", "nt_wgmma_fence", "nt_wgmma_commit"}
TEMPLATES = {
    "nt_give_registers": "<24>",
    "nt_take_registers": "<240>",
    "nt_bulk_wait": "<0>",
    "nt_bulk_wait_read": "<1>",
}


def compiled(text: str, name: str = "f", threads: int = 128) -> None:
    kernel = CudaKernel(
        name, inline(text, *HEADERS), (1, 1, 1), threads, 0, (), architecture="sm_90a"
    )
    report = compile_kernel(kernel, "sm_90a", cache=None).report
    assert (report.warnings, report.spill_stores, report.spill_loads) == ((), 0, 0)


def products(widths: tuple[int, ...]) -> list[Product]:
    """Every variant of the instruction at these widths."""
    found = []
    for n in widths:
        for left, (_, size) in OPERANDS.items():
            majors = (False, True) if size == 2 else (False,)
            others = [r for r in OPERANDS if left in ("f8e4m3", "f8e5m2") and r[:2] == "f8"]
            for right in others or [""]:
                for columns in majors:
                    found += [Product(n, left, right, False, rows, columns) for rows in majors] + [
                        Product(n, left, right, True, False, columns)
                    ]
    return found


def use(product: Product, number: int) -> str:
    """A kernel that multiplies twice and stores what it accumulated."""
    count = product.accumulators
    wait = Waiting(0, (Pinned(count),))
    left = "at, at + 1, at + 2, at + 3" if product.left_registers else "nt_descriptor<128>(at)"
    call = f"{product.name}(d, {left}, nt_descriptor<64>(at, 512), i);"
    return f"""extern "C" __global__ void __launch_bounds__(128) f{number}(float* y, nt_u32 at) {{
  float d[{count}];
#pragma unroll
  for (int i = 0; i < {count}; i++) d[i] = y[i];
  nt_wgmma_fence();
#pragma unroll
  for (int i = 0; i < 2; i++) {call}
  nt_wgmma_commit();
  {wait.name}(d);
#pragma unroll
  for (int i = 0; i < {count}; i++) y[i * 128 + threadIdx.x] = d[i];
}}
"""


def test_every_primitive_compiles_without_warnings() -> None:
    calls = []
    for names, block in blocks("sm90.cuh"):
        for name in names - ELSEWHERE if "NT_DEV" in block else ():
            (given,) = re.findall(rf"{name}\(([^)]*)\)", block.split("NT_DEV", 1)[1])[:1]
            types = [p.strip().rpartition(" ")[0] for p in given.split(",") if p.strip()]
            call = f"{name}{TEMPLATES.get(name, '')}({', '.join(ARGUMENTS[t] for t in types)})"
            value = not re.search(r"NT_DEV void", block)
            calls.append(f"  at += (nt_u32){call};" if value else f"  {call};")
    text = """extern "C" __global__ __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
void f(const __grid_constant__ nt_map map, const void* from, void* to, nt_u32 at, int i, float x) {
  nt_u32 words[4] = {at, at + 1, at + 2, at + 3};
  if (threadIdx.x < 128) nt_give_registers<40>();
  @CALLS@
  *(nt_u32*)to = at + words[0] + words[1] + words[2] + words[3];
}
""".replace("@CALLS@", "\n".join(calls))
    assert len(calls) > 45
    compiled(text, threads=384)


@pytest.mark.parametrize("name", ["nt_tma_load", "nt_tma_spread", "nt_tma_store"])
@pytest.mark.parametrize("axes", [1, 2, 3, 4, 5])
def test_copies_of_each_rank_take_so_many_coordinates(name: str, axes: int) -> None:
    (block,) = [b for names, b in blocks("sm90.cuh") if f"{name}_{axes}d" in names]
    assert len(re.findall(r"int c\d", block)) == axes
    assert f".tensor.{axes}d." in block
    assert len(set(re.findall(r"%\d", block))) == len(re.findall(r'"[rlh]"\(', block))


def test_products_of_every_type_and_source_compile() -> None:
    widest = [p for p in products((256,)) if p.left in ("bf16", "tf32") and not p.left_rows]
    made = [*products((8,)), *widest]
    assert len(made) == (2 * 6 + 2 + 4 * 2) + (4 + 2)
    text = wrappers(made, [Waiting(0, (Pinned(p.accumulators),)) for p in made])
    compiled(text + "\n".join(use(p, i) for i, p in enumerate(made)), "f0")


@pytest.mark.slow
@pytest.mark.parametrize("n", range(16, 264, 8))
def test_products_of_every_width_compile(n: int) -> None:
    made = products((n,))
    text = wrappers(made, [Waiting(0, (Pinned(n // 2),))])
    compiled(text + "\n".join(use(p, i) for i, p in enumerate(made)), "f0")


def test_a_wait_holds_several_arrays_while_a_group_flies() -> None:
    """As in attention: S = Q K is awaited while O += P V flies, then all are."""
    first, second = Product(64, "bf16"), Product(128, "bf16", "", True, False, True)
    waits = [
        Waiting(1, (Pinned(32),)),
        Waiting(0, (Pinned(64), Pinned(32), Pinned(16, "nt_u32"))),
        Waiting(0, ()),
    ]
    text = f"""extern "C" __global__ void __launch_bounds__(128, 1) f(float* y, nt_u32 at, int n) {{
  float s[32], o[64];
  nt_u32 p[16];
#pragma unroll
  for (int i = 0; i < 64; i++) o[i] = 0.f;
#pragma unroll
  for (int i = 0; i < 16; i++) p[i] = threadIdx.x;
#pragma unroll 1
  for (int j = 0; j < n; j++) {{
    nt_wgmma_fence();
    {first.name}(s, nt_descriptor<128>(at), nt_descriptor<128>(at + 8192), 0);
    nt_wgmma_commit();
#pragma unroll
    for (int t = 0; t < 4; t++)
      {second.name}(o, p[4 * t], p[4 * t + 1], p[4 * t + 2], p[4 * t + 3],
        nt_descriptor<128>(at + 16384, 8192) + t * 128, 1);
    nt_wgmma_commit();
    {waits[0].name}(s);
    float sum = 0.f;
#pragma unroll
    for (int i = 0; i < 32; i++) {{ s[i] = exp2f(s[i]); sum += s[i]; }}
    nt_pin(at, sum);
    {waits[1].name}(o, s, p);
#pragma unroll
    for (int i = 0; i < 16; i++) p[i] = nt_bf16x2_of_f32(s[2 * i], s[2 * i + 1]);
  }}
  {waits[2].name}();
#pragma unroll
  for (int i = 0; i < 64; i++) y[i * 128 + threadIdx.x] = o[i];
}}
"""
    compiled(wrappers([first, second], waits) + text)


def test_each_wrapper_is_written_once() -> None:
    product = Product(64, "f16")
    text = wrappers([product, product], [Waiting(0, ()), Waiting(0, ())])
    assert (text.count("wgmma.mma_async"), text.count("wgmma.wait_group")) == (1, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"n": 0, "left": "bf16"},
        {"n": 264, "left": "bf16"},
        {"n": 12, "left": "bf16"},
        {"n": 64, "left": "f32"},
        {"n": 64, "left": "bf16", "right": "f16"},
        {"n": 64, "left": "bf16", "right": "f8e4m3"},
        {"n": 64, "left": "tf32", "right_columns": True},
        {"n": 64, "left": "f8e4m3", "left_rows": True},
        {"n": 64, "left": "bf16", "left_rows": True, "left_registers": True},
    ],
)
def test_what_the_instruction_set_lacks(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"wgmma|operand"):
        Product(**wrong)  # type: ignore[arg-type]


def test_a_step_is_32_bytes_of_depth() -> None:
    assert DEPTH == {"bf16": 16, "f16": 16, "tf32": 8, "f8e4m3": 32, "f8e5m2": 32}


def test_the_header_is_data_of_the_package() -> None:
    assert (Path(__file__).parents[2] / "src/nautile/codegen/device/sm90.cuh").is_file()
