"""What the hardware counters say of generated kernels and of peers, by Nsight Compute. On a GPU.

    PYTHONPATH=src python bench/counters.py CASE[=PEER,...]... [--ncu ncu] [--seconds 300]
                                            [-o bench/results/profiles]

CASE is the name of a case of bench/gpu, which must have been built (bench/build_gpu.py); its
implementation is the launcher's own choice. Without peers numpy and cupy are enough. Each case runs
in a process of its own: two launches of everything that are not counted, one that is, at the clocks
that the card takes by itself. FOLDER/CASE.json tells of each kernel:

```
Profile ::= case, gpu, date, ncu, kernels [Kernel]
Kernel  ::= name, whose ("nautile" or the peers), ms, stalls {reason: share of the time of a warp},
            and, where the card has them, the metrics of FACTS by their names there
```
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import io
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]

from gpu.case import Case  # noqa: E402
from gpu.groups import GROUPS, cases  # noqa: E402

__all__ = ["FACTS", "kernels", "main"]

FACTS: Mapping[str, str] = {
    "sm_ghz": "sm__cycles_elapsed.avg.per_second",
    "tensor_pipe": "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
    "tensor_cycles": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "issue_slots": "sm__inst_issued.avg.pct_of_peak_sustained_active",
    "issue_active": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "alu_pipe": "sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active",
    "fma_pipe": "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
    "special_pipe": "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",
    "sm": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram_read_bytes": "dram__bytes_read.sum",
    "dram_written_bytes": "dram__bytes_write.sum",
    "l2": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "l2_hits": "lts__t_sector_hit_rate.pct",
    "shared_bank_conflicts": "l1tex__data_bank_conflicts_pipe_lsu.sum",
    "warps_active": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "instructions": "smsp__inst_executed.sum",
    "registers": "launch__registers_per_thread",
    "threads": "launch__block_size",
    "blocks": "launch__grid_size",
    "shared_bytes": "launch__shared_mem_per_block",
    "waves": "launch__waves_per_multiprocessor",
}
TIME = "gpu__time_duration.sum"
STALL, STALL_END = "smsp__average_warps_issue_stalled_", "_per_issue_active.ratio"
SCALES = {
    "": 1.0, "%": 1.0, "inst": 1.0, "byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9,
    "ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3, "Hz": 1e-9, "Mhz": 1e-3, "MHz": 1e-3, "Ghz": 1.0,
    "GHz": 1.0, "byte/block": 1.0, "Kbyte/block": 1e3, "register/thread": 1.0, "cycle/nsecond": 1.0,
    "cycle/usecond": 1e-3, "cycle/second": 1e-9,
}  # fmt: skip
OURS = "nautile"
Row = dict[str, Any]


def main() -> int:
    options = _options()
    known = {c.name: c for c in cases(GROUPS)}
    if options.child:
        _child(known[options.cases[0].partition("=")[0]], options.cases[0].partition("=")[2])
        return 0
    until, missed = time.time() + options.seconds, 0
    for text in options.cases:
        name = text.partition("=")[0]
        if name not in known:
            print(f"{name}: no such case", file=sys.stderr)
            return 2
        said = _profiled(options.ncu, text, options.output / f"{name}.json", until - time.time())
        missed += not said.startswith("ok")
        print(f"{name}: {said}", flush=True)
    return 1 if missed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="+", metavar="CASE[=PEER,...]")
    parser.add_argument("--ncu", default=shutil.which("ncu") or "ncu")
    parser.add_argument("--seconds", type=float, default=300.0, help="limit of the whole run")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path, default=HERE / "results" / "profiles")
    return parser.parse_args()


# -- the parent ------------------------------------------------------------------------------------


def _profiled(ncu: str, text: str, path: Path, seconds: float) -> str:
    """Profile one case and write its file; what became of it, for people."""
    if seconds < 5:
        return "not run: the time was over"
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report"
        counted = [ncu, "--profile-from-start", "off", "--clock-control", "none", "--set", "full"]
        me = [sys.executable, str(HERE / "counters.py"), "--child", text]
        shown = [ncu, "--import", f"{report}.ncu-rep", "--page", "raw", "--csv"]
        try:
            done = _run([*counted, "-f", "-o", str(report), *me], seconds)
            table = _run(shown, 60.0)
        except (OSError, subprocess.SubprocessError) as error:
            told = getattr(error, "stdout", "") or ""
            return f"failed: {error} {told[-300:] if isinstance(told, str) else ''}"
    name = text.partition("=")[0]
    head = {"case": name, "gpu": _after(done, "gpu: "), "date": date.today().isoformat()}
    rows = kernels(table, _after(done, "kernels: ").split())
    profile = head | {"ncu": _version(ncu), "kernels": rows}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(profile, indent=1) + "\n")
    return "ok, " + ", ".join(f"{r['name']} {r['ms']:.4f} ms" for r in rows)


def _run(command: Sequence[str], seconds: float) -> str:
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds,
        check=True,
    )  # fmt: skip
    return done.stdout


def _after(text: str, mark: str) -> str:
    """The rest of the line that begins with the mark."""
    return next((x[len(mark) :] for x in text.splitlines() if x.startswith(mark)), "")


def _version(ncu: str) -> str:
    return _run([ncu, "--version"], 30.0).strip().splitlines()[-1].removeprefix("Version ")


def kernels(table: str, ours: Iterable[str]) -> list[Row]:
    """The kernels of a raw page in CSV, whose second line has the units; those named `ours` are
    generated ones. What ncu itself says before the table is left out."""
    lines = table.splitlines()
    start = next((i for i, x in enumerate(lines) if x.startswith('"ID"')), len(lines))
    rows = list(csv.DictReader(io.StringIO("\n".join(lines[start:]))))
    if not rows:
        return []
    units, *counted = rows
    named = set(ours)
    return [_kernel(row, units, named) for row in counted]


def _kernel(row: Mapping[str, str], units: Mapping[str, str], ours: set[str]) -> Row:
    name = row["Kernel Name"].partition("(")[0]
    facts = {fact: _value(row, units, metric) for fact, metric in FACTS.items()}
    return {
        "name": name,
        "whose": OURS if name in ours else "peers",
        "ms": _value(row, units, TIME),
        "stalls": _stalls(row),
    } | {fact: value for fact, value in facts.items() if value is not None}


def _value(row: Mapping[str, str], units: Mapping[str, str], metric: str) -> float | None:
    """In percent, bytes, milliseconds, GHz or counts; None where the card has no such metric."""
    try:
        number = float(row[metric].replace(",", ""))
    except (KeyError, ValueError):
        return None
    return number * SCALES.get(units.get(metric, ""), 1.0)


def _stalls(row: Mapping[str, str]) -> dict[str, float]:
    """Shares of a warp's time, the greatest first; what is under one in fifty is left out."""
    found = {}
    for metric, text in row.items():
        if metric.startswith(STALL) and metric.endswith(STALL_END):
            found[metric[len(STALL) : -len(STALL_END)]] = float(text.replace(",", "") or 0)
    total = sum(found.values()) or 1.0
    shares = {reason: round(x / total, 3) for reason, x in found.items() if x >= total / 50}
    return dict(sorted(shares.items(), key=lambda kv: -kv[1]))


