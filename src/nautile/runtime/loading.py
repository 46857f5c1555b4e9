"""Kernels of a bundle onto a device, and which of a launch's implementations runs there."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from nautile.bundle.manifest import Implementation, Kernel, Launch
from nautile.bundle.read import Loaded
from nautile.errors import BundleError, LaunchError, NautileError
from nautile.runtime.device import cupy, fitting, shared_limit, source_runs_on

__all__ = ["coded_for", "first_able", "load", "may_overlap", "unable"]

T = TypeVar("T")
OVERLAPPING = 90  # the compute capability from which a kernel can wait for those before it


def first_able(
    launch: Launch,
    device: int,
    make: Callable[[int], T],
    order: Sequence[int],
) -> tuple[int, T]:
    """The first implementation, in the order given, that the device can run and that `make`
    succeeds for, by its number; those with machine code for the device come first, as others take
    seconds to compile. One that should run and does not is told in a warning, unless it is the
    last: then the error is raised."""
    ways = launch.implementations
    for number, last in _with_last(sorted(order, key=lambda n: not coded_for(ways[n], device))):
        way = launch.implementations[number]
        reason = next((r for k in way.kernels if (r := unable(k, device))), None)
        if reason and not last:
            continue
        try:
            if reason:
                raise LaunchError(reason, code="device")
            return number, make(number)
        except LaunchError as error:
            if last:
                raise
            warnings.warn(f"{launch.name}: {error}; another is used", RuntimeWarning, stacklevel=3)
    raise LaunchError(f"{launch.name}: no implementation was asked for", code="device")


def _with_last(numbers: Sequence[int]) -> Iterator[tuple[int, bool]]:
    return ((number, i == len(numbers) - 1) for i, number in enumerate(numbers))


def unable(kernel: Kernel, device: int) -> str:
    """Why the device cannot run the kernel; empty if it can."""
    capability, limit = _capability(device), shared_limit(device)
    if kernel.shared_bytes > limit:
        return (
            f"kernel {kernel.kernel} needs {kernel.shared_bytes} bytes of shared memory a block;"
            f" device {device} has {limit}"
        )
    if fitting(kernel.cubins, capability) or source_runs_on(kernel.architecture, capability):
        return ""
    return (
        f"kernel {kernel.kernel} needs {kernel.architecture};"
        f" this device has compute capability {capability / 10:.1f}"
    )


def coded_for(way: Implementation, device: int) -> bool:
    """Whether there is machine code for the device of all kernels of an implementation."""
    capability = _capability(device)
    return all(fitting(k.cubins, capability) for k in way.kernels)


def may_overlap(kernel: Kernel, device: int) -> bool:
    """Whether the kernel may begin while the one before it drains: it waits on the device, in
    machine code of an architecture that can. What is cleared before it is no kernel."""
    capability = _capability(device)
    able = kernel.overlaps and not kernel.zeroed and not kernel.maps
    return able and capability >= OVERLAPPING and bool(fitting(kernel.cubins, capability))


def load(bundle: Loaded, kernel: Kernel, device: int) -> Any:
    """The kernel from the cubin that fits the device, or compiled from its source."""
    try:
        loaded = _module(bundle, kernel, device).get_function(kernel.kernel)
        # Setting it also loads the code, which a capturing stream could not.
        loaded.max_dynamic_shared_size_bytes = kernel.shared_bytes
    except NautileError:
        raise
    except Exception as error:  # CuPy's compiler and driver errors have no common class
        raise LaunchError(
            f"kernel {kernel.kernel} cannot be loaded: {error}", code="load"
        ) from error
    return loaded


def _module(bundle: Loaded, kernel: Kernel, device: int) -> Any:
    best = fitting(kernel.cubins, _capability(device))
    if best is not None:
        return cupy().RawModule(path=str(bundle.folder / kernel.cubins[best]))
    try:
        text = bundle.contents[kernel.source].decode()
    except UnicodeDecodeError as error:
        raise BundleError(f"{kernel.source} is not UTF-8 text") from error
    specific = (f"-arch={kernel.architecture}",) if kernel.architecture[-1] in "af" else ()
    return cupy().RawModule(code=text, options=(*kernel.options, *specific))


def _capability(device: int) -> int:
    return int(cupy().cuda.Device(device).compute_capability)
