"""The gate between the compiler and the launcher: what ptxas reported, and what is refused.

`read` turns the log of `--ptxas-options=-v` into a `Report`; `check` raises CompileError, naming
the kernel and the reason, for what must never be launched: registers spilled to local memory, wgmma
that ptxas serialised (its warnings C7508 to C7519), more shared memory, registers or threads than
the architecture has. A stack frame alone is no reason: the slow paths of sin and cos have one.
`check_machine` refuses machine code that does not show what its kernel expects (source.Expected).

Limits are those of the CUDA C++ Programming Guide, "Compute Capabilities".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from nautile.codegen.sass import MachineCode, MainLoop
from nautile.codegen.source import CudaKernel, Expected
from nautile.errors import CompileError

__all__ = [
    "MAX_THREADS",
    "Report",
    "architecture_number",
    "check",
    "check_machine",
    "read",
    "shared_limit",
]

MAX_THREADS = 1024
REGISTER_FILE = 65536
MAX_GRID = (2**31 - 1, 65535, 65535)
# Bytes of shared memory that one block may have, by compute capability; the reserved 1 KB is out.
_SHARED = {75: 64, 80: 163, 86: 99, 87: 163, 88: 99, 89: 99, 90: 227, 100: 227, 103: 227, 110: 227}
_SHARED_DEFAULT = 99  # sm_120 and sm_121, and what any later card has at least

_ARCHITECTURE = re.compile(r"sm_(\d{2,3})([af]?)")
_SERIALISED = re.compile(r"C75(0[89]|1\d)")


@dataclass(frozen=True, slots=True)
class Report:
    """What ptxas says of one kernel: registers a thread, bytes spilled and of stack a thread, bytes
    of static shared memory a block, and every warning of the compiler and of ptxas."""

    registers: int
    spill_stores: int
    spill_loads: int
    stack: int
    shared: int
    warnings: tuple[str, ...] = ()


def architecture_number(architecture: str) -> int:
    """90 for "sm_90" and "sm_90a". CompileError for anything that is not an architecture."""
    match = _ARCHITECTURE.fullmatch(architecture)
    if not match:
        raise CompileError(f"'{architecture}' is no architecture; write one like sm_80 or sm_90a")
    return int(match[1])


def shared_limit(architecture: str) -> int:
    """Bytes of shared memory, static and dynamic together, that a block may have."""
    return 1024 * _SHARED.get(architecture_number(architecture), _SHARED_DEFAULT)


def read(log: str) -> Report:
    """The report in a compilation log. Where device functions were not inlined, spills and stack
    are those of all of them together. CompileError if the log holds no report."""
    used = re.search(r"Used (\d+) registers", log)
    if not used:
        raise CompileError("the compiler's log holds no ptxas report")
    static = re.search(r"Used \d+ registers.*?(\d+) bytes smem", log)
    return Report(
        registers=int(used[1]),
        spill_stores=_total(r"(\d+) bytes spill stores", log),
        spill_loads=_total(r"(\d+) bytes spill loads", log),
        stack=_total(r"(\d+) bytes stack frame", log),
        shared=int(static[1]) if static else 0,
        warnings=tuple(line.strip() for line in log.splitlines() if _is_warning(line)),
    )


def check(kernel: CudaKernel, architecture: str, report: Report) -> None:
    """CompileError, naming the kernel, if it must not be launched on `architecture`."""
    for reason in _reasons(kernel, architecture, report):
        raise CompileError(f"kernel {kernel.name} for {architecture}: {reason}", code="gate")


def check_machine(kernel: CudaKernel, architecture: str, code: MachineCode) -> None:
    """CompileError, naming the kernel, if its machine code lacks what the kernel expects."""
    if kernel.expected is None:
        return
    for reason in _missing(kernel.expected, code):
        raise CompileError(f"kernel {kernel.name} for {architecture}: {reason}", code="gate")


def _missing(expected: Expected, code: MachineCode) -> list[str]:
    found = []
    if code.products < expected.products:
        found.append(f"has {code.products} warpgroup products, {expected.products} are expected")
    most = max((loop.products for loop in code.loops), default=0)
    for loop in code.loops:
        if loop.products == most:
            found += _missing_in_loop(expected, loop)
    return found


def _missing_in_loop(expected: Expected, loop: MainLoop) -> list[str]:
    found = []
    if loop.serialised:
        found.append(f"waits {loop.waits} times for {loop.products} warpgroup products of a loop")
    if loop.moves > expected.moves:
        found.append(
            f"moves descriptors {loop.moves} times from ordinary registers in a main loop,"
            f" {expected.moves} at most are expected"
        )
    overlapped = max(loop.overlapped, default=0)
    if overlapped < expected.overlapped:
        found.append(
            f"has {overlapped} pointwise instructions while products fly in a main loop,"
            f" {expected.overlapped} are expected: a wait was moved above them"
        )
    return found


def _reasons(kernel: CudaKernel, architecture: str, report: Report) -> list[str]:
    found = []
    if report.spill_stores or report.spill_loads:
        found.append(
            f"spills registers ({report.spill_stores} bytes stored, {report.spill_loads} loaded"
            f" a thread, {report.registers} registers); a smaller tile is needed"
        )
    found += [w for w in report.warnings if _SERIALISED.search(w)]
    shared_out = kernel.expected.registers if kernel.expected else 0
    if report.registers < shared_out:
        found.append(
            f"is launched with {report.registers} registers a thread; its roles exchange"
            f" {shared_out}, and would wait for ever"
        )
    shared, limit = report.shared + kernel.shared_bytes, shared_limit(architecture)
    if shared > limit:
        found.append(f"needs {shared} bytes of shared memory a block, {limit} are there")
    return found + _shape_reasons(kernel, report)


def _shape_reasons(kernel: CudaKernel, report: Report) -> list[str]:
    found = []
    if not 1 <= kernel.threads <= MAX_THREADS:
        found.append(f"asks for {kernel.threads} threads a block, 1 to {MAX_THREADS} are possible")
    if not all(1 <= n <= most for n, most in zip(kernel.grid, MAX_GRID, strict=True)):
        found.append(f"asks for a grid of {kernel.grid}, at most {MAX_GRID} is possible")
    warps = -(-kernel.threads // 32)
    needed = warps * 32 * (-(-report.registers // 8) * 8)  # allocated by warp in steps of 8
    if needed > REGISTER_FILE:
        found.append(f"needs {needed} registers a block, {REGISTER_FILE} are there")
    return found


def _total(pattern: str, log: str) -> int:
    return sum(int(n) for n in re.findall(pattern, log))


def _is_warning(line: str) -> bool:
    return bool(re.search(r"\bwarning\b[ #:]|\(C7\d\d\d\)", line))
