"""Figures of an explanation in words."""

from __future__ import annotations

from collections.abc import Mapping

from .margins import WIDEST, Beaten, Margin

__all__ = ["RESOURCES", "beaten_words", "margin_words"]

RESOURCES: Mapping[str, str] = {
    "dram": "memory traffic",
    "l2": "second-level cache traffic",
    "tensor": "tensor-core work",
    "fp32": "arithmetic",
    "special": "special-function work",
    "launch": "a launch",
}


def margin_words(margin: Margin) -> str:
    """The margin as a sentence: "would flip if memory traffic were 2.6x dearer"."""
    what = f"kernel {margin.kernel}" if margin.kernel else RESOURCES[margin.resource]
    if margin.factor is not None:
        return f"would flip if {what} were {_factor(margin.factor)}"
    if margin.kernel:
        return f"would not flip if {what} were up to {WIDEST:.0f}x dearer"
    return f"would not flip for {what}, from {WIDEST:.0f}x cheaper to {WIDEST:.0f}x dearer"


def beaten_words(beaten: Beaten) -> str:
    """The same of one runner-up."""
    name, what = f"r{beaten.runner_up + 1}", RESOURCES[beaten.resource]
    if beaten.factor is None:
        return f"{name} is faster at no price of {what}"
    if beaten.factor == 1.0:
        return f"{name} is faster already, within the model's noise"
    return f"{name} is faster if {what} is {_factor(beaten.factor)}"


def _factor(factor: float) -> str:
    way = "dearer" if factor >= 1 else "cheaper"
    size = max(factor, 1 / factor)
    digits = f"{size:.4g}" if size < 1.01 else f"{size:.3g}"
    return f"{digits}x {way}"
