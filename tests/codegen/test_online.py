"""Online sums with repairs and offsets: interpreter and generated CUDA against the oracle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import host
import pytest
from online_kernels import JOINED, LANES, ONLINE
from sample_values import check, inputs

from nautile.codegen.emit import emit_program
from nautile.codegen.general import emit_general
from nautile.codegen.interpret import run_program
from nautile.codegen.lower import lower
from nautile.codegen.rows import as_rows, lanes
from nautile.codegen.tile import TileProgram

EVERY = ONLINE | {f"lanes-{c}": made for c, made in LANES.items()}
EVERY |= {f"joined-{c}": made for c, made in JOINED.items()}
GENERAL = [c for c in EVERY if not c.endswith(("_long", "_many"))]


def program(case: str) -> TileProgram:
    made = EVERY[case]()
    return lower(made, made.parts[0])


@pytest.mark.parametrize("case", EVERY)
def test_lowered_program_computes_what_the_oracle_does(case: str) -> None:
    made = EVERY[case]()
    arrays = inputs(made)
    found = dict(arrays)
    run_program([program(case)], found)
    check(made, arrays, found)


NAMES = [*EVERY, *(f"general-{c}" for c in GENERAL)]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[host.Built]:
    monkeypatch = pytest.MonkeyPatch()
    table = {}
    for name in NAMES:
        case = name.removeprefix("general-")
        made, tile = EVERY[case](), program(case)
        # A card of one multiprocessor is filled by the few results that a test can afford.
        monkeypatch.setattr(lanes, "_MULTIPROCESSORS", 1 if case.endswith("_filled") else 132)
        cuda = emit_general(tile, tile.name, True) if name != case else emit_program(tile)
        table[name] = (len(table), cuda, made)
    folder: Path = tmp_path_factory.mktemp("online")
    yield host.build([k for _, k, _ in table.values()], folder), table
    monkeypatch.undo()


@pytest.mark.skipif(host.COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("name", NAMES)
def test_generated_text_computes_what_the_oracle_does(built: host.Built, name: str) -> None:
    library, table = built
    number, cuda, made = table[name]
    arrays = inputs(made)
    found = dict(arrays)
    host.run(library, number, cuda, made, found)
    check(made, arrays, found)


def test_every_case_but_the_contraction_takes_the_row_emitter() -> None:
    general = {c for c in ONLINE if as_rows(program(c)) is None}
    assert general == {"moved_product"}


def test_memory_across_the_rows_has_its_own_form() -> None:
    for case in LANES:
        rows = as_rows(program(f"lanes-{case}"))
        assert rows is not None
        assert rows.lane is not None


def test_folds_inside_folds_are_rows() -> None:
    for case in JOINED:
        rows = as_rows(program(f"joined-{case}"))
        assert rows is not None
        assert len({f.axis for step in rows.passes for f in step.folds}) == 1
