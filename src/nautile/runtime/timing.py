"""Times of a program on the device: medians over CUDA graphs, beside a copy measured meanwhile.

Inputs that would stay in the L2 cache from one repetition to the next make a kernel look faster
than it is; so several sets of arrays take turns, together larger than the cache.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from nautile.errors import LaunchError
from nautile.runtime.device import cupy, device_name
from nautile.runtime.draw import inputs
from nautile.runtime.graph import captured
from nautile.runtime.launch import Call, Program

__all__ = ["Times", "bench", "calls_of", "contest", "copy_bandwidth", "measure"]

_MAX_SETS = 32
_SAMPLE_MS = 1.0  # a timed sample lasts at least about this long
_WARM_SECONDS = 0.3
_COPY_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds of one repetition: median, smallest and largest of the samples."""

    median: float
    least: float
    most: float
    samples: int
    graph: bool

    def as_dict(self) -> dict[str, Any]:
        spread = {"min_ms": self.least, "max_ms": self.most}
        return {"ms": self.median} | spread | {"samples": self.samples, "graph": self.graph}


def bench(program: Program, repeats: int = 100, seed: int = 0) -> dict[str, Any]:
    """Median time of the program on sample inputs, the bytes that any implementation must move,
    and the bandwidth of a device copy timed in the same run."""
    if repeats < 1:
        raise LaunchError(f"repeats is {repeats}; at least 1 is needed", code="usage")
    calls = calls_of(program, seed)
    stream = cupy().cuda.Stream(non_blocking=True)
    times = measure([partial(c.launch, stream) for c in calls], stream, repeats)
    least = _least_bytes(program)
    copied = copy_bandwidth(stream)
    rate = least / times.median / 1e6
    return {
        "program": program.name,
        "gpu": device_name(calls[0].device),
        **times.as_dict(),
        "kernels": len(program.launches),
        "implementations": [
            x.implementations[n].schedule
            for x, n in zip(program.launches, calls[0].choices, strict=True)
        ],
        "input_sets": len(calls),
        "latency_ms": _latencies(calls[0], stream, repeats),
        "least_bytes": least,
        "gb_per_s": rate,
        "copy_gb_per_s": copied,
        "of_copy": rate / copied,
    }


def measure(actions: Sequence[Callable[[], Any]], stream: Any, repeats: int) -> Times:
    """Time `actions` in turn on `stream`; a sample is a graph of several rounds of them, captured
    once, or the launches themselves where capture is not possible."""
    (times,) = contest([actions], stream, repeats)
    return times


def contest(
    contestants: Sequence[Sequence[Callable[[], Any]]], stream: Any, repeats: int
) -> list[Times]:
    """`measure` of several contestants, which take turns sample by sample."""
    entered = [_entered(actions, stream) for actions in contestants]
    for contestant in entered:
        _warm(stream, contestant.replay)
    taken: list[list[float]] = [[] for _ in entered]
    for _ in range(repeats):
        for contestant, samples in zip(entered, taken, strict=True):
            samples.append(_elapsed(stream, contestant.replay) / contestant.count)
    rows = zip(entered, taken, strict=True)
    return [Times(statistics.median(row), min(row), max(row), repeats, c.graph) for c, row in rows]


@dataclass(frozen=True, slots=True)
class _Contestant:
    replay: Callable[[], Any]
    count: int
    graph: bool


def _entered(actions: Sequence[Callable[[], Any]], stream: Any) -> _Contestant:
    """What is replayed as one sample, and how many repetitions it is."""
    for action in actions:
        action()
    stream.synchronize()
    per_round = _elapsed(stream, lambda: [a() for a in actions])
    rounds = max(1, min(50, math.ceil(_SAMPLE_MS / max(per_round, 1e-3))))
    replay, graph = _replay(stream, lambda: [a() for _ in range(rounds) for a in actions])
    return _Contestant(replay, rounds * len(actions), graph)


def copy_bandwidth(stream: Any, repeats: int = 10) -> float:
    """GB/s of a large device-to-device copy, bytes read and written counted."""
    xp = cupy()
    source = xp.arange(_COPY_BYTES // 8, dtype="int64")  # zeros could be cheaper to move
    target = xp.empty(_COPY_BYTES // 8, dtype="int64")
    xp.cuda.Device().synchronize()

    def copy() -> None:
        kind = xp.cuda.runtime.memcpyDeviceToDevice
        xp.cuda.runtime.memcpyAsync(target.data.ptr, source.data.ptr, _COPY_BYTES, kind, stream.ptr)

    _warm(stream, copy)
    taken = [_elapsed(stream, copy) for _ in range(repeats)]
    return 2 * _COPY_BYTES / statistics.median(taken) / 1e6


def _latencies(call: Call, stream: Any, repeats: int) -> dict[str, float]:
    """Milliseconds from the host's request to the end of its one run on an idle device: by launches
    one by one, and by a replay of their graph."""
    ways: dict[str, Callable[[], Any]] = {"launch": partial(call.launch, stream)}
    with contextlib.suppress(LaunchError):  # a driver that cannot capture can still launch
        ways["graph"] = partial(call.graph().launch, stream)
    return {name: _waited(stream, action, repeats) for name, action in ways.items()}


def _waited(stream: Any, action: Callable[[], Any], repeats: int) -> float:
    taken = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        action()
        stream.synchronize()
        taken.append(1e3 * (time.perf_counter() - start))
    return statistics.median(taken[1:])  # the first one uploads the graph


def calls_of(program: Program, seed: int) -> list[Call]:
    """The program bound to as many sets of arrays as it takes to pass the L2 cache."""
    calls = [program.bind(inputs(program, seed))]
    facts = cupy().cuda.runtime.getDeviceProperties(calls[0].device)
    one = sum(b.nbytes for b in program.buffers.values())
    free = int(cupy().cuda.runtime.memGetInfo()[0])
    wanted = min(
        _MAX_SETS, math.ceil(3 * int(facts["l2CacheSize"]) / one), max(1, free // 2 // one)
    )
    calls += [program.bind(inputs(program, seed + n)) for n in range(1, wanted)]
    cupy().cuda.Device().synchronize()
    return calls


def _replay(stream: Any, action: Callable[[], Any]) -> tuple[Callable[[], Any], bool]:
    """The action as a graph, or itself where it cannot be captured; and whether it is one."""
    try:
        graph = captured(stream, action)
    except LaunchError:
        return action, False
    return (lambda: graph.launch(stream)), True


def _warm(stream: Any, action: Callable[[], Any]) -> None:
    """Keep the card busy until its clocks are up; an idle one runs at a fraction of them."""
    until = time.monotonic() + _WARM_SECONDS
    action()
    stream.synchronize()
    while time.monotonic() < until:
        action()
        stream.synchronize()


def _elapsed(stream: Any, action: Callable[[], Any]) -> float:
    """Milliseconds between two events around the action."""
    events = cupy().cuda
    first, last = events.Event(), events.Event()
    first.record(stream)
    action()
    last.record(stream)
    last.synchronize()
    return float(events.get_elapsed_time(first, last))


def _least_bytes(program: Program) -> int:
    """Every input read once and every output written once."""
    return sum(b.nbytes for b in program.buffers.values() if b.role != "intermediate")