# -- the child -------------------------------------------------------------------------------------


def _child(case: Case, peers: str) -> None:
    """Launch everything twice, then once while ncu counts."""
    import cupy

    from nautile.runtime import Bundle

    program = Bundle.load(case.folder)[case.program]
    actions, keep = _actions(case, program, [p for p in peers.split(",") if p])
    chosen = keep[0].choices
    names = [
        kernel.kernel
        for launch, number in zip(program.launches, chosen, strict=True)
        for kernel in launch.implementations[number].kernels
    ]
    driver = ctypes.CDLL("libcuda.so.1")
    gpu = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    print(f"gpu: {gpu}", f"kernels: {' '.join(names)}", sep="\n", flush=True)
    for number in range(3):
        cupy.cuda.Device().synchronize()
        if number == 2:
            driver.cuProfilerStart()
        for action in actions:
            action()
    cupy.cuda.Device().synchronize()
    driver.cuProfilerStop()


def _actions(case: Case, program: Any, peers: Sequence[str]) -> tuple[list[Any], list[Any]]:
    """What is launched, ours first, and what it needs to live."""
    if not peers:
        from nautile.runtime.draw import inputs

        call = program.bind(inputs(program, 1))
        return [call.launch], [call]
    from functools import partial

    import torch
    from gpu.check import draw
    from gpu.peers import work_of

    work = work_of(case)
    given = draw(program, work, 1)
    call = program.bind(given)
    torch.set_grad_enabled(False)
    made = [c.make() for c in work.contestants if c.name in peers]
    ours = partial(call.launch, torch.cuda.current_stream())
    return [ours, *(partial(m, given) for m in made)], [call, given]


if __name__ == "__main__":
    sys.exit(main())
