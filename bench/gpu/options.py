"""What a run does: which peers, how many rounds, for how long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["LEVELS", "Options"]

LEVELS = {
    "none": (),
    "fast": ("library", "triton", "wheel"),
    "compiled": ("library", "triton", "wheel", "compiled"),
    "all": ("library", "triton", "wheel", "compiled", "autotuned"),
}


class _Peer(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def seconds(self) -> float: ...
    def missing(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Options:
    """`peers` are kinds of contestants or names of single ones. `warmed`: they were compiled
    beforehand, and making them takes a third of the time."""

    peers: Sequence[str] = LEVELS["fast"]
    rounds: int = 7
    warmed: bool = False

    def excludes(self, peer: _Peer, left: float) -> str | None:
        """Why a peer does not take part, or None; `left` are the seconds that the run still has."""
        if peer.kind not in self.peers and peer.name not in self.peers:
            return "not asked for"
        if peer.missing():
            return "not installed"
        seconds = peer.seconds / 3.0 if self.warmed else peer.seconds
        if seconds > max(2.0, 0.5 * left):
            return f"{left:.0f} s are left, making it takes about {seconds:.0f} s"
        return None
