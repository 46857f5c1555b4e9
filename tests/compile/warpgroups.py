"""Small kernels of warpgroup products: the main loop of attention, as the gate wants it or not."""

from __future__ import annotations

from nautile.codegen.headers import inline
from nautile.codegen.sm90.wgmma import OPERANDS, Pinned, Product, Waiting, wrappers
from nautile.codegen.source import CudaKernel, Expected

__all__ = ["chain", "kernel", "serial", "typed"]

_FIRST, _SECOND = Product(64, "bf16"), Product(128, "bf16", "", True, False, True)
_WAITS = (
    Waiting(1, (Pinned(32),)),
    Waiting(0, (Pinned(64), Pinned(32), Pinned(16, "nt_u32"))),
)
_CHAIN = f"""extern "C" __global__ void __launch_bounds__(128)
chain(float* y, nt_u32 at, int n) {{
  float s[32], o[64];
  nt_u32 p[16];
#pragma unroll
  for (int i = 0; i < 64; i++) o[i] = 0.f;
#pragma unroll
  for (int i = 0; i < 16; i++) p[i] = threadIdx.x;
#pragma unroll 1
  for (int j = 0; j < n; j++) {{
    nt_wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; k++)
      {_FIRST.name}(s, nt_descriptor<128>(at) + k * 2, nt_descriptor<128>(at + 8192) + k * 2, k);
    nt_wgmma_commit();
#pragma unroll
    for (int t = 0; t < 4; t++)
      {_SECOND.name}(o, p[4 * t], p[4 * t + 1], p[4 * t + 2], p[4 * t + 3],
        nt_descriptor<128>(at + 16384, 8192) + t * 128, 1);
    nt_wgmma_commit();
    {_WAITS[0].name}(s);
    float sum = 0.f;
#pragma unroll
    for (int i = 0; i < 32; i++) {{ s[i] = nt_ex2(s[i]); sum += s[i]; }}
    @PIN@
    {_WAITS[1].name}(o, s, p);
#pragma unroll
    for (int i = 0; i < 16; i++) p[i] = nt_bf16x2_of_f32(s[2 * i], s[2 * i + 1]);
  }}
#pragma unroll
  for (int i = 0; i < 64; i++) y[i * 128 + threadIdx.x] = o[i];
}}
"""
_SERIAL = f"""extern "C" __global__ void __launch_bounds__(128)
serial(float* y, nt_u32 at, int n) {{
  float s[32];
#pragma unroll
  for (int i = 0; i < 32; i++) s[i] = y[i];
#pragma unroll 1
  for (int j = 0; j < n; j++) {{
#pragma unroll
    for (int k = 0; k < 4; k++) {{
      nt_wgmma_fence();
      {_FIRST.name}(s, nt_descriptor<128>(at) + k * 2, nt_descriptor<128>(at + 8192) + k * 2, k);
      nt_wgmma_commit();
      nt_wgmma_wait0_f32(s);
    }}
  }}
#pragma unroll
  for (int i = 0; i < 32; i++) y[i * 128 + threadIdx.x] = s[i];
}}
"""


def kernel(name: str, text: str, expected: Expected | None = None) -> CudaKernel:
    """One warpgroup that runs `text`."""
    products = [_FIRST, _SECOND, *(Product(64, o) for o in OPERANDS)]
    wrapped = wrappers(products, [*_WAITS, Waiting(0, (Pinned(32),))]) + text
    full = inline(wrapped, "scalar.cuh", "copy.cuh", "mma.cuh", "sm90.cuh")
    return CudaKernel(
        name, full, (1, 1, 1), 128, 65536, ("y",), architecture="sm_90a", expected=expected
    )


def chain(expected: Expected | None = None, *, pinned: bool = True) -> CudaKernel:
    """4 products, exponentials of their 32 results under 4 more products; with the pin that keeps
    the second wait below the exponentials, or without."""
    pin = "nt_pin(at + 65528, sum);" if pinned else ""
    return kernel("chain", _CHAIN.replace("@PIN@", pin), expected)


def serial(expected: Expected | None = None) -> CudaKernel:
    """4 products, each awaited before the next."""
    return kernel("serial", _SERIAL, expected)


def typed(operand: str) -> CudaKernel:
    """4 products of operands of a type, awaited together, in a loop; 4 are expected."""
    text = _SERIAL.replace(_FIRST.name, Product(64, operand).name).replace("serial", "typed")
    for name in ("nt_wgmma_fence();", "nt_wgmma_commit();", "nt_wgmma_wait0_f32(s);"):
        text = text.replace(name, "")
    loop = "for (int j = 0; j < n; j++) {"
    text = text.replace(loop, f"{loop} nt_wgmma_fence();")
    text = text.replace("    }\n  }\n", "    }\n nt_wgmma_commit(); nt_wgmma_wait0_f32(s);\n  }\n")
    return kernel("typed", text, Expected(4))
