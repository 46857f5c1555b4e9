"""What the hardware counters say of generated kernels and of peers, by Nsight Compute. On a GPU.

    PYTHONPATH=src python bench/counters.py CASE[=PEER,...]... [--ncu ncu] [--seconds 300]
                                            [-o bench/results/profiles]

CASE is the name of a case of bench/gpu, which must have been built (bench/build_gpu.py); its
implementation is the launcher's own choice. Without peers numpy and cupy are enough, and all cases
share a process; with peers, a case has one of its own. Two launches of everything are not counted,
one is, at the clocks that the card takes by itself. FOLDER/CASE.json tells of each kernel:

```
Profile ::= case, gpu, date, ncu, kernels [Kernel]
Kernel  ::= whose ("nautile" or "peers"), name, ms, stalls {reason: share of the time of a warp},
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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]

from gpu.case import Case  # noqa: E402
from gpu.groups import GROUPS, cases  # noqa: E402

__all__ = ["FACTS", "Wanted", "kernels", "main", "split"]

LEAST = 5.0  # seconds for which a process is still started
SECTIONS = (
    *("SpeedOfLight", "ComputeWorkloadAnalysis", "MemoryWorkloadAnalysis", "LaunchStats"),
    "MemoryWorkloadAnalysis_Tables",  # bytes from and to memory
    *("WarpStateStats", "SchedulerStats", "Occupancy"),
)

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
    "dram": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
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


@dataclass(frozen=True, slots=True)
class Wanted:
    """A case, and the peers that are counted beside it."""

    case: Case
    peers: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """As the command line has it."""
        return "=".join([self.case.name, *([",".join(self.peers)] if self.peers else [])])


def main() -> int:
    options = _options()
    try:
        wanted = [_wanted(text) for text in options.cases]
    except KeyError as error:
        print(f"no case named {error}", file=sys.stderr)
        return 2
    if options.child:
        _child(wanted)
        return 0
    until, missed = time.time() + options.seconds, 0
    for group in _groups(wanted):
        profiles, said = _profiled(options.ncu, group, until - time.time())
        missed += len(group) - len(profiles)
        options.output.mkdir(parents=True, exist_ok=True)
        for name, profile in profiles.items():
            path = options.output / f"{name}.json"
            path.write_text(json.dumps(profile, indent=1) + "\n")
        print(said, flush=True)
    return 1 if missed else 0


def _wanted(text: str) -> Wanted:
    """KeyError for an unknown case."""
    name, _, peers = text.partition("=")
    case = {c.name: c for c in cases(GROUPS)}[name]
    return Wanted(case, tuple(p for p in peers.split(",") if p))


def _groups(wanted: Sequence[Wanted]) -> list[list[Wanted]]:
    """What shares a process: all cases without peers; what a peer launches is told apart only by
    not being ours."""
    plain = [w for w in wanted if not w.peers]
    return ([plain] if plain else []) + [[w] for w in wanted if w.peers]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="+", metavar="CASE[=PEER,...]")
    parser.add_argument("--ncu", default=shutil.which("ncu") or "ncu")
    parser.add_argument("--seconds", type=float, default=300.0, help="limit of the whole run")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path, default=HERE / "results" / "profiles")
    return parser.parse_args()


# -- the parent ------------------------------------------------------------------------------------


def _profiled(ncu: str, group: Sequence[Wanted], seconds: float) -> tuple[dict[str, Row], str]:
    """The profiles of cases of one process by their names, and what became of them, for people."""
    if seconds < LEAST:
        return {}, "not run: the time was over"
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report"
        counted = [ncu, "--profile-from-start", "off", "--clock-control", "none"]
        counted += [x for section in SECTIONS for x in ("--section", section)]
        me = [sys.executable, str(HERE / "counters.py"), "--child", *(w.text for w in group)]
        shown = [ncu, "--import", f"{report}.ncu-rep", "--page", "raw", "--csv"]
        try:
            done = _run([*counted, "-f", "-o", str(report), *me], seconds)
            table = _run(shown, 60.0)
        except (OSError, subprocess.SubprocessError) as error:
            told = getattr(error, "stdout", "") or ""
            return {}, f"failed: {error} {told[-300:] if isinstance(told, str) else ''}"
    head = {"gpu": _after(done, "gpu: "), "date": date.today().isoformat(), "ncu": _version(ncu)}
    found: dict[str, Row] = {}
    rows = kernels(table)
    for wanted in group:
        name = wanted.case.name
        mine, rows = split(rows, _after(done, f"{name}: ").split(), bool(wanted.peers))
        found[name] = {"case": name, **head, "kernels": mine}
    said = (f"{n}: {k['name']} {k['ms']:.4f} ms" for n, p in found.items() for k in p["kernels"])
    return found, "\n".join(said)


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


def kernels(table: str) -> list[Row]:
    """The kernels of a raw page in CSV, whose second line has the units. What ncu itself says
    before the table is left out."""
    lines = table.splitlines()
    start = next((i for i, x in enumerate(lines) if x.startswith('"ID"')), len(lines))
    units, *counted = list(csv.DictReader(io.StringIO("\n".join(lines[start:])))) or [{}]
    return [_kernel(row, units) for row in counted]


def split(rows: Sequence[Row], names: Sequence[str], peers: bool) -> tuple[list[Row], list[Row]]:
    """The rows of a case whose own kernels are `names`, and the rest, which are its peers' where it
    has any. ValueError where the rows do not begin with the case's own."""
    if [r["name"] for r in rows[: len(names)]] != list(names):
        raise ValueError(f"counted {', '.join(r['name'] for r in rows)} and not {', '.join(names)}")
    mine = [{"whose": OURS} | r for r in rows[: len(names)]]
    rest = list(rows[len(names) :])
    return (mine + [{"whose": "peers"} | r for r in rest], []) if peers else (mine, rest)


