"""Answers laid out over grids against NumPy's own indexing."""

import numpy as np
import pytest

from nautile.oracle.grid import Question

TENSOR = np.arange(6 * 8 * 5).reshape(6, 8, 5)
ROW, COLUMN = np.arange(3), np.arange(5)


@pytest.mark.parametrize(
    "index",
    [
        (np.array([[[4]], [[2]]]), np.arange(8).reshape(1, -1, 1), COLUMN.reshape(1, 1, -1)),
        (COLUMN.reshape(-1, 1), np.array([[7, 0, 7]]), np.zeros((1, 1), dtype=int)),
        (np.array([[0]]), 2 * ROW.reshape(-1, 1) + np.arange(2), np.array([[3]])),
        (np.array([[0]]), 2 * ROW + np.arange(2).reshape(-1, 1), np.array([[3]])),
        (ROW.reshape(-1, 1), ROW.reshape(-1, 1) + COLUMN, COLUMN.reshape(1, -1)),
        (np.array(5), np.array(0), np.array(2)),
        (ROW, np.array([[1], [6]]), np.array(2)),
        (np.zeros((0, 1), dtype=int), np.arange(4).reshape(1, -1), np.array([[1]])),
    ],
    ids=["mesh", "gather", "chunks", "strided", "shared", "scalar", "ranks", "empty"],
)
def test_an_answer_is_what_numpy_gives(index: tuple[np.ndarray, ...]) -> None:
    question = Question.of(index)
    grid = TENSOR[np.ix_(*question.at)]
    np.testing.assert_array_equal(question.answer(grid), TENSOR[index])
