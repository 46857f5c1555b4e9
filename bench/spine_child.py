"""One process of bench/spine.py: runs cases on the GPU and appends a record for each to a file."""

from __future__ import annotations

import json
import math
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import cupy
import torch
from cases import Case
from interleaved import copy_bandwidth, first_run, race
from machine import STATE, smi

from nautile.errors import NautileError
from nautile.runtime import Bundle, Program
from nautile.runtime.checking import check
from nautile.runtime.draw import inputs as sample_inputs

__all__ = ["run"]

HANG_SECONDS = 20.0
MAX_SETS = 24
TORCH = {
    "f64": torch.float64, "f32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16,
    "f16": torch.float16, "i64": torch.int64, "i32": torch.int32, "i8": torch.int8,
    "bool": torch.bool, "f8e4m3": torch.float8_e4m3fn, "f8e5m2": torch.float8_e5m2,
}  # fmt: skip
FLOORS = {"bf16": 1e-4, "f16": 1e-5, "f32": 1e-7}  # added to twice torch's own relative error
Tensors = dict[str, torch.Tensor]


def run(cases: Sequence[Case], log: Path, with_peers: bool) -> None:
    """Run the cases that the file has no record of yet."""
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    copied = copy_bandwidth()
    for case in cases[len(log.read_text().splitlines()) :]:
        record = _record(case, log, with_peers, copied)
        _append(log, record)
        if record.get("fatal"):
            os._exit(4)


def _record(case: Case, log: Path, with_peers: bool, copied: float) -> dict[str, Any]:
    head: dict[str, Any] = {"group": case.group, "case": case.name}
    empty = {"dtype": None, "shape": None, "correct": False, "nautile": None, "peers": {}}
    empty["versions"] = _versions({})
    give_up = partial(_append, log, head | empty | {"error": f"hangs ({HANG_SECONDS} s)"})
    try:
        return head | _measure(case, with_peers, copied, give_up)
    except NautileError as error:
        return head | empty | {"error": str(error)}
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        return head | empty | {"error": f"{type(error).__name__}: {error}"[:500], "fatal": _dead()}


def _dead() -> bool:
    """Whether the CUDA context of this process is beyond use."""
    try:
        torch.cuda.synchronize()
        torch.ones(4, device="cuda").sum().item()
    except Exception:
        return True
    return False


def _measure(
    case: Case, with_peers: bool, copied: float, give_up: Callable[[], Any]
) -> dict[str, Any]:
    program = _program(case)
    first_run(program.bind(sample_inputs(program, 0)).launch, HANG_SECONDS, give_up)
    own = _own_check(program)
    torch.cuda.empty_cache()
    cupy.get_default_memory_pool().free_all_blocks()
    record = _peered(case, program, with_peers) if case.peer else _alone(program)
    least = sum(b.nbytes for b in program.buffers.values() if b.role != "intermediate")
    seconds = record["nautile"]["ms"] / 1e3
    record["correct"] = record.pop("correct", True) and own["verdict"] != "fail"
    return {
        "dtype": next(iter(program.buffers.values())).dtype,
        "shape": dict(case.sizes) or [list(b.shape) for b in program.role("input").values()],
        **record,
        "check": own,
        "smi": smi(*STATE),  # while the card is still warm
        "gb_per_s": least / seconds / 1e9,
        "copy_gb_per_s": copied,
        "of_copy": least / seconds / 1e9 / copied if case.group == "rows" else None,
        "versions": _versions(program.bundle.manifest.versions),
    }


def _program(case: Case) -> Program:
    failures = case.folder.parent / "failures.json"
    if failures.exists() and case.name in (known := json.loads(failures.read_text())):
        raise NautileError(f"not built: {known[case.name]}")
    return Bundle.load(case.folder)[case.program]


def _own_check(program: Program) -> dict[str, Any]:
    """The bundle's sampled reference, where it has one."""
    if program.head.expected is None:
        return {"verdict": "none"}
    return check(program)


def _alone(program: Program) -> dict[str, Any]:
    """Time without peers; correct as far as the bundle's own reference says."""
    calls = [program.bind(sample_inputs(program, n)) for n in range(_sets(program))]
    actions = [partial(_launch, c) for c in calls]
    ms = race({"nautile": actions}, rounds=7)["nautile"]
    correct = program.head.expected is not None
    return {"correct": correct, "nautile": _ours(ms, program), "peers": {}}


