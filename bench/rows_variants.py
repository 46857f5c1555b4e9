"""Schedules of row kernels timed side by side, each checked first.

    python bench/rows_variants.py --build DIR [--only TEXT]     anywhere, no GPU
    python bench/rows_variants.py --run DIR -o FILE             on a GPU: numpy and cupy are enough

A variant is a schedule (`nautile.codegen.rows.RowOptions`) of a program of rows_variants.nau at one
size, and cache hints. The first of each case is what the emitter chooses itself. "of_copy" is
the bytes that any implementation must move over time, against a copy of 1 GiB in the same process;
"ratio_to_copy" is the time of a copy that moves as many bytes, replayed like the variants. Checks
are against float64 at sampled rows. Contestants are CUDA graphs in random order; medians of rounds.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, metavar="DIR")
    parser.add_argument("--run", type=Path, metavar="DIR")
    parser.add_argument("--only", default="", help="cases whose name has this text")
    parser.add_argument("--seconds", type=float, default=1e9, help="after which no case is begun")
    parser.add_argument("-o", "--output", type=Path, default=Path("rows_variants.json"))
    options = parser.parse_args()
    sys.path.insert(0, str(HERE))
    if options.build:
        from rows_built import build_all

        return build_all(HERE / "rows_variants.nau", options.build, options.only)
    if not options.run:
        parser.error("one of --build and --run is needed")
    from rows_raced import run_all

    found = run_all(options.run, options.only, options.seconds)
    options.output.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if all(v["correct"] for c in found["cases"] for v in c["variants"]) else 1


if __name__ == "__main__":
    sys.exit(main())
