"""Contestants timed side by side: CUDA graphs replayed in random order, medians of rounds.

Each contestant is a list of actions over different arrays, which take turns, so that no input stays
in the L2 cache from one repetition to the next. The card's clocks follow its power and its
temperature: only ratios within one run count.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

__all__ = ["copy_bandwidth", "first_run", "race"]

Actions = Sequence[Callable[[], Any]]
SAMPLE_MS = 2.0
WARM_SECONDS = 0.7  # an idle card runs at a fifth of its clock


def race(contestants: Mapping[str, Actions], rounds: int = 15) -> dict[str, float]:
    """Median milliseconds of one repetition of each contestant."""
    replays = {name: _captured(actions) for name, actions in contestants.items()}
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    order = list(replays)
    random.seed(1)
    for number in range(rounds + 2):
        random.shuffle(order)
        for name in order:
            replay, count = replays[name]
            ms = _elapsed(replay) / count
            if number >= 2:
                taken[name].append(ms)
    return {name: statistics.median(ms) for name, ms in taken.items()}


def _captured(actions: Actions) -> tuple[Callable[[], Any], int]:
    """A replay of several rounds of the actions, and how many repetitions it holds."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for action in (*actions, *actions):
            action()
        side.synchronize()
        once = _elapsed(lambda: [a() for a in actions])
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    rounds = max(1, min(40, round(SAMPLE_MS / max(once, 1e-3))))
    return _graph(actions, rounds), rounds * len(actions)


def _graph(actions: Actions, rounds: int) -> Callable[[], Any]:
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            for _ in range(rounds):
                for action in actions:
                    action()
    except RuntimeError:
        torch.cuda.synchronize()
        return lambda: [a() for _ in range(rounds) for a in actions]
    replay: Callable[[], Any] = graph.replay
    return replay


def _elapsed(action: Callable[[], Any]) -> float:
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    action()
    last.record()
    last.synchronize()
    return float(first.elapsed_time(last))


def first_run(action: Callable[[], Any], limit: float, give_up: Callable[[], Any]) -> None:
    """Run once and wait; a kernel that does not end within `limit` seconds ends the process after
    `give_up`, since nothing else can be launched behind it."""
    done = torch.cuda.Event()
    action()
    done.record()
    deadline = time.monotonic() + limit
    while not done.query():
        if time.monotonic() > deadline:
            give_up()
            os._exit(3)
        time.sleep(0.001)


def copy_bandwidth() -> float:
    """GB/s of a 1 GiB device copy, bytes read and written counted, once the card has clocked up:
    the faster of the driver's copy and of a kernel that reads and writes every word. Launched, not
    replayed: a copy of this size inside a CUDA graph ran at two thirds of the rate."""
    source = torch.randint(0, 1 << 30, (1 << 28,), dtype=torch.int32, device="cuda")
    target = torch.empty_like(source)
    copies = (lambda: target.copy_(source), lambda: torch.bitwise_or(source, 0, out=target))
    until = time.monotonic() + WARM_SECONDS
    while time.monotonic() < until:
        target.copy_(source)
        torch.cuda.synchronize()
    ms = min(statistics.median(_elapsed(c) for _ in range(20)) for c in copies)
    return 2.0 * float(source.nbytes) / ms / 1e6
