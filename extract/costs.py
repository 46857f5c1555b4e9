"""What each kernel costs, resource by resource, against the roofline of the device.

```
cost ::= shares {resource: seconds it would take alone}, bound, roofline {resource: Use}, intensity,
         tail (blocks, their waves, the share of these that idles), reads, writes
Use  ::= peak and achieved rate, amount of work, achieved_fraction = amount / (peak * seconds)
```

The model adds to the largest share a part of the others (`OVERLAP`), the launch, and what a block's
steps cost: `other` is the kernel's time less its largest share. Source: Williams, Waterman,
Patterson, "Roofline", CACM 2009.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from nautile.dtypes import DTYPES
from nautile.extract.body import analyse
from nautile.extract.device import PORTABLE, Device
from nautile.extract.kernel import Kernel
from nautile.terms import Buffer, Load, Output, walk

__all__ = ["kernel_cost", "operands", "peaks"]

_UNITS = {"dram": "B/s", "l2": "B/s", "tensor": "flop/s", "fp32": "flop/s", "special": "op/s"}
_EVENED = 8  # waves from which on the tail counts as nothing much


def kernel_cost(kernel: Kernel, device: Device, numerics: str = "real") -> dict[str, Any]:
    """The kernel's cost as plain data; bytes that it reads count each tensor's elements once."""
    p = kernel.prediction
    moved = p.reads_bytes + p.writes_bytes
    flops = p.tensor_flops + p.vector_flops
    most = max(p.shares.values(), default=0.0)
    return {
        "shares": dict(p.shares),
        "bound": p.bound,
        "bound_share": p.shares.get(p.bound, 0.0) / p.seconds if p.seconds else 0.0,
        "other": p.seconds - most,
        "roofline": _roofline(kernel, device, numerics),
        "intensity": flops / moved if moved else None,
        "tail": _tail(p.blocks, device.sms),
        "shared_bytes": p.shared_bytes,
        "registers": p.registers,
        "path": kernel.path,
        "reads": _reads(kernel),
        "writes": [
            {"buffer": b.name, "bytes": _bytes(b), "dtype": b.dtype}
            for b in dict.fromkeys(o.buffer for o in kernel.outputs)
        ],
    }


def _roofline(kernel: Kernel, device: Device, numerics: str) -> dict[str, Any]:
    p = kernel.prediction
    rates = peaks(kernel, device, numerics)
    amounts = {
        "dram": float(p.reads_bytes + p.writes_bytes),
        "l2": p.shares.get("l2", 0.0) * device.l2_bandwidth,
        "tensor": float(p.tensor_flops),
        "fp32": float(p.vector_flops),
        "special": float(p.special_ops),
    }
    found: dict[str, Any] = {}
    for name, peak in rates.items():
        achieved = amounts[name] / p.seconds if p.seconds else 0.0
        found[name] = {
            "peak": peak,
            "unit": _UNITS[name],
            "amount": amounts[name],
            "achieved": achieved,
            "achieved_fraction": achieved / peak if peak else 0.0,
        }
    return found


def peaks(kernel: Kernel, device: Device, numerics: str = "real") -> dict[str, float]:
    """The rates of the device that bind the kernel: that of the tensor cores is the one of its
    operands along its path, the slowest of several; left out where it uses none."""
    rates = {
        "dram": device.memory_bandwidth,
        "l2": device.l2_bandwidth,
        "fp32": device.fp32,
        "special": device.special,
    }
    found = [_rate(device, kernel.path, name) for name in operands(kernel, numerics)]
    used = [rate for rate in found if rate]
    if used and kernel.prediction.tensor_flops:
        rates["tensor"] = min(used)
    return rates


def _rate(device: Device, path: str, operand: str) -> float:
    """f32 operands are taken apart into tf32 ones."""
    name = "tf32" if operand == "f32" else operand
    return device.rate(name, path) or device.rate(name, PORTABLE)


def operands(kernel: Kernel, numerics: str = "real") -> tuple[str, ...]:
    """The types in which the kernel's contractions take their operands."""
    found: dict[str, None] = {}
    for part in kernel.parts:
        body = analyse(part.outputs, numerics=numerics)
        found |= dict.fromkeys(c.operand for c in body.contractions.values() if c.operand)
    return tuple(sorted(found))


def _tail(blocks: int, sms: int) -> dict[str, Any]:
    """Blocks, the waves of them if each multiprocessor takes one, and the share of multiprocessors
    and time that the last wave leaves idle."""
    waves = max(1, math.ceil(blocks / sms))
    idle = 0.0 if waves > _EVENED else 1 - blocks / (waves * sms)
    return {"blocks": blocks, "waves": waves, "idle_fraction": idle}


def _reads(kernel: Kernel) -> list[dict[str, Any]]:
    own = {o.buffer.name for o in kernel.outputs}
    found = _touched(o for o in kernel.outputs)
    return [
        {"buffer": b.name, "bytes": n, "dtype": b.dtype}
        for b, n in found.items()
        if b.name not in own
    ]


def _touched(outputs: Iterable[Output]) -> dict[Buffer, int]:
    """Bytes of the elements that are read of each tensor, each once."""
    found: dict[Buffer, int] = {}
    for load in (t for t in walk(*(o.term for o in outputs)) if isinstance(t, Load)):
        elements = min(load.buffer.size, math.prod(a.extent for a in load.free))
        size = elements * DTYPES[load.buffer.dtype].bytes
        found[load.buffer] = max(found.get(load.buffer, 0), size)
    return found


def _bytes(buffer: Buffer) -> int:
    return buffer.size * DTYPES[buffer.dtype].bytes
