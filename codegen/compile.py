"""CUDA C++ to cubins with NVRTC: no GPU, driver or toolkit is needed.

Floating point is IEEE: no flush of subnormals, divisions and square roots rounded correctly, FMA
contraction allowed. A kernel's own options may say otherwise for division and square root only.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nautile.codegen import cubin_cache, gate, sass
from nautile.codegen.gate import Report
from nautile.codegen.sass import MachineCode
from nautile.codegen.source import CudaKernel
from nautile.errors import CompileError

__all__ = [
    "ARCHITECTURES",
    "DEFAULT_OPTIONS",
    "Compiled",
    "Report",
    "architecture_of",
    "compile_kernel",
    "compile_many",
    "compiler_version",
]

ARCHITECTURES: Mapping[str, str] = {
    "a100": "sm_80",
    "l40s": "sm_89",
    "rtx4090": "sm_89",
    "h100": "sm_90",
    "h200": "sm_90",
    "rtx5090": "sm_120",
}
DEFAULT_OPTIONS = ("--ftz=false", "--prec-div=true", "--prec-sqrt=true", "--fmad=true")
# Without --no-cache, NVRTC on a machine with a driver answers a repeated compilation from a cache
# of its own, and the log then lacks the report. 177: a variable that nobody uses.
_LOG_OPTIONS = ("--ptxas-options=-v", "--diag-suppress=177", "--no-cache")
_TOO_MANY = re.compile(r"\(C7602\)")  # registers that the block's size leaves are too few
_REFUSED = re.compile(r"--?(use_fast_math|ftz=true|ftz)$")


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel's machine code for one architecture, the options that made it, and the report. For a
    kernel that expects something of its machine code, `machine` is what that shows, or `unread`
    says why nobody looked, as a warning does."""

    cubin: bytes
    report: Report
    architecture: str
    options: tuple[str, ...]
    cached: bool = False
    machine: MachineCode | None = None
    unread: str = ""


def architecture_of(device: str) -> str:
    """The architecture of a target: a device's name ("h200") or an architecture itself."""
    known = ARCHITECTURES.get(device.lower())
    if known:
        return known
    if device.startswith("sm_"):
        gate.architecture_number(device)
        return device
    raise CompileError(f"no device named '{device}'; known: {', '.join(sorted(ARCHITECTURES))}")


def compiler_version() -> str:
    """NVRTC's version, for example "13.0". CompileError if NVRTC is not installed."""
    result, major, minor = _nvrtc().nvrtcVersion()
    _expect(result, "nvrtcVersion")
    return f"{major}.{minor}"


def compile_kernel(
    kernel: CudaKernel, architecture: str = "sm_90", *, cache: Path | str | None = "default"
) -> Compiled:
    """Compile for one architecture and pass the gate. `cache` is a folder, None for no cache, or
    "default". A kernel that needs sm_90a gets it where sm_90 is asked for. CompileError names the
    kernel and the reason: a syntax error, an architecture too old, or what the gate refused."""
    target = _target(kernel, architecture)
    options = _options(kernel, target)
    folder = cubin_cache.default_folder() if cache == "default" else cache and Path(cache)
    key = cubin_cache.key_of(compiler_version(), *options, kernel.name, kernel.text)
    found = cubin_cache.get(folder or None, key)
    cubin, log = found or _compile(kernel, target, options)
    if found is None:
        cubin_cache.put(folder or None, key, cubin, log)
    report = gate.read(log)
    gate.check(kernel, target, report)
    made = Compiled(cubin, report, target, options, cached=found is not None)
    return made if kernel.expected is None else _read_machine(kernel, made, folder or None)


def compile_many(
    kernels: Sequence[CudaKernel],
    architectures: Iterable[str],
    threads: int | None = None,
    *,
    cache: Path | str | None = "default",
) -> tuple[Mapping[str, Compiled], ...]:
    """Every kernel for every architecture that is asked for, in threads (NVRTC releases the GIL):
    for each kernel a mapping from the architecture asked for to its machine code. The first
    CompileError, in the order of the kernels, is raised once all have run."""
    wanted = tuple(dict.fromkeys(architectures))
    workers = threads or max(1, min(len(kernels) * len(wanted), os.cpu_count() or 1))
    compiler_version()  # load the library once, before threads race to do it
    with ThreadPoolExecutor(workers) as pool:
        jobs = [
            {a: pool.submit(compile_kernel, k, a, cache=cache) for a in wanted} for k in kernels
        ]
    return tuple({a: job.result() for a, job in row.items()} for row in jobs)


