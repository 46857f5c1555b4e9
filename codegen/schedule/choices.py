"""What a target decides of a schedule."""

from __future__ import annotations

from dataclasses import dataclass

from nautile.codegen.memory import Geometry

__all__ = ["Choices"]


@dataclass(frozen=True, slots=True)
class Choices:
    """What the target decides: the block, the most stages of a ring, the bytes of shared memory. A
    ring has more than two stages only inside `comfortable` bytes (the limit where None)."""

    geometry: Geometry
    stages: int
    shared_limit: int
    prefetch: str = "step"
    comfortable: int | None = None
