"""What the main loops of the bundles' Hopper kernels are made of. Needs nvdisasm, no GPU.

    python bench/machine_code.py FOLDER... [--most 12]

FOLDER is a bundle or a folder of bundles. For each kernel of sm_90a: instructions, warpgroup
products, descriptors moved, waits, pointwise instructions under products (nautile.codegen.sass),
and the most frequent instructions. Both sides of a branch count: a rescaling that is mostly skipped
counts twice.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from sanitize import bundles


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", metavar="FOLDER")
    parser.add_argument("--most", type=int, default=12, help="instructions that are named")
    options = parser.parse_args()
    found = [row for f in bundles(options.folders) for row in rows(f, options.most)]
    print("\n".join(found) or "no kernel of sm_90a")
    return 0 if found else 1


def rows(folder: Path, most: int) -> Iterator[str]:
    """One line a kernel, and one for each of its main loops."""
    from nautile.codegen import sass

    manifest = json.loads((folder / "manifest.json").read_text())
    ways = [w for x in manifest["launches"] for w in x.get("implementations", [])]
    for kernel in (k for w in ways for k in w["kernels"]):
        for architecture, name in kernel["cubins"].items():
            if not architecture.endswith("a"):
                continue
            cubin = (folder / name).read_bytes()
            code = sass.read(cubin, kernel["kernel"])
            yield f"{folder.name}: {kernel['kernel']}, {code.instructions} instructions"
            for loop, counts in zip(
                code.loops, sass.operations(cubin, kernel["kernel"]), strict=True
            ):
                named = ", ".join(f"{n} {c}" for n, c in list(counts.items())[:most])
                yield (
                    f"  loop of {loop.instructions}: {loop.products} products, {loop.moves} moves,"
                    f" {loop.waits} waits, {loop.overlapped} overlapped; {named}"
                )


if __name__ == "__main__":
    sys.exit(main())
