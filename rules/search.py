"""A search for counterexamples by Hypothesis, which looks where people would and shrinks."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .instance import Instance, instance_of
from .law import Rule
from .setting import Setting, Unsupported, extents_of
from .shrink import Refutation
from .trials import Method, judged
from .values import SPECIAL, Array, meet, violated

__all__ = ["search"]

_ELEMENTS = 24  # of all tensors of an instance
_WHOLE = 3


@dataclass(slots=True)
class _Drawn:
    """Choices of Hypothesis."""

    draw: Callable[[Any], Any]

    def whole(self, low: int, high: int) -> int:
        from hypothesis import strategies as st

        return int(self.draw(st.integers(low, high)))

    def chance(self, probability: float) -> bool:
        from hypothesis import strategies as st

        return bool(self.draw(st.booleans()))


def search(
    rule: Rule, method: Method, axes: list[str], *, examples: int, seed: int, until: float
) -> Refutation | None:
    """A refutation by `method`, shrunk, or None where so many examples gave none, or none before
    the clock (`time.process_time`) is `until`."""
    from hypothesis import HealthCheck, Phase, Verbosity, find, settings
    from hypothesis import strategies as st
    from hypothesis.errors import Flaky, NoSuchExample, Unsatisfiable

    seen: dict[int, Refutation] = {}

    @st.composite
    def tries(draw: Callable[[Any], Any]) -> tuple[Instance, dict[str, Array]] | None:
        return _drawn(rule, method, axes, draw)

    def refutes(tried: tuple[Instance, dict[str, Array]] | None) -> bool:
        if tried is None or time.process_time() > until:
            return False
        found = judged(method, *tried)
        if found is not None:
            seen[0] = (*tried, found)
        return found is not None

    try:
        find(
            tries(), refutes,
            settings=settings(
                max_examples=examples, database=None, deadline=None, verbosity=Verbosity.quiet,
                suppress_health_check=list(HealthCheck), phases=(Phase.generate, Phase.shrink),
            ),
            random=random.Random(seed),
        )  # fmt: skip
    except (NoSuchExample, Unsatisfiable):
        return None
    except Flaky:  # the clock ran out while a find was made smaller
        return seen.get(0)
    return seen.get(0)


def _drawn(
    rule: Rule, method: Method, axes: list[str], draw: Callable[[Any], Any]
) -> tuple[Instance, dict[str, Array]] | None:
    source = _Drawn(draw)
    extents = {a: min(e, 3) for a, e in extents_of(rule, axes, source, None).items()}
    try:
        instance = instance_of(rule, Setting(source, extents), forward=method.forward)
    except Unsupported:
        return None
    if sum(load.buffer.size for load in instance.loads.values()) > _ELEMENTS:
        return None
    values = {n: _array(draw, load.buffer.dtype, load.buffer.shape, method.kind)
              for n, load in instance.loads.items()}  # fmt: skip
    met = meet(instance, values)
    return None if violated(instance, met) else (instance, met)


def _array(draw: Callable[[Any], Any], dtype: str, shape: tuple[int, ...], kind: str) -> Array:
    count = int(np.prod(shape))
    numbers = [draw(_element(dtype, kind)) for _ in range(count)]
    wide = {"bool": np.bool_, "i64": np.int64, "f64": np.float64}.get(dtype, np.float32)
    return np.array(numbers, wide).reshape(shape)


def _element(dtype: str, kind: str) -> Any:
    from hypothesis import strategies as st

    if dtype == "bool":
        return st.booleans()
    if dtype == "i64":
        return st.integers(-20, 20)
    whole = st.integers(-_WHOLE, _WHOLE).map(float)
    if kind == "special":
        return whole | st.sampled_from(SPECIAL) | st.floats(width=32)
    if kind == "small":
        return whole
    if kind == "large":
        return whole | st.integers(-1_000_000, 1_000_000).map(lambda i: i / 100)
    return whole | st.integers(-8000, 8000).map(lambda i: i / 1000)
