"""Loop bounds from masks: against brute force over every element of every block."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from sample_kernels import attention, causal, offset_causal, op, prefix, window
from sample_values import check, inputs

from nautile.codegen.affine import ranges
from nautile.codegen.interpret import block_count, interpret, run_program
from nautile.codegen.lower import lower
from nautile.codegen.pointwise import evaluate
from nautile.codegen.tile import Loop, TileProgram
from nautile.terms import Axis, Index, Term

Mask = Callable[[Term, Term], Term]


def _blocked(t: Term, s: Term) -> Term:
    return op("le", op("floordiv", s, 6), op("floordiv", t, 6))


def _strided(t: Term, s: Term) -> Term:
    return op("eq", op("mod", s, 3), op("mod", t, 3))


def _both(t: Term, s: Term) -> Term:
    return op("and", causal(t, s), _strided(t, s))


def _outside(t: Term, s: Term) -> Term:
    return op("not", op("or", op("gt", s, op("add", t, 3)), op("lt", op("mul", s, 2), t)))


def _between(t: Term, s: Term) -> Term:
    return op("and", op("ge", s, op("mul", t, 2)), op("le", op("mul", s, 3), op("add", t, 40)))


MASKS: dict[str, Mask] = {
    "causal": causal,
    "offset": offset_causal,
    "window": window,
    "prefix": prefix,
    "blocked": _blocked,
    "strided": _strided,
    "both": _both,
    "outside": _outside,
    "between": _between,
}


def _truth(mask: Term, t: np.ndarray, s: np.ndarray, axes: tuple[Axis, Axis]) -> np.ndarray:  # type: ignore[type-arg]
    places = {axes[0]: t[:, None], axes[1]: s[None, :]}
    return evaluate(mask, lambda n: places[n.axis] if isinstance(n, Index) else None, {})


def _number(term: Term | None, axis: Axis, origin: int, default: int) -> int:
    if term is None:
        return default
    leaf = lambda n: np.asarray(origin) if isinstance(n, Index) else None  # noqa: E731
    return int(evaluate(term, leaf, {}))


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize(("rows", "columns", "tile"), [(50, 70, 16), (33, 31, 8), (64, 64, 16)])
def test_ranges_never_skip_a_needed_block_nor_call_a_masked_one_whole(
    name: str, rows: int, columns: int, tile: int
) -> None:
    t, s = Axis("t", 0, rows), Axis("s", 0, columns)
    mask = MASKS[name](Index(t), Index(s))
    found = ranges(mask, s, {t: tile, s: tile}, {t})
    blocks = -(-columns // tile)
    for origin in range(0, rows, tile):
        own = np.arange(origin, min(origin + tile, rows))
        bounds = [
            _number(term, t, origin, default)
            for term, default in (
                (found.first, 0),
                (found.stop, blocks),
                (found.whole_first, 0),
                (found.whole_stop, blocks),
            )
        ]
        for block in range(blocks):
            places = np.arange(block * tile, min((block + 1) * tile, columns))
            kept = np.broadcast_to(_truth(mask, own, places, (t, s)), (len(own), len(places)))
            if kept.any():
                assert bounds[0] <= block < bounds[1]
            if bounds[2] <= block < bounds[3]:
                assert kept.all()


@pytest.mark.parametrize("name", ["causal", "window", "prefix", "blocked", "outside"])
def test_affine_masks_skip_blocks(name: str) -> None:
    kernel = attention(t=70, s=70, mask=MASKS[name])
    program = lower(kernel, kernel.parts[0])
    assert _bounds_of(program).stop is not None


def test_a_mask_without_order_bounds_nothing() -> None:
    kernel = attention(t=70, s=70, mask=_strided)
    bounds = _bounds_of(lower(kernel, kernel.parts[0]))
    assert (bounds.first, bounds.stop) == (None, None)


@pytest.mark.parametrize("name", MASKS)
def test_masked_attention_is_the_oracles(name: str) -> None:
    """Rows that the mask leaves empty are NaN in both."""
    kernel = attention(t=45, s=40, h=2, d=16, mask=MASKS[name])
    arrays = inputs(kernel)
    found = dict(arrays)
    run_program([lower(kernel, kernel.parts[0])], found)
    check(kernel, arrays, found)


def test_skipped_blocks_are_not_read() -> None:
    kernel = attention(t=64, s=64, mask=causal)
    program = lower(kernel, kernel.parts[0])
    arrays = inputs(kernel)
    seen: list[int] = []

    def fetch(buffer, index):  # type: ignore[no-untyped-def]
        if buffer.name == "k":
            seen.append(int(np.max(index[1])))
        return arrays[buffer.name][index]

    assert block_count(program) == (4, 4, 1)
    list(interpret(program, fetch, [(0, 0, 0)]))
    assert max(seen) == 15


def _bounds_of(program: TileProgram):  # type: ignore[no-untyped-def]
    return next(s.bounds for s in program.body if isinstance(s, Loop))
