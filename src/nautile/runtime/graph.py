"""CUDA graphs: a sequence of launches captured once and submitted as one.

A short program's time is mostly the host's: each launch costs microseconds of Python and driver. A
graph costs one submission, whatever it holds. What a launch clears beforehand is cleared inside of
the graph, and kernels leave their counters at zero, so every replay starts from the same state.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nautile.errors import LaunchError
from nautile.runtime.device import cupy, stream_of

__all__ = ["Graph", "captured"]


@dataclass(frozen=True, slots=True)
class Graph:
    """The launches of a call as one CUDA graph. It reads and writes the arrays that the call was
    bound to, and keeps them alive; replays must follow one another, as the call's launches must."""

    outputs: Mapping[str, Any]
    device: int
    _graph: Any
    _memory: Any

    def launch(self, stream: Any = None) -> Mapping[str, Any]:
        """Replay on `stream` (CuPy's current one by default), without waiting; the outputs."""
        with cupy().cuda.Device(self.device), stream_of(stream) as on:
            self._graph.launch(on)
        return self.outputs


def captured(stream: Any, action: Callable[[], Any]) -> Any:
    """The CUDA graph of what `action` launches on `stream`, which must not be the default one.
    LaunchError where that cannot be captured; nothing has run then, either."""
    try:
        with stream:
            stream.begin_capture()
            action()
            return stream.end_capture()
    except (AttributeError, RuntimeError) as error:
        # Leave capture mode after a failure; the stream would refuse everything else.
        with contextlib.suppress(AttributeError, RuntimeError):
            stream.end_capture()
        raise LaunchError(f"the launches cannot be captured: {error}", code="graph") from error
