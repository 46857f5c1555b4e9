"""Launching a bundle: arguments are checked by name, then kernels run in order on one stream.

`program.bind` checks the arguments, takes the first implementation of each launch that runs on the
device, encodes its tensor maps and allocates what is not given; the `Call` that it returns
launches, as often as wanted, and becomes a CUDA graph by `graph`. Needs NumPy and CuPy alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from nautile import samples
from nautile.bundle.manifest import Buffer, Kernel, Launch
from nautile.bundle.manifest import Program as Head
from nautile.bundle.read import Loaded
from nautile.errors import LaunchError
from nautile.runtime import arrays
from nautile.runtime.arrays import View
from nautile.runtime.device import cupy, device_name, require, stream_of
from nautile.runtime.graph import Graph, captured
from nautile.runtime.loading import first_able, load, may_overlap
from nautile.runtime.maps import tensor_map
from nautile.runtime.overlap import overlapping
from nautile.runtime.record import Record

__all__ = ["Call", "Program", "program_of"]


@dataclass(frozen=True, slots=True)
class Call:
    """A program bound to device memory. `outputs` are CuPy arrays, or what was passed for them;
    bf16 and fp8 outputs that were allocated here hold bit patterns in uint16 and uint8. `choices`
    gives the number of the implementation that each launch takes. Launches of one call share
    counters and intermediates, so they must follow one another (on one stream, say)."""

    outputs: Mapping[str, Any]
    device: int
    choices: tuple[int, ...]
    _steps: tuple[tuple[_Step, ...], ...]
    _memory: Mapping[str, Any]

    def written(self, program: Program) -> list[Any]:
        """The arrays of the outputs and intermediates."""
        return [self._memory[n] for n, b in program.buffers.items() if b.role != "input"]

    def launch(self, stream: Any = None, only: int | None = None) -> Mapping[str, Any]:
        """Run all kernels in order on `stream` (CuPy's current one by default), or those of the
        launch numbered `only`, without waiting."""
        rows = self._steps if only is None else self._steps[only : only + 1]
        with cupy().cuda.Device(self.device), stream_of(stream) as on:
            for step in chain.from_iterable(rows):
                for pointer, nbytes in step.cleared:
                    cupy().cuda.runtime.memsetAsync(pointer, 0, nbytes, on.ptr)
                if step.begin is not None:
                    step.begin(on.ptr)
                else:
                    step.kernel(step.grid, step.block, step.arguments, shared_mem=step.shared)
        return self.outputs

    def graph(self) -> Graph:
        """The launches as one CUDA graph, captured now and replayed with its `launch`. LaunchError
        where they cannot be captured."""
        with cupy().cuda.Device(self.device):
            stream = cupy().cuda.Stream(non_blocking=True)
            made = captured(stream, lambda: self.launch(stream))
        return Graph(self.outputs, self.device, made, self)


@dataclass(frozen=True, slots=True)
class _Step:
    """A kernel's launch. `begin` launches on a stream's handle one that may begin while the kernel
    before it drains."""

    kernel: Any
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    arguments: tuple[Any, ...]
    cleared: tuple[tuple[int, int], ...]
    counters: Any = None
    begin: Callable[[int], None] | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """One program of a bundle, ready to launch. `picks` gives for a device's name the numbers of
    launches and of the implementations that were fastest there; elsewhere the first that runs is
    taken."""

    bundle: Loaded
    head: Head
    buffers: Mapping[str, Buffer]
    launches: tuple[Launch, ...]
    picks: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    _kernels: dict[tuple[int, int, int, int], Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.head.name

    def role(self, role: str) -> dict[str, Buffer]:
        """The buffers of one role (input, output, intermediate), in order."""
        return {n: b for n, b in self.buffers.items() if b.role == role}

    def run(
        self,
        arrays: Mapping[str, Any] | None = None,
        /,
        *,
        out: Mapping[str, Any] | None = None,
        stream: Any = None,
        **named: Any,
    ) -> Mapping[str, Any]:
        """Launch once on arrays given by name (in a mapping, as keywords, or both) and return the
        outputs by name, without waiting for the device. Refused arguments raise LaunchError before
        anything is launched."""
        call = self.bind({**(arrays or {}), **named}, out=out, stream=stream)
        return call.launch(stream)

    def bind(
        self,
        given: Mapping[str, Any],
        *,
        out: Mapping[str, Any] | None = None,
        stream: Any = None,
        choices: Mapping[int, int] | None = None,
    ) -> Call:
        """Check the arguments and allocate the outputs that are not given and the intermediates.
        `choices` names the implementation to take, by the numbers of launch and implementation;
        LaunchError where the device cannot run it."""
        self._check_names(given, out or {})
        count = require()
        passed = {**self.head.defaults, **given, **(out or {})}
        device = self._device(passed, count)
        with cupy().cuda.Device(device), stream_of(stream) as on:
            views = self._views(passed, device)
            owners = {n: self._memory(b, views) for n, b in self.buffers.items()}
            return self._call(device, owners, choices or {}, on)

    def rebind(self, call: Call, choices: Mapping[int, int], stream: Any = None) -> Call:
        """Another call on the arrays of `call`, with other implementations."""
        views = {n: arrays.view(a) for n, a in call._memory.items()}
        owners = {n: v for n, v in views.items() if v is not None}
        with cupy().cuda.Device(call.device), stream_of(stream) as on:
            return self._call(call.device, owners, choices, on)

    def _call(
        self, device: int, owners: Mapping[str, View], choices: Mapping[int, int], on: Any
    ) -> Call:
        picks = self.picks.get(device_name(device), {}) if self.picks else {}
        taken = [
            self._taken(number, device, owners, choices.get(number), picks.get(number))
            for number in range(len(self.launches))
        ]
        steps = tuple(row for _, row in taken)
        if any(s.counters is not None for s in chain.from_iterable(steps)):
            on.synchronize()  # they are zero now, on whichever stream the call is launched
        outputs = {n: owners[n].owner for n in self.role("output")}
        numbers = tuple(number for number, _ in taken)
        return Call(outputs, device, numbers, steps, {n: v.owner for n, v in owners.items()})

    def _check_names(self, given: Mapping[str, Any], out: Mapping[str, Any]) -> None:
        inputs, outputs = self.role("input"), self.role("output")
        said = [f"missing input '{n}'" for n in inputs if n not in {**self.head.defaults, **given}]
        said += [f"unexpected argument '{n}'" for n in given if n not in inputs]
        said += [f"unexpected output '{n}'" for n in out if n not in outputs]
        if said:
            takes = f"takes {', '.join(inputs)} and returns {', '.join(outputs)}"
            raise LaunchError(f"{self.name}: {'; '.join(said)} ({takes})", code="arguments")

    def _device(self, passed: Mapping[str, Any], count: int) -> int:
        """The device of the first array that lies on one, else the current one."""
        for value in passed.values():
            found = None if arrays.is_scalar(value) else arrays.view(value)
            if found is not None and found.device is not None:
                return found.device
        current = int(cupy().cuda.runtime.getDevice())
        return current if current < count else 0

    def _views(self, passed: Mapping[str, Any], device: int) -> dict[str, View]:
        """Every argument's view; LaunchError with all that is wrong with all of them."""
        views, said = {}, []
        for name, value in passed.items():
            buffer = self.buffers[name]
            if buffer.shape == () and buffer.role == "input" and arrays.is_scalar(value):
                value = _scalar(buffer, value)
            found = arrays.view(value)
            said += arrays.problems(buffer, found, value, device)
            if found is not None:
                views[name] = found
        said = said or self._overlaps(views)
        if said:
            raise LaunchError(f"{self.name}: " + "; ".join(said), code="arguments")
        return views

    def _overlaps(self, views: Mapping[str, View]) -> list[str]:
        """Outputs that share memory with another argument: kernels assume that none does."""
        said = []
        spans = {n: v.span(self.buffers[n]) for n, v in views.items()}
        for a in (n for n in spans if self.buffers[n].role == "output"):
            for b in (n for n in spans if n != a):
                if spans[a][0] < spans[b][1] and spans[b][0] < spans[a][1]:
                    said.append(f"output '{a}' shares memory with '{b}'")
        return said

    def _memory(self, buffer: Buffer, views: Mapping[str, View]) -> View:
        if buffer.name in views:
            return views[buffer.name]
        made = cupy().empty(buffer.shape, dtype=samples.STORAGE[buffer.dtype])
        return View(made.data.ptr, buffer.shape, str(made.dtype), True, None, made)

    def _taken(
        self,
        number: int,
        device: int,
        owners: Mapping[str, View],
        choice: int | None,
        pick: int | None,
    ) -> tuple[int, tuple[_Step, ...]]:
        """The steps of the implementation chosen; else those of the first that the device runs,
        where one that was picked by measurement comes before all others."""
        launch = self.launches[number]

        def steps(way: int) -> tuple[_Step, ...]:
            kernels = enumerate(launch.implementations[way].kernels)
            keys = ((k, (number, way, place, device)) for place, k in kernels)
            return tuple(self._step(k, self._kernel(k, key), owners, device) for k, key in keys)

        every = range(len(launch.implementations))
        order = sorted(every, key=lambda way: way != pick) if choice is None else [choice]
        return first_able(launch, device, steps, order)

    def _step(self, kernel: Kernel, loaded: Any, owners: Mapping[str, View], device: int) -> _Step:
        maps = [tensor_map(view, owners[view.buffer].pointer) for view in kernel.maps]
        pointers = [owners[n].pointer for n in kernel.arguments]
        counters = cupy().zeros(kernel.counters, dtype="int32") if kernel.counters else None
        if counters is not None:
            pointers.append(counters.data.ptr)
        block = (kernel.threads, 1, 1)
        begin = None
        if may_overlap(kernel, device):
            begin = overlapping(loaded, kernel.grid, block, kernel.shared_bytes, pointers)
        return _Step(
            loaded,
            kernel.grid,
            block,
            kernel.shared_bytes,
            (*maps, *map(np.uint64, pointers)),
            tuple((owners[n].pointer, self.buffers[n].nbytes) for n in kernel.zeroed),
            counters,
            begin,
        )

    def _kernel(self, kernel: Kernel, key: tuple[int, int, int, int]) -> Any:
        if key not in self._kernels:
            self._kernels[key] = load(self.bundle, kernel, key[-1])
        return self._kernels[key]


def program_of(loaded: Loaded, head: Head, record: Record | None = None) -> Program:
    """One program of a loaded bundle, with what was measured of it."""
    rows = [b for b in loaded.manifest.buffers if b.program == head.name]
    launches = tuple(x for x in loaded.manifest.launches if x.program == head.name)
    picks = record.picks(loaded, head.name, launches) if record else {}
    return Program(loaded, head, {b.name: b for b in rows}, launches, picks)


def _scalar(buffer: Buffer, value: Any) -> Any:
    """A number as a device array of the buffer's type."""
    if buffer.dtype in ("i64", "i32", "i8", "bool"):
        stored = np.asarray(value).astype(samples.STORAGE[buffer.dtype])
    else:
        stored = np.asarray(samples.encode(np.float64(value), buffer.dtype))
    return cupy().asarray(stored.reshape(()))
