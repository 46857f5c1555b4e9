"""Proofs of laws, for all extents and ranks: none are looked for yet."""

from __future__ import annotations

from .law import Rule

__all__ = ["proof_of"]


def proof_of(rule: Rule, kind: str) -> str | None:
    """How the law's equation over the "reals" (or of its "bits") is proved; None where it is not."""
    return None
