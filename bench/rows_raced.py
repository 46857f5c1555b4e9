"""Runs what rows_built.py built: each variant checked against float64, then timed beside the others
and a copy. Needs numpy and cupy."""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cupy as cp
from machine import STATE, smi

from nautile.runtime.overlap import overlapping

__all__ = ["run_all"]

ROUNDS = 7
SAMPLE_MS = 1.5
CACHE = 160 << 20  # bytes that repetitions must walk for none to find its inputs in the L2 cache
SAMPLED = 48
BOUND = {"bf16": 2.0**-7, "f32": 3e-6}  # relative to the largest magnitude of a row
Arrays = dict[str, Any]


def run_all(folder: Path, only: str, seconds: float) -> dict[str, Any]:
    """Times of every case that is begun before the seconds are over: a JSON object."""
    until = time.monotonic() + seconds
    _warm()
    rate = _copy_rate()
    cases = []
    for case in json.loads((folder / "variants.json").read_text()):
        if only in case["case"] and time.monotonic() < until:
            cases.append(_case(case, folder, rate))
            cp.get_default_memory_pool().free_all_blocks()
            print(_line(cases[-1]), flush=True)
    return {
        "gpu": cp.cuda.runtime.getDeviceProperties(0)["name"].decode(),
        "date": time.strftime("%Y-%m-%d"),
        "copy_gb_per_s": rate,
        "smi": smi(*STATE),
        "cases": cases,
    }


def _line(case: dict[str, Any]) -> str:
    best = min(case["variants"], key=lambda v: v["ms"])
    first = case["variants"][0]
    return (
        f"{case['case']}: chosen {first['ms'] * 1e3:.1f} us {first['of_copy']:.1%}, best "
        f"'{best['variant']}' {best['ms'] * 1e3:.1f} us {best['of_copy']:.1%}, copy "
        f"{case['copy_ms'] * 1e3:.1f} us, wrong {sum(not v['correct'] for v in case['variants'])}"
    )


