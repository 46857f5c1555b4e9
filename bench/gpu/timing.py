"""Contestants timed side by side: CUDA graphs replayed in a new random order every round.

Each contestant is a list of actions over different sets of arrays, which take turns, so that no
input stays in the L2 cache from one repetition to the next; results live until the same set's turn
comes again, or an allocator would hand out the same memory, which stays in the cache as well. A
replay lasts about two milliseconds, so that all contestants see the card at the same clocks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

__all__ = ["Replay", "captured", "race"]

Actions = Sequence[Callable[[], Any]]
SAMPLE_MS = 2.0
WARM = 2  # rounds that are not counted


class Replay:
    """Some rounds of a contestant's actions; `count` repetitions, in a CUDA graph or not.

    It keeps the actions. A graph holds addresses, and does not keep what lies there: tensors that
    only an action knows of (the block mask of flex_attention, a copy in another layout) would be
    freed, their memory given to the next contestant, and the replay would read what that wrote.
    `results` are those of the last repetitions, whose memory a replay writes again."""

    def __init__(
        self, run: Callable[[], Any], count: int, in_graph: bool, actions: Actions = (),
        results: Sequence[Any] = (),
    ) -> None:  # fmt: skip
        self.run, self.count, self.in_graph = run, count, in_graph
        self.actions, self.results = actions, results


def race(replays: Mapping[str, Replay], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of one repetition of each contestant, round by round."""
    taken: dict[str, list[float]] = {name: [] for name in replays}
    order, dice = list(replays), random.Random(1)
    for number in range(rounds + WARM):
        dice.shuffle(order)
        for name in order:
            ms = _elapsed(replays[name].run) / replays[name].count
            if number >= WARM:
                taken[name].append(ms)
    return taken


def captured(actions: Actions) -> Replay:
    """The actions as a CUDA graph, warmed up; as plain calls where they cannot be captured."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for action in actions:
            action()
        side.synchronize()
        once = min(_elapsed(lambda: [a() for a in actions]) for _ in range(2))
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    rounds = max(1, min(40, round(SAMPLE_MS / max(once, 1e-3))))
    count = rounds * len(actions)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            results = _repeat(actions, rounds)
    except RuntimeError:
        torch.cuda.synchronize()
        return Replay(partial(_repeat, actions, rounds), count, False, actions)
    return Replay(graph.replay, count, True, actions, results)


def _repeat(actions: Actions, rounds: int) -> list[Any]:
    kept: list[Any] = [None] * len(actions)
    for _ in range(rounds):
        for place, action in enumerate(actions):
            kept[place] = action()
    return kept


def _elapsed(action: Callable[[], Any]) -> float:
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    action()
    last.record()
    last.synchronize()
    return float(first.elapsed_time(last))
