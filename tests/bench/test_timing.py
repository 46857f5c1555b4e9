"""Captured contestants keep what their graphs read, whichever other one is made after them."""

from __future__ import annotations

import gc
import importlib
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))


class Graph:
    """A CUDA graph: it records that a capture ran, and can be replayed."""

    def __init__(self) -> None:
        self.replays = 0

    def replay(self) -> None:
        self.replays += 1


class Event:
    """A timer by which every action takes a millisecond."""

    def __init__(self, enable_timing: bool) -> None: ...

    def record(self) -> None: ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, other: Event) -> float:
        return 1.0


@contextmanager
def entered(*given: Any) -> Iterator[None]:
    yield


@contextmanager
def refused(*given: Any) -> Iterator[None]:
    raise RuntimeError("an operation is not permitted while a stream is capturing")
    yield


def stream() -> Any:
    return SimpleNamespace(wait_stream=lambda other: None, synchronize=lambda: None)


def torch(graph: Callable[..., Any]) -> ModuleType:
    """As much of torch as a capture needs."""
    made = ModuleType("torch")
    made.cuda = SimpleNamespace(  # type: ignore[attr-defined]
        Stream=stream, current_stream=stream, stream=entered, synchronize=lambda: None,
        Event=Event, CUDAGraph=Graph, graph=graph,
    )  # fmt: skip
    return made


@pytest.fixture(params=[entered, refused], ids=["graph", "plain calls"])
def timing(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setitem(sys.modules, "torch", torch(request.param))
    monkeypatch.delitem(sys.modules, "gpu.timing", raising=False)
    yield importlib.import_module("gpu.timing")
    sys.modules.pop("gpu.timing", None)


class Peer:
    """A contestant with memory that nothing else knows of, as a block mask is."""

    def __call__(self) -> None: ...


def test_what_a_contestant_alone_holds_lives_as_long_as_its_replay(timing: Any) -> None:
    peer = Peer()
    held = weakref.ref(peer)
    replay = timing.captured([peer])
    del peer
    gc.collect()
    assert held() is not None
    timing.race({"peer": replay}, 2)
    del replay
    gc.collect()
    assert held() is None
