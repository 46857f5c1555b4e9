"""Certificates: what was checked, how closely it agreed, and the verdict."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Certificate", "Check"]


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison. `max_relative_error` is relative to the element or its row, whichever is
    larger; `rmse_ratio` is the error over that of the source's own naive evaluation (0 where the
    check compares no rounding); `detail` says what failed, or what was looked at."""

    name: str
    passed: bool
    max_relative_error: float = 0.0
    rmse_ratio: float = 0.0
    samples: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Certificate:
    """Checks of one chosen program against its source; "pass" only if every check passed.
    `accepted` names the rules that were used at the user's word, each with the checker's verdict
    on it."""

    program: str
    checks: tuple[Check, ...]
    seed: int = 0
    accepted: tuple[tuple[str, str], ...] = ()

    @property
    def verdict(self) -> str:
        return "pass" if self.checks and all(c.passed for c in self.checks) else "fail"

    @property
    def max_relative_error(self) -> float:
        return max((c.max_relative_error for c in self.checks), default=0.0)

    @property
    def samples(self) -> int:
        return sum(c.samples for c in self.checks)

    @property
    def failures(self) -> tuple[Check, ...]:
        return tuple(c for c in self.checks if not c.passed)

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of a certificate."""
        return {
            "verdict": self.verdict,
            "checks": [asdict(c) for c in self.checks],
            "max_relative_error": self.max_relative_error,
            "samples": self.samples,
            "seed": self.seed,
            "accepted_rules": [{"rule": r, "verdict": v} for r, v in self.accepted],
        }
