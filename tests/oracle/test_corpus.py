"""The corpus: whole programs against check values that were computed without this project."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nautile import lang
from nautile.oracle import run
from nautile.terms import Program

CORPUS = Path(__file__).parents[1] / "data" / "corpus"


def entries() -> list[Any]:
    found = []
    for file, key in (("attention", "modifications"), ("subgraphs", "subgraphs")):
        for entry in json.loads((CORPUS / f"{file}.json").read_text())[key]:
            found.append(pytest.param(entry, id=entry.get("id") or entry["name"]))
    return found


def draw(rng: np.random.Generator, how: dict[str, Any], shape: tuple[int, ...]) -> np.ndarray:
    """The corpus' check protocol."""
    match how:
        case {"values": values}:
            return np.asarray(values)
        case {"integers": [low, high]}:
            return rng.integers(low, high, shape)
        case {"uniform": _}:
            return rng.random(shape) + 0.5
        case {"bool": p}:
            return rng.random(shape) < p
    return rng.standard_normal(shape)


def arrays_of(program: Program, check: dict[str, Any]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(check["seed"])
    how = check.get("draw", {})
    return {b.name: draw(rng, how.get(b.name, {}), b.shape) for b in program.inputs}


@pytest.mark.parametrize("entry", entries())
def test_the_oracle_reproduces_the_check_values(entry: dict[str, Any]) -> None:
    check = entry["check"]
    (program,) = lang.parse("\n".join(entry["program"]), dims=check["sizes"])
    outputs = list(run(program, arrays_of(program, check), storage=False).values())
    expected = check.get("results") or [check["result"]]
    assert len(outputs) == len(expected)
    for actual, wanted in zip(outputs, expected, strict=True):
        assert list(actual.shape) == wanted["shape"]
        assert actual.sum() == pytest.approx(wanted["sum"], rel=1e-9, abs=1e-12)
        assert np.abs(actual).sum() == pytest.approx(wanted["abs_sum"], rel=1e-9)
        head = actual.ravel()[: len(wanted["head"])]
        np.testing.assert_allclose(head, wanted["head"], rtol=1e-9, atol=1e-15)
