"""`run` and `bench` as functions that return plain data, and as `python -m nautile.runtime`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nautile import samples
from nautile.errors import BundleError, NautileError
from nautile.runtime.checking import check as check_program
from nautile.runtime.device import cupy
from nautile.runtime.draw import inputs as sample_inputs
from nautile.runtime.files import load_inputs, save_outputs
from nautile.runtime.launch import Program
from nautile.runtime.opened import Bundle
from nautile.runtime.record import Record
from nautile.runtime.timing import bench
from nautile.runtime.tuning import tune as fastest

__all__ = ["bench_command", "main", "run_command"]


def run_command(
    bundle: Path | str,
    *,
    inputs: Path | None = None,
    output: Path | None = None,
    check: bool = False,
    program: str | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Run a bundle's programs on the arrays of an NPZ file, or on sample inputs where none is
    given, and report each output's shape, type and range. With `check`, sampled outputs are judged
    against the stored reference and the report has a "verdict". Several programs give
    {"programs": [...]}."""
    loaded = Bundle.load(bundle)
    chosen = [loaded[program]] if program else list(loaded)
    if (inputs or output) and len(chosen) > 1:
        chosen = [loaded.only]
    return _merged([_run(p, inputs, output, check, seed) for p in chosen])


def bench_command(
    bundle: Path | str,
    *,
    repeats: int = 100,
    program: str | None = None,
    tune: bool = True,
) -> dict[str, Any]:
    """Check each program where the bundle has a reference, then time it; see `timing.bench`. Where
    a launch has several implementations for the device, they are measured first, and the fastest is
    recorded in the bundle's folder for `run`, unless `tune` is false."""
    loaded = Bundle.load(bundle)
    chosen = [loaded[program]] if program else list(loaded)
    return _merged([_bench(p, repeats, tune) for p in chosen])


def _run(
    program: Program, inputs: Path | None, output: Path | None, check: bool, seed: int
) -> dict[str, Any]:
    given = load_inputs(program, inputs) if inputs else sample_inputs(program, seed)
    outputs = program.run(given)
    cupy().cuda.Device().synchronize()
    report: dict[str, Any] = {"program": program.name, "kernels": len(program.launches)}
    report["outputs"] = {n: _summary(program, n, a) for n, a in outputs.items()}
    if output:
        save_outputs(outputs, Path(output))
        report["saved"] = str(output)
    return report | (check_program(program) if check else {})


def _bench(program: Program, repeats: int, tune: bool) -> dict[str, Any]:
    program, tuned = _tuned(program) if tune else (program, {})
    checked = check_program(program) if program.head.expected else {}
    return bench(program, repeats) | tuned | checked


def _tuned(program: Program) -> tuple[Program, dict[str, Any]]:
    """The program with its fastest implementations, recorded; and the report of it."""
    found = fastest(program)
    if found is None:
        return program, {}
    folder = program.bundle.folder
    record = Record.load(folder).with_picks(found.device, program.name, found.picks)
    rows = [c.as_dict(program.launches) for c in found.contests]
    report: dict[str, Any] = {"contests": rows}
    try:
        return found.program, report | {"recorded": str(record.save(folder))}
    except BundleError as error:  # a bundle that cannot be written to can still be timed
        return found.program, report | {"recorded": None, "not_recorded": str(error)}


def _summary(program: Program, name: str, array: Any) -> dict[str, Any]:
    """Shape, type, how much is finite, and the range of what is."""
    xp, buffer = cupy(), program.buffers[name]
    values = samples.decode(array, buffer.dtype, xp=xp)
    finite = xp.isfinite(values)
    count = int(finite.sum())
    low = float(xp.where(finite, values, xp.inf).min()) if count else None
    high = float(xp.where(finite, values, -xp.inf).max()) if count else None
    head = {"shape": list(buffer.shape), "dtype": buffer.dtype}
    return head | {"finite": count / max(1, values.size), "min": low, "max": high}


def _merged(reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
    if len(reports) == 1:
        return reports[0]
    verdicts = [r["verdict"] for r in reports if "verdict" in r]
    worst = {"verdict": "fail" if "fail" in verdicts else "pass"} if verdicts else {}
    return {"programs": list(reports)} | worst


def main(arguments: Sequence[str] | None = None) -> int:
    """`run BUNDLE [--inputs NPZ] [-o NPZ] [--check]` or `bench BUNDLE [--repeats N]`, each with
    `--program NAME` and `--json`. Exit status: 0, 2 for bad input, 3 for a failed check."""
    options = vars(_parser().parse_args(arguments))
    action: Callable[..., dict[str, Any]] = options.pop("action")
    as_json = options.pop("json")
    try:
        report = action(options.pop("bundle"), **options)
    except NautileError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    print(json.dumps(report) if as_json else _text(report))
    return 3 if report.get("verdict") == "fail" else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m nautile.runtime", description=__doc__)
    verbs = parser.add_subparsers(required=True, metavar="run|bench")
    run = verbs.add_parser("run", help="run a bundle once")
    run.add_argument("--inputs", type=Path, help="an .npz file; sample inputs without it")
    run.add_argument("-o", "--output", type=Path, help="save the outputs as .npz")
    run.add_argument("--check", action="store_true", help="judge sampled outputs")
    run.set_defaults(action=run_command)
    timed = verbs.add_parser("bench", help="check, then time a bundle")
    timed.add_argument("--repeats", type=int, default=100, help="timed samples")
    timed.add_argument(
        "--no-tune", dest="tune", action="store_false", help="measure no other implementations"
    )
    timed.set_defaults(action=bench_command)
    for verb in (run, timed):
        verb.add_argument("bundle", type=Path, help="a bundle folder")
        verb.add_argument("--program", help="one of the bundle's programs")
        verb.add_argument("--json", action="store_true", help="one JSON object")
    return parser


def _text(report: Mapping[str, Any], indent: str = "") -> str:
    lines = []
    for key, value in report.items():
        if isinstance(value, Mapping):
            lines += [f"{indent}{key}", _text(value, indent + "  ")]
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            lines += [_text(row, indent) for row in value]
        else:
            lines.append(f"{indent}{key:14} {value}")
    return "\n".join(lines)