def _kernel(row: Mapping[str, str], units: Mapping[str, str]) -> Row:
    facts = {fact: _value(row, units, metric) for fact, metric in FACTS.items()}
    return {
        "name": row["Kernel Name"].partition("(")[0],
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


def _child(group: Sequence[Wanted]) -> None:
    """Launch everything twice, then once while ncu counts."""
    import cupy

    driver = ctypes.CDLL("libcuda.so.1")
    print(f"gpu: {cupy.cuda.runtime.getDeviceProperties(0)['name'].decode()}", flush=True)
    for wanted in group:
        actions, names, keep = _actions(wanted)
        print(f"{wanted.case.name}: {' '.join(names)}", flush=True)
        for number in range(3):
            cupy.cuda.Device().synchronize()
            if number == 2:
                driver.cuProfilerStart()
            for action in actions:
                action()
        cupy.cuda.Device().synchronize()
        driver.cuProfilerStop()
        del actions, keep


def _actions(wanted: Wanted) -> tuple[list[Callable[[], Any]], list[str], list[Any]]:
    """What is launched, ours first, the names of our kernels, and what it all needs to live."""
    from nautile.runtime import Bundle
    from nautile.runtime.draw import inputs

    program = Bundle.load(wanted.case.folder)[wanted.case.program]
    if not wanted.peers:
        call = program.bind(inputs(program, 1))
        return [call.launch], _names(program, call.choices), [call]
    import torch
    from gpu.check import draw
    from gpu.peers import work_of

    work = work_of(wanted.case)
    given = draw(program, work, 1)
    call = program.bind(given)
    torch.set_grad_enabled(False)
    made = [c.make() for c in work.contestants if c.name in wanted.peers]
    ours = partial(call.launch, torch.cuda.current_stream())
    actions: list[Callable[[], Any]] = [ours, *(partial(m, given) for m in made)]
    return actions, _names(program, call.choices), [call, given]


def _names(program: Any, choices: Sequence[int]) -> list[str]:
    rows = zip(program.launches, choices, strict=True)
    return [k.kernel for launch, n in rows for k in launch.implementations[n].kernels]


if __name__ == "__main__":
    sys.exit(main())
