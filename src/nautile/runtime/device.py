"""CuPy, imported where it is first needed, and what the launcher asks of a device."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from nautile.errors import LaunchError

__all__ = ["cupy", "device_name", "fitting", "require", "runs_on", "shared_limit", "stream_of"]


def cupy() -> Any:
    """The CuPy module. LaunchError if it is not installed."""
    try:
        import cupy
    except ImportError as error:
        raise LaunchError(
            "launching needs CuPy: pip install 'nautile[cuda13]' (or 'nautile[cuda12]')",
            code="no-cupy",
        ) from error
    return cupy


def require() -> int:
    """The number of GPUs. LaunchError if there is none."""
    runtime = cupy().cuda.runtime
    try:
        count = int(runtime.getDeviceCount())
    except runtime.CUDARuntimeError as error:
        raise LaunchError(f"no usable NVIDIA GPU: {error}", code="no-gpu") from error
    if count < 1:
        raise LaunchError("no NVIDIA GPU on this machine", code="no-gpu")
    return count


def _number(architecture: str) -> tuple[int, str]:
    match = re.fullmatch(r"sm_(\d+)([af]?)", architecture)
    assert match is not None, architecture  # the manifest's schema has checked it
    return int(match[1]), match[2]


def runs_on(architecture: str, capability: int) -> bool:
    """Whether machine code for `architecture` runs on a device of that compute capability (90 for
    9.0): the same major version and no newer minor one; exactly that one for sm_90a."""
    number, suffix = _number(architecture)
    if suffix == "a":
        return number == capability
    return number // 10 == capability // 10 and number <= capability


def fitting(architectures: Iterable[str], capability: int) -> str | None:
    """The best of the architectures whose machine code runs there, or None."""
    able = [a for a in architectures if runs_on(a, capability)]
    return max(able, key=_number, default=None)


def source_runs_on(architecture: str, capability: int) -> bool:
    """Whether source that needs `architecture` can be compiled for that compute capability."""
    number, suffix = _number(architecture)
    return number == capability if suffix else number <= capability


def shared_limit(device: int) -> int:
    """Bytes of dynamic shared memory that one block may ask for."""
    facts = cupy().cuda.runtime.getDeviceProperties(device)
    return int(facts["sharedMemPerBlockOptin"])


def device_name(device: int) -> str:
    """What the device calls itself: "NVIDIA H200"."""
    name = cupy().cuda.runtime.getDeviceProperties(device)["name"]
    return name.decode() if isinstance(name, bytes) else str(name)


class _Handle:
    """A raw stream handle under the CUDA stream protocol."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


def stream_of(stream: Any) -> Any:
    """A CuPy stream for a CuPy or torch stream, a raw handle, or None (CuPy's current one)."""
    if stream is None:
        return cupy().cuda.get_current_stream()
    if not isinstance(stream, int) and not hasattr(stream, "cuda_stream"):
        return stream
    handle = int(stream if isinstance(stream, int) else stream.cuda_stream)
    if hasattr(cupy().cuda.Stream, "from_external"):  # CuPy 14.1 deprecates ExternalStream
        return cupy().cuda.Stream.from_external(_Handle(handle))
    return cupy().cuda.ExternalStream(handle)
