"""What bench/decode.py measures: reductions that are split over blocks, at every count of chunks.

A case is a program at some sizes. Its bundle holds the program as the cost model chose it
(`chosen`), forced to each count of chunks (`split_N`), and as chosen but with other tiles of the
long axis (`tile_N`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ABOUT", "BUNDLES", "CHOSEN", "Case", "cases", "tiled", "variant"]

HERE = Path(__file__).resolve().parent
BUNDLES = HERE / "bundles"
ABOUT = BUNDLES / "decode.json"
CHOSEN = "chosen"
TILES = (16, 32, 64, 128)
COUNTS = tuple(2**k for k in range(9))


@dataclass(frozen=True, slots=True)
class Case:
    """`counts` are the counts of chunks that the program is forced to; none for a case that must
    not be split. `axis` is the family of the long axis, `tiles` other tiles of it to try."""

    group: str
    program: str
    sizes: Mapping[str, int]
    axis: str
    counts: tuple[int, ...] = COUNTS
    tiles: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        sizes = "".join(f"-{k}{v}" for k, v in self.sizes.items())
        return f"split-{self.program}{sizes}"

    @property
    def folder(self) -> Path:
        return BUNDLES / self.name


def variant(count: int) -> str:
    """The bundle's program that is forced to a count of chunks."""
    return f"split_{count}"


def tiled(tile: int) -> str:
    """The bundle's program that is as chosen but for the long axis' tile."""
    return f"tile_{tile}"


def cases() -> list[Case]:
    """All cases, the small ones first."""
    return [*_decode(32768), *_decode(131072), *_prefill(), *_products(), *_rows()]


def _decode(keys: int) -> Iterator[Case]:
    for batch in (1, 4, 16):
        for heads in (8, 32):
            sizes = {"B": batch, "H": 32, "Hk": heads, "T": 1, "S": keys, "D": 128}
            yield Case("decode", "decode", sizes, "s", tiles=TILES if keys == 32768 else ())


def _prefill() -> Iterator[Case]:
    sizes = {"B": 1, "H": 32, "Hk": 8, "T": 4096, "S": 4096, "D": 128}
    yield Case("prefill", "prefill", sizes, "s", ())


def _products() -> Iterator[Case]:
    for side in (128, 256):
        yield Case("product", "deep_product", {"M": side, "N": side, "K": 65536}, "k")


def _rows() -> Iterator[Case]:
    for program in ("long_softmax", "long_logsumexp", "long_sum"):
        for rows in (1, 16):
            yield Case("rows", program, {"M": rows, "N": 1 << 20}, "n")
