"""The judge: what must pass passes, what must fail fails."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest

from nautile.dtypes import DTYPES
from nautile.judge import FLOOR, LARGEST, from_json, judge, to_json

RNG = np.random.default_rng(0)
Y = RNG.standard_normal((32, 64))


def narrow(x: np.ndarray) -> np.ndarray:
    return x.astype(ml_dtypes.bfloat16).astype(np.float64)


def test_types_are_those_of_the_language() -> None:
    assert {n for n, d in DTYPES.items() if d.kind == "float"} == set(FLOOR)
    assert {n: DTYPES[n].largest for n in LARGEST} == LARGEST


def test_an_equally_accurate_result_passes() -> None:
    naive, actual = narrow(Y * (1 + 1e-3)), narrow(Y * (1 - 1.5e-3))
    verdict = judge(actual, Y, naive, "bf16")
    assert verdict.passed
    assert 0.5 < verdict.rmse_ratio < 1.5
    assert 1e-3 < verdict.max_relative_error < 1e-2
    assert verdict.samples == Y.size


def test_three_times_the_naive_error_fails() -> None:
    noise = RNG.standard_normal(Y.shape) * 1e-4
    assert judge(Y + 1.8 * noise, Y, Y + noise, "f32").passed
    verdict = judge(Y + 3 * noise, Y, Y + noise, "f32")
    assert not verdict.passed
    assert verdict.rmse_ratio == pytest.approx(3, rel=1e-6)


def test_the_floor_of_the_type_is_allowed_and_no_more() -> None:
    assert judge(Y * (1 + 2**-21), Y, Y, "f32").passed
    assert not judge(Y * (1 + 2**-19), Y, Y, "f32").passed
    assert judge(Y * (1 + 2**-19), Y, Y, "f32", floor=2**-19).passed


def test_one_small_wrong_row_is_found_among_large_ones() -> None:
    scaled = Y * np.where(np.arange(32) == 5, 1e-6, 1.0)[:, None]
    naive, actual = narrow(scaled), narrow(scaled)
    assert judge(actual, scaled, naive, "bf16").passed
    actual[5] = -actual[5]
    verdict = judge(actual, scaled, naive, "bf16")
    assert not verdict.passed
    assert "row 5" in verdict.detail


@pytest.mark.parametrize(
    ("reference", "naive", "actual", "passed"),
    [
        (1.0, 1.0, np.nan, False),
        (1.0, 1.0, np.inf, False),
        (1.0, np.inf, np.inf, True),
        (np.nan, np.nan, 0.0, False),
        (np.nan, np.nan, np.nan, True),
        (np.nan, np.nan, -np.inf, True),
        (np.nan, np.inf, 0.0, True),
        (np.inf, np.inf, np.inf, True),
        (np.inf, np.inf, 3.0, False),
        (np.inf, np.inf, -np.inf, False),
        (1e6, np.inf, np.inf, True),
        (1e6, np.inf, 65504.0, True),
        (1e6, np.inf, -65504.0, False),
    ],
)
def test_special_values(reference: float, naive: float, actual: float, passed: bool) -> None:
    y, z, x = Y.copy(), Y.copy(), Y.copy()
    y[3, 4], z[3, 4], x[3, 4] = reference, naive, actual
    assert judge(x, y, z, "f16").passed is passed


def test_whole_numbers_must_agree_unless_the_source_errs_as_often() -> None:
    y = RNG.integers(0, 9, (8, 8))
    x, z = y.copy(), y.copy()
    assert judge(x, y, z, "i64").passed
    x[0, 0] += 1
    assert not judge(x, y, z, "i64").passed
    z[1, :2] += 1
    assert judge(x, y, z, "i64").passed


def test_scalars_zeros_and_shapes() -> None:
    assert judge(1.0, 1.0, 1.0, "f32").passed
    assert not judge(1.1, 1.0, 1.0, "f32").passed
    assert judge(np.zeros((2, 3)), np.zeros((2, 3)), np.zeros((2, 3)), "f32").passed
    assert not judge(np.full((2, 3), 1e-3), np.zeros((2, 3)), np.zeros((2, 3)), "f32").passed
    with pytest.raises(ValueError, match="shapes differ"):
        judge(Y, Y[:4], Y, "f32")


def test_values_travel_through_strict_json() -> None:
    values = np.array([[1.5, np.nan], [np.inf, -np.inf]])
    text = json.dumps(to_json(values), allow_nan=False)
    np.testing.assert_array_equal(from_json(json.loads(text), (2, 2)), values)
