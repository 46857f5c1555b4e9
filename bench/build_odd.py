"""Build small bundles of every kind of kernel at odd sizes, for bench/sanitize.py. Needs no GPU.

    python bench/build_odd.py [--target h200] [--only TEXT] [--chosen]

Each becomes bench/bundles/odd/NAME with sampled values of its float64 reference. Sizes are no
multiple of any tile where the mathematics allows: ragged rows and columns, one row, one block, more
blocks than slots. Sizes that the copy engine takes (rows of a multiple of 16 bytes) stand beside
sizes that it does not. Kernels for the target's own architecture are built even where the cost
model prefers the portable ones, as it does for most small problems; with --chosen, they are not.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from gpu.case import Case, text_of  # noqa: E402

if TYPE_CHECKING:
    from nautile.terms import Program
    from nautile.worker import Worker

FOLDER = HERE / "bundles" / "odd"


@dataclass(frozen=True, slots=True)
class Odd:
    """A program of a file (a shipped example, spine.nau, or gpu/programs) at some sizes."""

    file: str
    program: str
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return "-".join([self.file, self.program, *(f"{k}{v}" for k, v in self.sizes.items())])

    def text(self) -> str:
        """The program's text: the lines of it alone where the file's programs share no sizes."""
        from nautile.examples import paths

        shipped = {p.stem: p for p in paths()}
        near = HERE / f"{self.file}.nau"
        if self.file not in shipped and not near.exists():
            return text_of(Case("odd", self.file, self.program))
        return shipped.get(self.file, near).read_text()

    def parsed(self) -> Program:
        """The checked program at the case's sizes."""
        from nautile import lang

        found = lang.parse(self.text(), f"{self.file}.nau", dict(self.sizes))
        return {p.name: p for p in found}[self.program]