def _peered(case: Case, program: Program, with_peers: bool) -> dict[str, Any]:
    from peers import PEERS

    peer = PEERS[case.peer or ""]
    sets = [_draw(program, peer.scales, n) for n in range(_sets(program))]
    correct, error, naive = _compare(program, sets[0], peer)
    calls = [program.bind(s) for s in sets]
    contestants = {"nautile": [partial(_launch, c) for c in calls]}
    if with_peers:
        functions = dict(peer.others()) if case.compiled else {}
        functions |= {peer.eager_name: peer.eager} if peer.eager_name else {}
        contestants |= _warm(
            {n: [partial(f, *s.values()) for s in sets] for n, f in functions.items()}
        )
        if case.group == "rows":
            contestants["copy"] = _copies(program, len(sets))
    ms = race(contestants)
    flops = peer.flops(case.sizes)
    rates = {n: flops / t / 1e9 for n, t in ms.items()} if flops else {}
    return {
        "correct": correct,
        "nautile": _ours(ms.pop("nautile"), program),
        "peers": {n: {"ms": t} for n, t in ms.items()},
        "relative_error": error,
        "naive_error": naive,
        "tflops": rates,
    }


def _compare(program: Program, given: Tensors, peer: Any) -> tuple[bool, float, float]:
    """Poisoned outputs, fresh random inputs: error against float64 beside torch's own error."""
    out = {
        n: torch.full(b.shape, math.nan, dtype=TORCH[b.dtype], device="cuda")
        for n, b in program.role("output").items()
    }
    program.run(given, out=out, stream=torch.cuda.current_stream())
    torch.cuda.synchronize()
    exact, eager = (_tuple(f(*given.values())) for f in (peer.exact, peer.eager))
    worst, naive, correct = 0.0, 0.0, True
    for b, got, true, plain in zip(
        program.role("output").values(), out.values(), exact, eager, strict=True
    ):
        ours, theirs = _error(got, true), _error(plain, true)
        correct &= ours <= 2.0 * theirs + FLOORS.get(b.dtype, 0.0)  # false for NaN
        worst, naive = max(worst, ours), max(naive, theirs)
    return correct, worst, naive


def _error(got: torch.Tensor, true: torch.Tensor) -> float:
    wide = got.double()
    return float(torch.linalg.norm(wide - true) / torch.linalg.norm(true))


def _tuple(value: Any) -> tuple[torch.Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)


def _draw(program: Program, scales: Mapping[str, float], seed: int) -> Tensors:
    """Fresh normal inputs of a standard deviation each; scalar parameters have their defaults and
    integers are labels below the last extent of the first input."""
    generator = torch.Generator("cuda").manual_seed(1000 + seed)
    first, drawn = next(iter(program.role("input").values())), {}
    for n, b in program.role("input").items():
        if n in program.head.defaults:
            drawn[n] = torch.tensor(program.head.defaults[n], device="cuda", dtype=TORCH[b.dtype])
        elif b.dtype.startswith("i"):
            drawn[n] = torch.randint(
                first.shape[-1], b.shape, device="cuda", generator=generator, dtype=TORCH[b.dtype]
            )
        else:
            normal = torch.randn(b.shape, device="cuda", generator=generator)
            drawn[n] = (normal * scales.get(n, 1.0)).to(TORCH[b.dtype])
    return drawn


def _sets(program: Program) -> int:
    """How many sets of arrays pass three times the L2 cache together."""
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    one = sum(b.nbytes for b in program.buffers.values())
    return max(1, min(MAX_SETS, math.ceil(3 * cache / one)))


def _warm(contestants: Mapping[str, Any]) -> dict[str, Any]:
    """The contestants that run here; compilation happens now."""
    able = {}
    for name, actions in contestants.items():
        try:
            for action in actions[:1]:
                action()
            torch.cuda.synchronize()
            able[name] = actions
        except Exception as error:
            print(f"{name} does not run: {error}", file=sys.stderr)
    return able


def _copies(program: Program, sets: int) -> list[Callable[[], Any]]:
    """Copies that move as many bytes as the program must."""
    least = sum(b.nbytes for b in program.buffers.values() if b.role != "intermediate")
    pairs = [
        torch.randint(0, 99, (2, least // 2), dtype=torch.uint8, device="cuda") for _ in range(sets)
    ]
    return [partial(p[0].copy_, p[1]) for p in pairs]


def _launch(call: Any) -> None:
    call.launch(torch.cuda.current_stream())


def _ours(ms: float, program: Program) -> dict[str, Any]:
    return {"ms": ms, "kernels": len(program.launches)}


def _versions(made: Mapping[str, str]) -> dict[str, str]:
    found = {"torch": torch.__version__, "cupy": cupy.__version__, "cuda": str(torch.version.cuda)}
    return {**found, **made}


def _append(log: Path, record: Mapping[str, Any]) -> None:
    with log.open("a") as file:
        file.write(json.dumps(record) + "\n")