def _case(case: dict[str, Any], folder: Path, rate: float) -> dict[str, Any]:
    size = sum(_bytes(b) for b in case["buffers"])
    sets = [_arrays(case["buffers"], n) for n in range(max(1, -(-CACHE // size)))]
    contestants: dict[str, Callable[[], None]] = {"copy": _copies(size, len(sets))}
    correct = {}
    for variant in case["variants"]:
        launch = _loaded(folder, variant)
        correct[variant["variant"]] = _check(case, launch, sets[0])
        contestants[variant["variant"]] = _each(launch, sets)
    taken = _race(contestants, len(sets))
    rows = []
    for variant in case["variants"]:
        ms = taken[variant["variant"]]
        error = correct[variant["variant"]]
        rows.append(
            {
                "variant": variant["variant"],
                "ms": ms,
                "of_copy": size / ms / 1e6 / rate,
                "ratio_to_copy": taken["copy"] / ms,
                "registers": variant["registers"],
                "error": error,
                "correct": error <= 1,
            }
        )
    return {"case": case["case"], "bytes": size, "copy_ms": taken["copy"], "variants": rows}


# ---- arrays --------------------------------------------------------------------------------------


def _bytes(buffer: dict[str, Any]) -> int:
    count = 2 if buffer["dtype"] == "bf16" else 4
    for n in buffer["shape"]:
        count *= n
    return count


def _arrays(buffers: Sequence[dict[str, Any]], seed: int) -> Arrays:
    cp.random.seed(seed)
    made = {}
    for b in buffers:
        if b["output"]:
            made[b["name"]] = cp.empty(b["shape"], "u2" if b["dtype"] == "bf16" else "f4")
            continue
        values = cp.random.standard_normal(b["shape"], dtype=cp.float32)
        made[b["name"]] = _narrow(values) if b["dtype"] == "bf16" else values
    return made


def _narrow(values: Any) -> Any:
    """The bits of bfloat16, rounded to nearest even."""
    bits = values.view(cp.uint32)
    bits += 0x7FFF + ((bits >> 16) & 1)
    bits >>= 16
    return bits.astype(cp.uint16)


def _wide(array: Any) -> Any:
    if array.dtype == cp.uint16:
        array = (array.astype(cp.uint32) << 16).view(cp.float32)
    return array.astype(cp.float64)


# ---- checks --------------------------------------------------------------------------------------


def _check(case: dict[str, Any], launch: Callable[[Arrays], None], arrays: Arrays) -> float:
    """The largest error at sampled rows, as a share of what is allowed; infinite for NaN."""
    outputs = [b for b in case["buffers"] if b["output"]]
    for b in outputs:
        array = arrays[b["name"]]
        array.fill(0xFFFF if array.dtype == cp.uint16 else float("nan"))
    launch(arrays)
    rows = cp.asarray(sorted({0, 4095, *random.Random(7).sample(range(4096), SAMPLED)}))
    given = {
        b["name"]: _wide(arrays[b["name"]][rows] if len(b["shape"]) > 1 else arrays[b["name"]])
        for b in case["buffers"]
        if not b["output"]
    }
    wanted = REFERENCES[case["program"]](**given)
    worst = 0.0
    for b in outputs:
        got, want = _wide(arrays[b["name"]][rows]), wanted[b["name"]]
        scale = cp.abs(want).max(axis=-1, keepdims=True)
        error = float((cp.abs(got - want) / scale).max()) / BOUND[b["dtype"]]
        worst = max(worst, float("inf") if bool(cp.isnan(got).any()) else error)
    return worst


def _softmax(x: Any) -> Arrays:
    e = cp.exp(x - x.max(axis=1, keepdims=True))
    return {"y": e / e.sum(axis=1, keepdims=True)}


def _layernorm(x: Any, g: Any, b: Any) -> Arrays:
    d = x - x.mean(axis=1, keepdims=True)
    return {"y": d / cp.sqrt((d * d).mean(axis=1, keepdims=True) + 1e-5) * g + b}


def _rmsnorm(x: Any, r: Any, g: Any) -> Arrays:
    h = x + r
    return {"h": h, "y": h / cp.sqrt((h * h).mean(axis=1, keepdims=True) + 1e-6) * g}


def _logsumexp(x: Any) -> Arrays:
    top = x.max(axis=1)
    return {"y": top + cp.log(cp.exp(x - top[:, None]).sum(axis=1))}


def _gelu(x: Any, b: Any, r: Any) -> Arrays:
    from cupyx.scipy.special import erf

    v = x + b
    return {"y": 0.5 * v * (1 + erf(v * 0.5**0.5)) * r}


def _swiglu(x: Any, r: Any) -> Arrays:
    return {"y": x / (1 + cp.exp(-x)) * r}


REFERENCES: dict[str, Callable[..., Arrays]] = {
    "softmax_rows": _softmax,
    "softmax_rows_f32": _softmax,
    "layernorm_rows": _layernorm,
    "layernorm_rows_f32": _layernorm,
    "rmsnorm_residual": _rmsnorm,
    "logsumexp_rows": _logsumexp,
    "bias_gelu_gate": _gelu,
    "swiglu_rows": _swiglu,
}


# ---- times ---------------------------------------------------------------------------------------


def _loaded(folder: Path, variant: dict[str, Any]) -> Callable[[Arrays], None]:
    module = cp.RawModule(path=str(folder / variant["cubin"]))
    kernel = module.get_function(variant["kernel"])
    grid, block, names = tuple(variant["grid"]), (variant["threads"],), variant["arguments"]
    shared = variant["shared"]
    kernel.max_dynamic_shared_size_bytes = shared
    if not variant["overlaps"]:
        return lambda arrays: kernel(
            grid, block, tuple(arrays[n] for n in names), shared_mem=shared
        )

    def launch(arrays: Arrays) -> None:
        pointers = [arrays[n].data.ptr for n in names]
        call = overlapping(kernel, grid, (*block, 1, 1), shared, pointers)
        assert call is not None, "the driver has no overlapping launches"
        call(cp.cuda.get_current_stream().ptr)

    return launch


def _each(launch: Callable[[Arrays], None], sets: Sequence[Arrays]) -> Callable[[], None]:
    def action() -> None:
        for arrays in sets:
            launch(arrays)

    return action


def _copies(size: int, count: int) -> Callable[[], None]:
    """Copies that read and write so many bytes together."""
    pairs = [(cp.zeros(size // 8, "i4"), cp.empty(size // 8, "i4")) for _ in range(count)]

    def action() -> None:
        for source, target in pairs:
            target.data.copy_from_device_async(source.data, source.nbytes)

    return action


def _race(contestants: dict[str, Callable[[], None]], repetitions: int) -> dict[str, float]:
    """Median milliseconds of one repetition."""
    cp.cuda.runtime.deviceSynchronize()
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        replays = {name: _captured(stream, action) for name, action in contestants.items()}
        taken: dict[str, list[float]] = {name: [] for name in contestants}
        order = list(replays)
        random.seed(1)
        for number in range(ROUNDS + 1):
            random.shuffle(order)
            for name in order:
                replay, count = replays[name]
                ms = _elapsed(stream, replay) / count / repetitions
                if number:
                    taken[name].append(ms)
    return {name: statistics.median(ms) for name, ms in taken.items()}


def _captured(stream: Any, action: Callable[[], None]) -> tuple[Callable[[], None], int]:
    """A replay of several rounds of the action, and their number."""
    action()
    stream.synchronize()
    once = _elapsed(stream, action)
    rounds = max(1, min(30, round(SAMPLE_MS / max(once, 1e-3))))
    stream.begin_capture()
    for _ in range(rounds):
        action()
    graph = stream.end_capture()
    return lambda: graph.launch(stream), rounds


def _elapsed(stream: Any, action: Callable[[], None]) -> float:
    first, last = cp.cuda.Event(), cp.cuda.Event()
    first.record(stream)
    action()
    last.record(stream)
    last.synchronize()
    return float(cp.cuda.get_elapsed_time(first, last))


def _warm() -> None:
    source = cp.zeros(1 << 28, "i4")
    target = cp.empty_like(source)
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        cp.copyto(target, source)
        cp.cuda.runtime.deviceSynchronize()


def _copy_rate() -> float:
    """GB/s of a copy of 1 GiB, bytes read and written counted."""
    source = cp.zeros(1 << 28, "i4")
    target = cp.empty_like(source)
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        times = [
            _elapsed(stream, lambda: target.data.copy_from_device_async(source.data, source.nbytes))
            for _ in range(20)
        ]
    return 2 * source.nbytes / statistics.median(times) / 1e6
