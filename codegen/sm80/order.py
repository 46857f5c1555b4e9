"""The order in which tiles of the grid and blocks of a loop are walked, for both families of
tensor-core kernels: bands that share operands in the second-level cache, and a loop's limits."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from nautile.codegen.sm80.context import Context
from nautile.codegen.tile import Bounds
from nautile.terms import Axis

__all__ = ["L2_BYTES", "band", "block_count", "limits"]

L2_BYTES = 8 << 20  # of the second-level cache, for what a band streams together


def band(
    ctx: Context, of: str, group: int, wide: int, deep: int, names: tuple[str, str], inside: str
) -> None:
    """Index `of` as (x, y), in variables of these `names`: x varies fastest inside bands of
    `group` of its `wide` values; `inside` names the index in the band."""
    group = min(group, wide)
    x, y = names
    ctx.emit(f"const int band = {of} / {group * deep}, {inside} = {of} % {group * deep};")
    if wide % group:
        left = f"{wide} - band * {group}"
        ctx.emit(f"const int high = {left} < {group} ? {left} : {group};")
    else:
        ctx.emit(f"const int high = {group};")
    ctx.emit(f"const int {x} = band * {group} + {inside} % high, {y} = {inside} / high;")


def block_count(axes: Sequence[Axis], tiles: Sequence[int]) -> int:
    """Blocks of a nest of axes, of tiles of these sizes."""
    return prod(-(-a.extent // t) for a, t in zip(axes, tiles, strict=True))


def limits(ctx: Context, bounds: Bounds, first: str, stop: str, blocks: int) -> None:
    """First and last block, inside the extent, at least one of them."""
    if bounds.first is None:
        ctx.emit(f"const int {first} = 0;")
    else:
        ctx.emit(f"int {first} = {ctx.integer(bounds.first)};")
        ctx.emit(f"{first} = {first} < 0 ? 0 : {first} > {blocks - 1} ? {blocks - 1} : {first};")
    if bounds.stop is None:
        ctx.emit(f"const int {stop} = {blocks};")
    else:
        ctx.emit(f"int {stop} = {ctx.integer(bounds.stop)};")
        least = f"{stop} > {first} ? {stop} : {first} + 1"
        ctx.emit(f"{stop} = {stop} > {blocks} ? {blocks} : {least};")