_HEADS = {"B": 1, "H": 6, "Hk": 2}
CASES = (
    Odd("spine", "attention_full", {"B": 1, "H": 3, "T": 131, "S": 197, "D": 64}),
    Odd("spine", "attention_full", {"B": 2, "H": 2, "T": 1, "S": 129, "D": 128}),
    Odd("spine", "attention_full", {"B": 1, "H": 2, "T": 640, "S": 900, "D": 128}),
    Odd("spine", "attention_full", {"B": 1, "H": 2, "T": 67, "S": 65, "D": 96}),
    Odd("spine", "attention_causal", {"B": 1, "H": 3, "T": 389, "S": 389, "D": 128}),
    Odd("spine", "attention_causal", {"B": 1, "H": 2, "T": 200, "S": 777, "D": 64}),
    Odd("spine", "attention_softcap", {"B": 1, "H": 2, "T": 259, "S": 391, "D": 128}),
    Odd("attention", "attention", {**_HEADS, "T": 300, "S": 300, "D": 128, "E": 128}),
    Odd("attention_variants", "alibi", {**_HEADS, "T": 257, "S": 257, "D": 64}),
    Odd("attention_variants", "sliding_window", {**_HEADS, "T": 700, "S": 700, "D": 128}),
    Odd("attention_variants", "prefix", {**_HEADS, "T": 333, "S": 333, "D": 128}),
    Odd("attention_variants", "all_together", {**_HEADS, "T": 300, "S": 300, "D": 128}),
    Odd("decode", "decode", {"B": 3, "H": 16, "Hk": 2, "S": 1003, "D": 128, "E": 128}),
    Odd("gemm", "gemm", {"M": 133, "N": 264, "K": 200}),
    Odd("gemm", "gemm", {"M": 1000, "N": 1000, "K": 1000}),
    Odd("gemm", "gemm", {"M": 129, "N": 131, "K": 77}),
    Odd("gemm", "gemm", {"M": 16, "N": 520, "K": 264}),
    Odd("matmul_bias_gelu", "matmul_bias_gelu", {"N": 261, "C": 328, "F": 392}),
    Odd("swiglu", "swiglu", {"N": 197, "C": 264, "F": 200}),
    Odd("batched_matmul_scale", "batched_matmul_scale", {"B": 3, "M": 65, "K": 72, "N": 88}),
    Odd("fp8", "gemm8", {"M": 259, "N": 272, "K": 336}),
    Odd("fp8", "attention8", {"B": 1, "H": 2, "T": 150, "S": 290, "D": 128}),
    Odd("linear_attention", "linear_attention", {"B": 1, "H": 2, "T": 133, "S": 133}),
    Odd("matmul_chain", "matmul_chain_matrices", {"M": 70, "K": 33, "L": 45, "N": 51}),
    Odd("spine", "softmax_rows", {"M": 37, "N": 1001}),
    Odd("spine", "softmax_rows", {"M": 5, "N": 65544}),
    Odd("spine", "softmax_rows_f32", {"M": 3, "N": 333}),
    Odd("spine", "layernorm_rows", {"M": 41, "N": 1026}),
    Odd("spine", "rmsnorm_residual_rows", {"M": 33, "N": 4104}),
    Odd("cross_entropy", "cross_entropy", {"N": 19, "V": 5003}),
    Odd("elementwise", "elementwise", {"N": 77, "M": 131}),
    Odd("products", "norm_gemm", {"M": 135, "N": 264, "K": 264}),
    Odd("products", "lora", {"M": 133, "N": 200, "K": 264}),
    Odd("products", "gemm_residual", {"M": 259, "N": 136, "K": 648}),
    Odd("rows", "residual_rows", {"M": 7, "N": 20488}),
    Odd("rows", "loss_rows", {"M": 3, "N": 70008}),
    Odd("rows", "chain", {"M": 11, "N": 1003}),
    Odd("corpus", "bert_padded_attention", {"B": 3, "H": 2, "T": 77, "S": 129, "D": 64}),
    Odd("corpus", "llama3_gqa_decode", {"B": 3, "H": 8, "Hk": 2, "S": 1003, "D": 128}),
    Odd("corpus", "mixtral_router", {"N": 37, "C": 264}),
    Odd("corpus", "rmsnorm_dynamic_int8", {"N": 13, "C": 1003}),
    Odd("corpus", "gemma2_capped_cross_entropy", {"N": 70, "C": 136, "V": 2003}),
    Odd("corpus", "vit_attention", {"B": 3, "T": 67, "H": 2}),
)


def main() -> int:
    from nautile.worker import Worker

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="h200")
    parser.add_argument("--only", default="", help="build the cases whose name has this text")
    parser.add_argument("--chosen", action="store_true", help="only what the cost model prefers")
    options = parser.parse_args()
    if not options.chosen:
        prefer_own()
    failures = {}
    worker = Worker()
    for case in (c for c in CASES if options.only in c.name):
        start = time.perf_counter()
        shutil.rmtree(FOLDER / case.name, ignore_errors=True)
        try:
            ways = build(case, options.target, worker)
            print(f"{case.name}: {ways}, {time.perf_counter() - start:.1f} s", flush=True)
        except Exception as error:  # one case that fails must not hide the others
            failures[case.name] = f"{type(error).__name__}: {error}"[:400]
            print(f"{case.name}: {failures[case.name]}", file=sys.stderr, flush=True)
    worker.close()
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "failures.json").write_text(json.dumps(failures, indent=1) + "\n")
    return 1 if failures else 0


def prefer_own() -> None:
    """From now on in this process, kernels of a target's own architecture are always worth it."""
    from nautile import building

    building._pays = lambda candidate, kernel: True


def build(case: Odd, target: str, worker: Worker) -> str:
    """Optimize, compile and write one case; the schedules of its launches' implementations."""
    from nautile.bundle import write_bundle
    from nautile.stages import Options, optimize

    result = optimize(case.parsed(), Options(target=target, compile=True), worker=worker)
    write_bundle(FOLDER / case.name, result)
    manifest = json.loads((FOLDER / case.name / "manifest.json").read_text())
    ways = [w["schedule"] for x in manifest["launches"] for w in x["implementations"]]
    return " | ".join(ways)


if __name__ == "__main__":
    sys.exit(main())
