"""A CuPy that runs on the host, for tests: arrays are NumPy's, kernels are Python functions.

Only what the launcher may touch is here; a call of anything else fails. `LAUNCHES` records what was
launched, and `KERNELS` holds what a kernel of a name does to the arrays behind its pointers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

NUMPY = (
    *("abs", "atleast_1d", "frexp", "inf", "int64", "isfinite", "isnan", "ix_", "ldexp"),
    *("maximum", "nan", "rint", "signbit", "where"),
)


class ndarray(np.ndarray):
    """An array "on the device": NumPy's, with an address and a device."""

    device_id = 0

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.ctypes.data)

    @property
    def device(self) -> Any:
        return SimpleNamespace(id=self.device_id)


class Machine:
    """One fake machine: its devices, what was launched on it, and what its kernels do."""

    def __init__(self, devices: int = 1, capability: int = 90) -> None:
        self.devices, self.capability = devices, capability
        self.shared = 227 * 1024
        self.launches: list[tuple[str, tuple[int, ...], tuple[int, ...], int]] = []
        self.loaded: list[dict[str, Any]] = []
        self.kernels: dict[str, Callable[..., None]] = {}
        self.costs: dict[str, float] = {}  # milliseconds of a launch
        self.clock = 0.0
        self.stream = 0
        self.streams: list[int] = []
        self.captured: list[Callable[[], None]] | None = None
        self.capturing = -1

    def module(self) -> Any:
        """The object to put in sys.modules as cupy."""
        fake = SimpleNamespace(
            ndarray=ndarray, RawModule=self._raw_module, cuda=self._cuda(),
            empty=_empty, asnumpy=np.asarray, from_dlpack=self._no_dlpack,
        )  # fmt: skip
        fake.zeros = lambda shape, dtype: device(np.zeros(shape, dtype))
        for name in NUMPY:
            setattr(fake, name, getattr(np, name))
        fake.arange = lambda *steps, dtype: device(np.arange(*steps, dtype=dtype))
        fake.asarray = lambda value, dtype=None: device(np.asarray(value, dtype=dtype))
        return fake

    def do(self, stream: int, action: Callable[[], Any]) -> None:
        """Run what was submitted to a stream, or note it where the stream captures."""
        if self.captured is not None and stream == self.capturing:
            self.captured.append(action)
        else:
            action()

    def _no_dlpack(self, value: Any) -> Any:
        raise TypeError("not a device array")

    def _cuda(self) -> Any:
        class CUDARuntimeError(RuntimeError):
            pass

        def count() -> int:
            if self.devices == 0:
                raise CUDARuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")
            return self.devices

        runtime = SimpleNamespace(
            CUDARuntimeError=CUDARuntimeError,
            getDeviceCount=count,
            getDevice=lambda: 0,
            getDeviceProperties=lambda n: {
                "sharedMemPerBlockOptin": self.shared, "l2CacheSize": 4096, "name": b"Fake",
            },
            memGetInfo=lambda: (1 << 30, 1 << 30),
            memsetAsync=lambda p, v, n, s: self.do(s, lambda: ctypes.memset(p, v, n)),
            memcpyAsync=lambda d, s, n, k, t: None,
            memcpyDeviceToDevice=3,
            pointerGetAttributes=lambda p: SimpleNamespace(device=0),
        )  # fmt: skip
        return SimpleNamespace(
            runtime=runtime, Device=self._device, get_current_stream=lambda: self._stream(0),
            ExternalStream=self._stream, Stream=lambda non_blocking: self._stream(77),
            Event=lambda: _Event(self),
            get_elapsed_time=lambda a, b: 0.5 + b.time - a.time,
        )  # fmt: skip

    def _device(self, number: int = 0) -> Any:
        return _Device(self.capability)

    def _stream(self, handle: int) -> Any:
        return _Stream(self, handle)

    def _raw_module(self, **how: Any) -> Any:
        self.loaded.append(how)
        return SimpleNamespace(get_function=lambda name: _Kernel(self, name))


class _Event:
    def __init__(self, machine: Machine) -> None:
        self.machine, self.time = machine, 0.0

    def record(self, stream: Any) -> None:
        self.time = self.machine.clock

    def synchronize(self) -> None:
        return None


class _Device:
    def __init__(self, capability: int) -> None:
        self.compute_capability = str(capability)

    def __enter__(self) -> _Device:
        return self

    def __exit__(self, *why: object) -> None:
        return None

    def synchronize(self) -> None:
        return None


class _Stream:
    def __init__(self, machine: Machine, handle: int) -> None:
        self.machine, self.ptr = machine, handle

    def __enter__(self) -> _Stream:
        self.machine.stream = self.ptr
        return self

    def __exit__(self, *why: object) -> None:
        self.machine.stream = 0

    def synchronize(self) -> None:
        if self.ptr == self.machine.capturing:
            raise RuntimeError("cudaErrorStreamCaptureUnsupported")

    def begin_capture(self) -> None:
        assert self.ptr != 0
        self.machine.captured, self.machine.capturing = [], self.ptr

    def end_capture(self) -> Any:
        actions = self.machine.captured or []
        self.machine.captured, self.machine.capturing = None, -1

        def replay(stream: Any) -> None:
            self.machine.stream, before = stream.ptr, self.machine.stream
            for action in actions:
                action()
            self.machine.stream = before

        return SimpleNamespace(launch=replay)


class _Kernel:
    def __init__(self, machine: Machine, name: str) -> None:
        self.machine, self.name = machine, name
        self.kernel = SimpleNamespace(ptr=1 + len(machine.loaded))
        self.max_dynamic_shared_size_bytes = 0

    def __call__(self, grid: Any, block: Any, arguments: Any, *, shared_mem: int) -> None:
        assert shared_mem <= self.max_dynamic_shared_size_bytes
        self.machine.do(
            self.machine.stream, lambda: self._run(tuple(grid), tuple(block), arguments, shared_mem)
        )

    def _run(self, grid: Any, block: Any, arguments: Any, shared_mem: int) -> None:
        self.machine.launches.append((self.name, grid, block, shared_mem))
        self.machine.streams.append(self.machine.stream)
        self.machine.clock += self.machine.costs.get(self.name, 0.0)
        action = self.machine.kernels.get(self.name)
        if action:
            action(*(bytes(a) if isinstance(a, np.void) else int(a) for a in arguments))


def device(value: Any, device_id: int = 0) -> ndarray:
    """A NumPy array as one on the device, aligned as an allocation would be."""
    source = np.asarray(value)
    made = _empty(source.shape, source.dtype)
    made[...] = source
    made.device_id = device_id
    return made


def _empty(shape: Any, dtype: Any) -> ndarray:
    kind = np.dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    raw = np.empty(size + 512, np.uint8)
    start = -raw.ctypes.data % 512
    return raw[start : start + size].view(kind).reshape(shape).view(ndarray)


def at(pointer: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """The array that lies at an address."""
    kind = np.dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    raw = (ctypes.c_uint8 * size).from_address(pointer)
    return np.frombuffer(raw, kind).reshape(shape)
