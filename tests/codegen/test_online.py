"""Online sums with repairs and offsets: interpreter and generated CUDA against the oracle."""

from __future__ import annotations

from pathlib import Path

import host
import pytest
from online_kernels import ONLINE
from sample_values import check, inputs

from nautile.codegen.emit import emit_program
from nautile.codegen.general import emit_general
from nautile.codegen.interpret import run_program
from nautile.codegen.lower import lower
from nautile.codegen.rows import as_rows
from nautile.codegen.tile import TileProgram

LONG = [c for c in ONLINE if c.endswith("_long")]
GENERAL = [c for c in ONLINE if c not in LONG]


def program(case: str) -> TileProgram:
    made = ONLINE[case]()
    return lower(made, made.parts[0])


@pytest.mark.parametrize("case", ONLINE)
def test_lowered_program_computes_what_the_oracle_does(case: str) -> None:
    made = ONLINE[case]()
    arrays = inputs(made)
    found = dict(arrays)
    run_program([program(case)], found)
    check(made, arrays, found)


NAMES = [*ONLINE, *(f"general-{c}" for c in GENERAL)]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> host.Built:
    table = {}
    for name in NAMES:
        case = name.removeprefix("general-")
        made, tile = ONLINE[case](), program(case)
        cuda = emit_general(tile, tile.name, True) if name != case else emit_program(tile)
        table[name] = (len(table), cuda, made)
    folder: Path = tmp_path_factory.mktemp("online")
    return host.build([k for _, k, _ in table.values()], folder), table


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
