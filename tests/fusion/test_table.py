"""The fusion table: every program keeps to the fewest passes and kernels that it can have.

A program that does not says in fewest.toml what stops it, and how far it stays behind (`found`); it
may not fall further. A few of every family run always, all with --slow; what bench/fusion.py has
written of all is read always.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nautile.worker import Worker

from .catalogue import HERE, catalogue, entry
from .measure import Measured, certificate, measure

RECORDED = HERE.parents[1] / "bench" / "results" / "fusion.json"
ROWS, MILLISECONDS = 5_000, 100.0
# Processor time of the child. What takes longer than it should: no more than that.
LONGER = {"divergence": 250.0, "symmetric_divergence": 250.0}
BLOCK_ROWS, BLOCK_MILLISECONDS = 50_000, 5_000.0
RUNS = 12  # saturations, of which the fastest counts: others may keep the machine busy
QUICK = (
    "causal", "window", "unshifted", "sinks", "two_maps", "dropped", "weighted_keys", "with_lse",
    "backward_values", "softmax_rows", "softmax_gradient", "log_of_log", "top_1", "loss_rows",
    "divergence", "variances", "masked_variance", "centred_product", "layer_norm",
    "rms_norm_matmul", "scaled_product", "quantised_rows",
)  # fmt: skip
NAMES = [e.name for e in catalogue()]


def quick_or_slow(names: list[str]) -> list[Any]:
    """The names, those outside of QUICK marked slow."""
    return [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in names]


EVERY = quick_or_slow(NAMES)
KEYS = ("K", "L", "V", "C", "O")  # what programs call the tensors that a query walks over
Get = Callable[[str], Measured]


@pytest.fixture(scope="module")
def measured() -> Iterator[Get]:
    """`measured(program)`: saturated in one warm child and chosen, once."""
    made: dict[str, Measured] = {}
    with Worker() as worker:

        def get(name: str) -> Measured:
            if name not in made:
                made[name] = measure(entry(name), worker, runs=RUNS, quick=MILLISECONDS)
            return made[name]

        get("loss_rows")  # the child is warm
        yield get


def test_the_table_is_as_long_as_it_should_be() -> None:
    assert len([e for e in catalogue() if e.group != "subgraphs"]) >= 50
    assert set(QUICK) <= set(NAMES)
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize("name", EVERY)
def test_passes_and_kernels(name: str, measured: Get) -> None:
    m = measured(name)
    over = m.after.over(m.entry.program)
    assert {n: k for n, k in over.items() if k > m.entry.allowed(n)} == {}
    assert len(m.after.kernels) <= m.entry.most_kernels
    assert m.reached or m.entry.stops


@pytest.mark.parametrize("name", EVERY)
def test_saturation_is_small_and_fast(name: str, measured: Get) -> None:
    s = measured(name).saturation
    block = name == "decoder_block"
    assert s.rows < (BLOCK_ROWS if block else ROWS)
    limit = BLOCK_MILLISECONDS if block else LONGER.get(name, MILLISECONDS)
    assert s.milliseconds < limit


@pytest.mark.parametrize("name", EVERY)
def test_certificate(name: str, measured: Get) -> None:
    checked, trouble = certificate(measured(name).result, samples=64)
    assert not trouble
    assert checked.verdict == "pass", checked.failures


def test_attention_needs_one_pass_over_keys_and_values() -> None:
    """What the table holds every kind of attention to, whatever stops a plan today."""
    kinds = [e for e in catalogue() if e.group in ("masks", "attention")]
    assert len(kinds) >= 30
    assert [e.name for e in kinds if any(n in KEYS and k > 1 for n, k in e.passes.items())] == []


# ---- what was written down ---------------------------------------------------------------------


def records() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(RECORDED.read_text())
    return found


def test_every_program_is_recorded() -> None:
    assert [r["case"] for r in records()] == NAMES


@pytest.mark.parametrize("record", records(), ids=lambda r: r["case"])
def test_the_record_keeps_to_the_fewest(record: dict[str, Any]) -> None:
    known = entry(record["case"])
    assert "error" not in record
    assert record["certificate"]["verdict"] == "pass"
    passes = record["after"]["passes"]
    assert {n: k for n, k in passes.items() if k > known.allowed(n)} == {}
    assert len(record["after"]["kernels"]) <= known.most_kernels
    assert record["reached"] == (not known.stops)
    block = record["case"] == "decoder_block"
    assert record["saturation"]["rows"] < (BLOCK_ROWS if block else ROWS)
