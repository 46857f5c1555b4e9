"""Shared by the end-to-end tests: one saturation worker, and each example optimized once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from nautile import lang
from nautile.examples import paths
from nautile.stages import Optimization, Options, optimize
from nautile.worker import Worker


@pytest.fixture(scope="session")
def worker() -> Iterator[Worker]:
    with Worker() as active:
        yield active


@pytest.fixture(scope="session")
def optimized(worker: Worker) -> Callable[..., Optimization]:
    """`optimized(example, program=None, **options)`: the result, made once a session."""
    made: dict[object, Optimization] = {}
    files = {p.stem: p for p in paths()}

    def get(
        example: str, program: str | None = None, *, dims: str = "", **options: object
    ) -> Optimization:
        key = (example, program, dims, tuple(sorted(options.items())))
        if key not in made:
            sizes = {k: int(v) for k, v in (d.split("=") for d in dims.split(",") if d)}
            found = lang.parse_file(files[example], dims=sizes)
            chosen = next(p for p in found if program in (None, p.name))
            made[key] = optimize(chosen, Options(**options), worker=worker)  # type: ignore[arg-type]
        return made[key]

    return get
