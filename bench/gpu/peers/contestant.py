"""Contestants and the work that they do."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

__all__ = ["KINDS", "Contestant", "Function", "Outputs", "Tensors", "Work", "compiled", "plainly"]

Tensors = Mapping[str, torch.Tensor]
Outputs = tuple[torch.Tensor, ...]
Function = Callable[[Tensors], Outputs]

KINDS = ("library", "triton", "wheel", "compiled", "autotuned")
# Seconds, the first of a process aside (flex_attention's took 11 s there, and 3 s from then on).
_COSTS = {"library": 1.0, "triton": 8.0, "wheel": 15.0, "compiled": 8.0, "autotuned": 60.0}


@dataclass(frozen=True, slots=True)
class Contestant:
    """`make` gives the function to time; compilation may wait for its first call. `needs` is the
    package that it is made of. `seconds` is what making and the first call take, about."""

    name: str
    kind: str
    make: Callable[[], Function]
    needs: str = "torch"

    @property
    def seconds(self) -> float:
        return _COSTS[self.kind]

    @property
    def compiles(self) -> bool:
        """Whether making it takes long, and leaves something in a cache on disk."""
        return self.kind in ("triton", "compiled", "autotuned")

    def missing(self) -> bool:
        """Whether its package is not installed."""
        return importlib.util.find_spec(self.needs.partition(".")[0]) is None


@dataclass(frozen=True, slots=True)
class Work:
    """`exact` gives float64 results and `plain` those of torch in the program's own types, on the
    places that `sample` takes of whole results. `scales` are deviations of the normal inputs, or
    (low, high) of whole numbers and uniform ones, where a bundle's own are not wanted."""

    exact: Function
    plain: Function
    contestants: tuple[Contestant, ...]
    sample: Callable[[Outputs], Outputs] = lambda outputs: outputs
    scales: Mapping[str, float | tuple[float, float]] = field(default_factory=dict)
    copies: bool = False  # whether a copy of as many bytes runs beside it


def plainly(function: Callable[..., Any]) -> Function:
    """A function of tensors in the order of the program's inputs, as one of all of them."""

    def run(given: Tensors) -> Outputs:
        result = function(*given.values())
        return result if isinstance(result, tuple) else (result,)

    return run


def compiled(function: Callable[..., Any]) -> tuple[Contestant, Contestant]:
    """torch.compile of a function, by default and with the search of max-autotune; CUDA graphs are
    the harness' own."""
    make = partial(_compiled, function)
    return (
        Contestant("compile", "compiled", partial(make, "default")),
        Contestant("autotuned", "autotuned", partial(make, "max-autotune-no-cudagraphs")),
    )


def _compiled(function: Callable[..., Any], mode: str) -> Function:
    return plainly(torch.compile(function, dynamic=False, mode=mode))
