"""Do the kernels of bundles stay inside their memory, and give the same bytes every time?

    PYTHONPATH=src python bench/sanitize.py [FOLDER...] [--tools TOOL,...] [--sanitizer PATH]
                                            [--jobs 1] [--seconds 500] [-o FILE]

TOOL is memcheck, racecheck, synccheck or initcheck. With --tools the tools alone look; several
bundles share a process, and --jobs of them run at once (bench/compute_sanitizer.py).

FOLDER is a bundle or a folder of bundles (bench/bundles/odd by default: bench/build_odd.py). Needs
numpy and cupy, and for --tools NVIDIA's compute-sanitizer (of the CUDA toolkit, or of the wheel
nvidia-cuda-sanitizer-api: --sanitizer .../nvidia/cu13/compute-sanitizer/compute-sanitizer).

Without --tools, every implementation of every program runs in a child process of its own. All
memory that it touches lies between canary bands of 64 KiB, that begin right after the last byte.
Three runs, with other bytes in the bands, in the outputs and in the intermediates each time, must
agree in every byte: an element that nobody writes, a read from outside, and a race differ. After
each run the bands, the inputs and the counters must be as they were. Outputs are judged against the
bundle's reference.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from compute_sanitizer import TOOLS, find, looked_at  # noqa: E402
from machine import smi  # noqa: E402

BUNDLES = HERE / "bundles" / "odd"
LONGEST = 90.0  # seconds of one child
Row = dict[str, Any]


def main() -> int:
    options = _options()
    if options.child:
        folders = [Path(f) for f in options.folders]
        print(json.dumps(launched(folders) if options.plain else child(folders[0], options.way)))
        return 0
    folders = bundles(options.folders or [str(BUNDLES)])
    rows = []
    for row in _tools(options, folders) if options.tools else _bands(options, folders):
        rows.append(row)
        print(*(str(v) for v in row.values()), flush=True)
        if options.output:
            options.output.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if rows and all(r["verdict"] == "clean" for r in rows) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", metavar="FOLDER")
    parser.add_argument("--tools", default="", help=f"of {', '.join(TOOLS)}")
    parser.add_argument("--sanitizer", help="the program compute-sanitizer")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--seconds", type=float, default=500.0, help="limit of the whole run")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--plain", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--way", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = set(filter(None, options.tools.split(","))) - set(TOOLS)
    if unknown:
        parser.error(f"unknown tool {', '.join(unknown)}; known: {', '.join(TOOLS)}")
    return options


# -- the parent ------------------------------------------------------------------------------------


def bundles(folders: list[str]) -> list[Path]:
    """The bundles named, and those in the folders named."""
    found: list[Path] = []
    for folder in map(Path, folders):
        found += [folder] if (folder / "manifest.json").exists() else []
        found += sorted(p.parent for p in folder.glob("*/manifest.json"))
    return found


def ways(folder: Path) -> int:
    """The most implementations that a launch of the bundle has."""
    manifest = json.loads((folder / "manifest.json").read_text())
    return max((len(x.get("implementations", [0])) for x in manifest["launches"]), default=1)


def _bands(options: argparse.Namespace, folders: Sequence[Path]) -> Iterator[Row]:
    """What the canary bands say of every implementation of every bundle."""
    until = time.perf_counter() + options.seconds
    wanted = [(f, way) for f in folders for way in range(ways(f))]
    with ThreadPoolExecutor(options.jobs) as pool:
        yield from pool.map(lambda one: _row(until, *one), wanted)


def _row(until: float, folder: Path, way: int) -> Row:
    row: Row = {"bundle": folder.name, "way": way}
    left = until - time.perf_counter()
    if left < 5:
        return {**row, "verdict": "not run"}
    command = [*_me(folder), "--way", str(way)]
    return row | _child(command, min(left, LONGEST))


def _tools(options: argparse.Namespace, folders: Sequence[Path]) -> Iterator[Row]:
    """What the tools of compute-sanitizer say of every bundle, all its implementations."""
    program = find(options.sanitizer)
    if program is None:
        print("compute-sanitizer is not installed", file=sys.stderr)
        return
    until = time.perf_counter() + options.seconds
    tools = [t for t in options.tools.split(",") if t]
    plain = partial(_me, "--plain")
    for tool, folder, said in looked_at(program, tools, folders, plain, options.jobs, until):
        verdict = said if said in ("clean", "not run") else "dirty"
        row = {"tool": tool, "bundle": folder.name, "verdict": verdict, "said": said}
        yield row | {"gpu": smi("name")["name"], "date": date.today().isoformat()}


def _me(*arguments: Path | str) -> list[str]:
    """This script as a child."""
    return [sys.executable, str(HERE / "sanitize.py"), "--child", *map(str, arguments)]


def _child(command: list[str], seconds: float) -> Row:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return {"verdict": "timeout"}
    try:
        row: Row = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        return {"verdict": "error", "said": done.stderr.strip()[-300:]}
    return row


# -- the child -------------------------------------------------------------------------------------


def child(folder: Path, way: int) -> Row:
    """Every program of a bundle by one of its implementations, between bands."""
    from nautile.errors import NautileError
    from nautile.runtime import Bundle

    said: list[str] = []
    checks = 0
    for program in Bundle.load(folder):
        try:
            for text in watched(program, choices(program, way)):
                checks += 1
                said += [f"{program.name}: {text}"] if text else []
        except NautileError as error:
            if error.code == "device":
                return {"verdict": "clean", "said": f"not for this device: {error}", "checks": 0}
            said.append(f"{program.name}: {error}")
    verdict = "dirty" if said or not checks else "clean"
    return {"verdict": verdict, "checks": checks, **({"said": "; ".join(said)} if said else {})}


def launched(folders: Sequence[Path]) -> Row:
    """Every implementation of every program of bundles once, for a tool that watches: each array
    has an allocation of its own, exactly as long as it is."""
    import cupy

    from nautile.errors import NautileError
    from nautile.runtime import Bundle
    from nautile.runtime.draw import inputs

    cupy.cuda.set_allocator(None)
    launches = 0
    for folder in folders:
        for program in Bundle.load(folder):
            given = inputs(program, 1)
            for way in range(ways(folder)):
                try:
                    program.bind(given, choices=choices(program, way)).launch()
                except NautileError as error:
                    if error.code != "device":
                        raise
                cupy.cuda.Device().synchronize()
                launches += 1
    return {"verdict": "clean" if launches else "error", "checks": launches}


def choices(program: Any, way: int) -> dict[int, int]:
    """Implementation `way` of every launch, or its last."""
    counts = [len(x.implementations) for x in program.launches]
    return {number: min(way, count - 1) for number, count in enumerate(counts)}


def watched(program: Any, chosen: Mapping[int, int]) -> Iterator[str]:
    """What is wrong, or "", for each thing that is looked at."""
    from bands import Bands, repeated

    from nautile.runtime.checking import verdicts

    def run(given: Mapping[str, Any]) -> Any:
        with Bands() as bands:
            bound = bands.copies(given)
            call = program.bind(bound, choices=chosen)
        said.extend(repeated(program, call, bands, bound, given))
        return call

    said: list[str] = []
    for name, verdict in verdicts(program, run):
        yield from said
        said.clear()
        yield "" if verdict.passed else f"{name}: {verdict.detail}"


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", str(HERE.parent / "src"))
    sys.exit(main())
