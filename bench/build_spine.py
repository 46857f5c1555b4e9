"""Build the bundles that bench/spine.py measures. Needs no GPU.

    python bench/build_spine.py [--target h200] [--only TEXT]

Each case becomes bench/bundles/NAME; a case that does not build is listed in
bench/bundles/failures.json with its error, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from cases import BUNDLES, Case, cases

HERE = Path(__file__).resolve().parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="h200")
    parser.add_argument("--only", default="", help="build the cases whose name has this text")
    options = parser.parse_args()
    failures = {}
    for case in [
        c for c in (*cases(("rows", "gemm", "attention")), *examples()) if options.only in c.name
    ]:
        start = time.perf_counter()
        try:
            kernels = build(case, options.target)
            print(
                f"{case.name}: {kernels} kernels, {time.perf_counter() - start:.1f} s", flush=True
            )
        except Exception as error:  # one case that fails must not hide the others
            failures[case.name] = f"{type(error).__name__}: {error}"
            print(f"{case.name}: {failures[case.name]}", file=sys.stderr, flush=True)
    BUNDLES.mkdir(exist_ok=True)
    (BUNDLES / "failures.json").write_text(json.dumps(failures, indent=1) + "\n")
    return 1 if failures else 0


def examples() -> Iterator[Case]:
    """Every program of every shipped example."""
    from nautile import lang
    from nautile.examples import paths

    for path in paths():
        for program in lang.parse_file(path):
            yield Case("examples", program.name, file=path.stem)


def build(case: Case, target: str) -> int:
    """Optimize, compile and write one case; the number of its kernels."""
    from nautile import lang
    from nautile.bundle import write_bundle
    from nautile.examples import paths
    from nautile.stages import Options, optimize

    files = {p.stem: p for p in paths()}
    path = files[case.file] if case.file else HERE / "spine.nau"
    found = {p.name: p for p in lang.parse_file(path, dims=_sizes(path, case))}
    result = optimize(found[case.program], Options(target=target, compile=True))
    write_bundle(case.folder, result)
    return len(result.built)


def _sizes(path: Path, case: Case) -> dict[str, int]:
    return dict(case.sizes)


if __name__ == "__main__":
    sys.exit(main())
