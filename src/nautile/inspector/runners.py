"""The next-best programs, and in what they differ from the chosen one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nautile.extract.candidates import NOISE
from nautile.report import kernel_dict

from .listing import program_text
from .subject import Subject

__all__ = ["runners_up", "spent"]


def runners_up(subject: Subject) -> list[dict[str, Any]]:
    """One object a program, best first: its text, its kernels, the candidates that are its own and
    those that it lacks, and the seconds that each resource is asked for beyond the chosen one's.
    One that is faster than the chosen program is so within the model's noise: `slower_by` is
    negative then."""
    plan, taken = subject.plan, set(subject.choice.taken.columns)
    found = []
    for n, (seconds, finished) in enumerate(plan.runners_up):
        kernels = subject.renamed(finished)
        columns = subject.choice.others[n].columns if n < len(subject.choice.others) else ()
        more = _difference(spent(kernels), spent(plan.kernels))
        found.append(
            {
                "id": f"r{n + 1}",
                "seconds": seconds,
                "slower_by": seconds / plan.seconds - 1,
                "within_noise": abs(seconds / plan.seconds - 1) <= NOISE,
                "text": program_text(subject.result.work, kernels),
                "kernels": [kernel_dict(k) for k in kernels],
                "columns": [f"c{k}" for k in columns],
                "only_here": [f"c{k}" for k in columns if k not in taken],
                "only_chosen": [f"c{k}" for k in sorted(taken - set(columns))],
                "more": more,
                "dearer_in": max(more, key=lambda r: more[r]) if max(more.values()) > 0 else None,
            }
        )
    return found


def spent(kernels: Any) -> dict[str, float]:
    """Seconds that each resource is asked for, over all kernels."""
    total: dict[str, float] = {}
    for kernel in kernels:
        for name, seconds in kernel.prediction.shares.items():
            total[name] = total.get(name, 0.0) + seconds
    return total


def _difference(a: Mapping[str, float], b: Mapping[str, float]) -> dict[str, float]:
    return {name: a.get(name, 0.0) - b.get(name, 0.0) for name in {**a, **b}}
