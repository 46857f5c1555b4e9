"""Do the kernels of bundles stay inside their memory, and give the same bytes every time?

    PYTHONPATH=src python bench/sanitize.py [FOLDER...] [--tools TOOL,...] [--sanitizer PATH]
                                            [--seconds 500] [-o FILE]

TOOL is memcheck, racecheck, synccheck or initcheck.

FOLDER is a bundle or a folder of bundles (bench/bundles/odd by default: bench/build_odd.py). Needs
numpy and cupy, and for --tools NVIDIA's compute-sanitizer (of the CUDA toolkit, or of the wheel
nvidia-cuda-sanitizer-api: --sanitizer .../nvidia/cu13/compute-sanitizer/compute-sanitizer).

Every implementation of every program runs in a child process of its own. All memory that it touches
lies between canary bands of 64 KiB, that begin right after the last byte. Three runs, with other
bytes in the bands, in the outputs and in the intermediates each time, must agree in every byte: an
element that nobody writes, a read from outside, and a race differ. After each run the bands, the
inputs and the counters must be as they were. Outputs are judged against the bundle's reference.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
BUNDLES = HERE / "bundles" / "odd"
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
LONGEST = 90.0  # seconds of one child
ERRORS = 86  # the exit status by which compute-sanitizer tells of errors
Row = dict[str, Any]


def main() -> int:
    options = _options()
    if options.child:
        print(json.dumps(child(Path(options.folders[0]), options.way, plain=options.plain)))
        return 0
    start, rows = time.perf_counter(), []
    tool = find(options.sanitizer)
    tools = [t for t in options.tools.split(",") if t]
    if tools and tool is None:
        print("compute-sanitizer is not installed: bands only", file=sys.stderr)
    for folder in bundles(options.folders or [str(BUNDLES)]):
        for way in range(ways(folder)):
            left = options.seconds - (time.perf_counter() - start)
            row = _row(folder, way, tools if tool else [], tool, left)
            rows.append(row)
            print(row["verdict"], folder.name, f"way {way}", row.get("said", ""), flush=True)
            if options.output:
                options.output.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if rows and all(r["verdict"] == "clean" for r in rows) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", metavar="FOLDER")
    parser.add_argument("--tools", default="", help=f"of {', '.join(TOOLS)}")
    parser.add_argument("--sanitizer", help="the program compute-sanitizer")
    parser.add_argument("--seconds", type=float, default=500.0, help="limit of the whole run")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--plain", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--way", type=int, default=0, help=argparse.SUPPRESS)
    return parser.parse_args()


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


def find(given: str | None) -> str | None:
    """compute-sanitizer: as given, on the path, or of an installed wheel."""
    if given:
        return given
    wheels = (Path(p) / "nvidia" for p in sys.path if p)
    found = (p for w in wheels for p in w.glob("*/compute-sanitizer/compute-sanitizer"))
    return shutil.which("compute-sanitizer") or next(map(str, found), None)


def _row(folder: Path, way: int, tools: list[str], tool: str | None, left: float) -> Row:
    row: Row = {"bundle": folder.name, "way": way}
    if left < 5:
        return {**row, "verdict": "not run"}
    command = [sys.executable, str(HERE / "sanitize.py"), str(folder), "--child", "--way", str(way)]
    row |= _child(command, min(left, LONGEST))
    found = {}
    for name in tools if row["verdict"] == "clean" else ():
        found[name] = _tool(str(tool), name, [*command, "--plain"])
    bad = [f"{n}: {f}" for n, f in found.items() if f != "clean"]
    said = "; ".join([row.get("said", ""), *bad] if row.get("said") else bad)
    verdict = "dirty" if bad else row["verdict"]
    return {**row, "tools": found, "verdict": verdict, **({"said": said} if said else {})}


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


def _tool(program: str, name: str, command: list[str]) -> str:
    """What one tool of compute-sanitizer says of a run: "clean", or its last words."""
    flags = ["--tool", name, "--error-exitcode", str(ERRORS), "--report-api-errors", "no"]
    flags += ["--padding", "64"] if name == "memcheck" else []
    try:
        done = subprocess.run(
            [program, *flags, *command],
            capture_output=True, text=True, timeout=4 * LONGEST, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"not run: {type(error).__name__}"
    if done.returncode == 0:
        return "clean"
    told = [line for line in done.stdout.splitlines() if line.startswith("=========")]
    return " | ".join(told[1:4] + told[-1:])[:600] or done.stderr.strip()[-300:]


# -- the child -------------------------------------------------------------------------------------


def child(folder: Path, way: int, *, plain: bool = False) -> Row:
    """Every program of a bundle by one of its implementations. `plain`: without bands and
    repetitions, for a tool that watches memory itself."""
    from nautile.errors import NautileError
    from nautile.runtime import Bundle

    said: list[str] = []
    checks = 0
    for program in Bundle.load(folder):
        try:
            for text in (plainly if plain else watched)(program, choices(program, way)):
                checks += 1
                said += [f"{program.name}: {text}"] if text else []
        except NautileError as error:
            if error.code == "device":
                return {"verdict": "clean", "said": f"not for this device: {error}", "checks": 0}
            said.append(f"{program.name}: {error}")
    verdict = "dirty" if said or not checks else "clean"
    return {"verdict": verdict, "checks": checks, **({"said": "; ".join(said)} if said else {})}


def choices(program: Any, way: int) -> dict[int, int]:
    """Implementation `way` of every launch, or its last."""
    counts = [len(x.implementations) for x in program.launches]
    return {number: min(way, count - 1) for number, count in enumerate(counts)}


def plainly(program: Any, chosen: Mapping[int, int]) -> Iterator[str]:
    """One launch on memory of its own for each array, exactly as long as it is."""
    import cupy

    from nautile.runtime.draw import inputs

    cupy.cuda.set_allocator(None)
    program.bind(inputs(program, 1), choices=chosen).launch()
    cupy.cuda.Device().synchronize()
    yield ""


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
