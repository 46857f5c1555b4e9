"""Monoids in NumPy: identities, the fold of one block, and the merge with what was carried."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nautile.codegen.pointwise import ARRAY, Array
from nautile.codegen.types import carrier

__all__ = ["Carried", "identity", "merge_extreme", "reduce_block"]

_INTEGER = {"i32": (-(2**31), 2**31 - 1), "i64": (-(2**63), 2**63 - 1), "bool": (0, 1)}


@dataclass(frozen=True, slots=True)
class Carried:
    """The fold of one block: `value`, and for argmax and argmin the `place` of the extreme."""

    monoid: str
    value: Array
    place: Array | None = None

    def combine(self, before: Array) -> Array:
        """`before` combined with this block."""
        result: Array = _COMBINE[self.monoid](before, self.value)
        return result


_COMBINE: dict[str, Any] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "any": np.logical_or,
    "all": np.logical_and,
}


def identity(monoid: str, kind: str) -> Any:
    """The value that a fold of `kind` (a carrier) starts from."""
    if monoid in ("max", "argmax"):
        return _INTEGER[kind][0] if kind in _INTEGER else -np.inf
    if monoid in ("min", "argmin"):
        return _INTEGER[kind][1] if kind in _INTEGER else np.inf
    return {"sum": 0, "prod": 1, "any": False, "all": True}[monoid]


def reduce_block(monoid: str, source: Array, valid: Array, origin: int, dtype: str) -> Carried:
    """Fold the last axis of `source` over its valid positions; places count from `origin`."""
    if monoid in ("argmax", "argmin"):
        return _extreme(monoid, source, valid, origin)
    kind = carrier(dtype)
    start = ARRAY[kind](identity(monoid, kind))
    masked = np.where(valid, source.astype(ARRAY[kind]), start)
    value = _COMBINE[monoid].reduce(masked, axis=-1) if masked.shape[-1] else start
    if monoid == "sum" and kind == "f32":
        value = masked.sum(axis=-1, dtype=np.float32)
    return Carried(monoid, np.asarray(value, ARRAY[kind]))


def _extreme(monoid: str, source: Array, valid: Array, origin: int) -> Carried:
    worst = source.dtype.type(identity(monoid, _kind(source)))
    filled = np.where(valid, source, worst)
    place = np.argmax(filled, axis=-1) if monoid == "argmax" else np.argmin(filled, axis=-1)
    value = np.take_along_axis(filled, place[..., None], axis=-1)[..., 0]
    return Carried(monoid, value, place + origin)


def _kind(source: Array) -> str:
    if source.dtype.kind == "b":
        return "bool"
    return "i64" if source.dtype.kind == "i" else "f32"


def merge_extreme(
    monoid: str, before: Array | None, place: Array, block: Carried
) -> tuple[Array, Array]:
    """The better of what was carried and the block: (value, place); the earlier wins ties."""
    assert block.place is not None
    if before is None:
        return block.value, block.place
    better = block.value > before if monoid == "argmax" else block.value < before
    fresh = (better | (block.value != block.value)) & (before == before)
    return np.where(fresh, block.value, before), np.where(fresh, block.place, place)
