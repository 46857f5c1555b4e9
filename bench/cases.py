"""What bench/spine.py measures: one case is a program at some sizes, and the peers beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["BUNDLES", "GROUPS", "Case", "cases", "example_cases"]

HERE = Path(__file__).resolve().parent
BUNDLES = HERE / "bundles"
_OTHERS = ("spine-", "split-")  # bundles of programs that are not examples
GROUPS = ("rows", "gemm", "attention", "examples")
PEERED = ("cross_entropy", "mean_cross_entropy", "transformer_block")  # examples with peers


@dataclass(frozen=True, slots=True)
class Case:
    """`peer` names the contestants in peers.py; None for a case that is only checked and timed.
    `file` is None for the programs of bench/spine.nau, else the name of a shipped example."""

    group: str
    program: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    peer: str | None = None
    file: str | None = None
    compiled: bool = True

    @property
    def name(self) -> str:
        sizes = "".join(f"-{k}{v}" for k, v in self.sizes.items())
        return f"{self.file or 'spine'}-{self.program}{sizes}"

    @property
    def folder(self) -> Path:
        return BUNDLES / self.name


def cases(groups: tuple[str, ...] = GROUPS) -> list[Case]:
    """The cases of some groups, in the order in which they run."""
    made = {"rows": _rows, "gemm": _gemms, "attention": _attention, "examples": example_cases}
    return [case for group in groups for case in made[group]()]


def _rows() -> list[Case]:
    programs = ("softmax_rows", "softmax_rows_f32", "layernorm_rows", "rmsnorm_residual_rows")
    return [
        Case("rows", program, {"M": 4096, "N": n}, peer=program, compiled=program != programs[1])
        for program in programs
        for n in (1024, 4096, 16384)
    ]


def _gemms() -> list[Case]:
    return [Case("gemm", "gemm_square", {"M": 4096, "K": 4096, "N": 4096}, peer="gemm_square")]


def _attention() -> list[Case]:
    sizes = {"B": 4, "H": 16, "T": 4096, "S": 4096, "D": 128}
    programs = ("attention_full", "attention_causal", "attention_softcap")
    return [Case("attention", p, sizes, peer=p) for p in programs]


def example_cases() -> list[Case]:
    """Every shipped example that was built, at its own default sizes."""
    folders = sorted(p.parent for p in BUNDLES.glob("*/manifest.json"))
    split = [f.name.split("-", 1) for f in folders if not f.name.startswith(_OTHERS)]
    return [
        Case("examples", program, peer=program if program in PEERED else None, file=file)
        for file, program in split
    ]