def _read_machine(kernel: CudaKernel, made: Compiled, folder: Path | None) -> Compiled:
    """With what the machine code shows, which passes the gate; the cache keeps what was read."""
    key = cubin_cache.key_of("machine code", sass.VERSION, kernel.name, made.cubin.hex())
    kept = cubin_cache.get(folder, key)
    code = sass.from_json(kept[1]) if kept else None
    if code is None:
        try:
            code = sass.read(made.cubin, kernel.name)
        except sass.UnreadError as error:
            text = f"the machine code of {kernel.name} was not checked: {error}"
            warnings.warn(text, RuntimeWarning, stacklevel=3)
            return replace(made, unread=text)
        cubin_cache.put(folder, key, b"", sass.to_json(code))
    gate.check_machine(kernel, made.architecture, code)
    return replace(made, machine=code)


def _target(kernel: CudaKernel, architecture: str) -> str:
    asked, needed = (gate.architecture_number(a) for a in (architecture, kernel.architecture))
    specific = kernel.architecture[-1] in "af"
    if asked < needed or (specific and asked != needed):
        raise CompileError(
            f"kernel {kernel.name} needs {kernel.architecture} and cannot run on {architecture}"
        )
    return kernel.architecture if specific else architecture


def _options(kernel: CudaKernel, architecture: str) -> tuple[str, ...]:
    for option in kernel.options:
        if _REFUSED.match(option):
            raise CompileError(f"kernel {kernel.name}: option {option} would break IEEE arithmetic")
    named = {_flag(o) for o in kernel.options}
    defaults = tuple(o for o in DEFAULT_OPTIONS if _flag(o) not in named)
    return (f"-arch={architecture}", *kernel.options, *defaults)


def _flag(option: str) -> str:
    return option.lstrip("-").partition("=")[0]


def _compile(kernel: CudaKernel, architecture: str, options: tuple[str, ...]) -> tuple[bytes, str]:
    nvrtc = _nvrtc()
    name = f"{kernel.name}.cu".encode()
    result, program = nvrtc.nvrtcCreateProgram(kernel.text.encode(), name, 0, None, None)
    _expect(result, "nvrtcCreateProgram")
    try:
        flags = [o.encode() for o in (*options, *_LOG_OPTIONS)]
        (result,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
        log = _fetch(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
        text = log.rstrip(b"\0").decode(errors="replace")
        if int(result) != 0:
            code = "gate" if _TOO_MANY.search(text) else None
            raise CompileError(_explain(kernel, architecture, result, text), code=code)
        return _fetch(program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN), text
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _fetch(program: Any, size_of: Any, read: Any) -> bytes:
    result, size = size_of(program)
    _expect(result, size_of.__name__)
    data = bytearray(size)
    (result,) = read(program, data)
    _expect(result, read.__name__)
    return bytes(data)


def _explain(kernel: CudaKernel, architecture: str, result: Any, log: str) -> str:
    head = f"kernel {kernel.name} for {architecture}: NVRTC refused it ({result.name})"
    lines = log.splitlines()
    at = [i for i, line in enumerate(lines) if re.search(r"\berror\b|fatal", line)]
    quoted = [line for i in at[:5] for line in lines[i : i + 2]] or lines[:5]
    return "\n".join([head, *("    " + line.rstrip()[:200] for line in quoted)])


def _expect(result: Any, what: str) -> None:
    if int(result) != 0:
        raise CompileError(f"{what} failed: {result.name}")


def _nvrtc() -> Any:
    missing = "compiling kernels needs NVRTC: pip install 'nautile[compile]'"
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except ImportError as error:
        raise CompileError(missing, code="compile-extra") from error
    except (RuntimeError, OSError) as error:  # the bindings are there, the library is not
        raise CompileError(f"{missing} ({error})", code="compile-extra") from error
    return nvrtc
