"""Online sums with repairs and offsets: interpreter and generated CUDA against the oracle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import host
import pytest
from online_kernels import BESIDE, JOINED, LANES, ONLINE, SHARED
from sample_values import check, inputs

from nautile.codegen.compile import compile_kernel
from nautile.codegen.emit import emit_program
from nautile.codegen.general import emit_general
from nautile.codegen.interpret import run_program
from nautile.codegen.lower import lower
from nautile.codegen.rows import as_rows, lanes
from nautile.codegen.tile import (
    Fold,
    Loop,
    Map,
    Mma,
    Ref,
    Statement,
    TileProgram,
    walk_statements,
)
from nautile.terms import Term, transform

EVERY = ONLINE | {f"lanes-{c}": made for c, made in LANES.items()}
EVERY |= {f"joined-{c}": made for c, made in JOINED.items()}
EVERY |= {f"shared-{c}": made for c, made in SHARED.items()}
EVERY |= {f"beside-{c}": made for c, made in BESIDE.items()}
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


def test_every_case_but_contractions_takes_the_row_emitter() -> None:
    general = {c for c in ONLINE if as_rows(program(c)) is None}
    assert general == {"moved_product", "followed_product"}


def test_memory_across_the_rows_has_its_own_form() -> None:
    for case in LANES:
        rows = as_rows(program(f"lanes-{case}"))
        assert rows is not None
        assert rows.lane is not None


def test_what_all_columns_share_is_folded_before_them() -> None:
    for case in SHARED:
        rows = as_rows(program(f"shared-{case}"))
        assert rows is not None
        assert rows.shared is not None
        assert not any(p.folds for p in rows.passes)


def test_folds_over_two_axes_that_do_not_wait_for_each_other_are_rows() -> None:
    for case in BESIDE:
        rows = as_rows(program(f"beside-{case}"))
        assert rows is not None
        assert rows.shared is not None
        assert (rows.column.name, rows.shared.column.name) == ("c", "p")


def test_folds_inside_folds_are_rows() -> None:
    for case in JOINED:
        rows = as_rows(program(f"joined-{case}"))
        assert rows is not None
        assert len({f.axis for step in rows.passes for f in step.folds}) == 1


def _without_offset(s: Statement) -> Statement:
    return replace(s, offset=None) if isinstance(s, (Fold, Mma)) else s


def _without_repair(s: Statement) -> Statement:
    return replace(s, repair=None) if isinstance(s, (Fold, Mma)) else s


def _exchanged(body: tuple[Statement, ...]) -> dict[str, str]:
    """Names of running values and of those before, each for the other."""
    folds = [s for s in walk_statements(body) if isinstance(s, Fold) and s.before]
    pairs = [(f.target.name, f.before.name) for f in folds if f.before]
    return {a: b for pair in pairs for a, b in (pair, pair[::-1])}


def _swapped(tile: TileProgram) -> TileProgram:
    """Repairs and offsets that go from the new running values to the old ones."""
    names = _exchanged(tile.body)
    moves = {
        m.name
        for s in walk_statements(tile.body)
        if isinstance(s, (Fold, Mma))
        for m in (s.repair, s.offset)
        if m
    }

    def step(term: Term) -> Term:
        if isinstance(term, Ref) and term.tile.name in names:
            return Ref(replace(term.tile, name=names[term.tile.name]))
        return term

    def swap(s: Statement) -> Statement:
        if isinstance(s, Map) and s.target.name in moves:
            return Map(s.target, transform(s.value, step))
        return s

    return _mapped(tile, swap)


def _mapped(tile: TileProgram, change: Callable[[Statement], Statement]) -> TileProgram:
    def inside(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
        return tuple(
            replace(s, body=inside(s.body)) if isinstance(s, Loop) else change(s) for s in body
        )

    return replace(tile, body=inside(tile.body))


BROKEN: dict[str, Callable[[TileProgram], TileProgram]] = {
    "offset": lambda t: _mapped(t, _without_offset),
    "repair": lambda t: _mapped(t, _without_repair),
    "swapped": _swapped,
}
FRAGILE = [
    (case, how)
    for case in (
        "variance_far",
        "covariance",
        "weighted_moment",
        "logsumexp_of_rows",
        "at_maximum",
        "lanes-moments",
        "lanes-lanes",
        "joined-moments",
        "moved_product",
    )
    for how in BROKEN
    if BROKEN[how](program(case)) != program(case)
    and (case, how) != ("at_maximum", "swapped")  # its repair asks whether both are the same
]


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> host.Built:
    table = {}
    for case, how in FRAGILE:
        tile = BROKEN[how](program(case))
        table[f"{case} {how}"] = (len(table), emit_program(tile), EVERY[case]())
    folder = tmp_path_factory.mktemp("broken")
    return host.build([k for _, k, _ in table.values()], folder), table


@pytest.mark.skipif(host.COMPILER is None, reason="needs g++")
@pytest.mark.parametrize(("case", "how"), FRAGILE)
def test_no_part_of_a_repair_is_idle(broken: host.Built, case: str, how: str) -> None:
    library, table = broken
    number, cuda, made = table[f"{case} {how}"]
    arrays = inputs(made)
    found, interpreted = dict(arrays), dict(arrays)
    host.run(library, number, cuda, made, found)
    run_program([BROKEN[how](program(case))], interpreted)
    for wrong in (found, interpreted):
        with pytest.raises(AssertionError):
            check(made, arrays, wrong)


ARCHITECTURES = ("sm_80", "sm_90", "sm_120")
QUICK = ("standardised_long", "weighted_moment_long", "lanes-moments", "joined-grouped")


@pytest.mark.parametrize(
    "case", [c if c in QUICK else pytest.param(c, marks=pytest.mark.slow) for c in EVERY]
)
def test_the_gate_takes_it_without_spills(case: str) -> None:
    cuda = emit_program(program(case))
    for architecture in ARCHITECTURES[1:2] if case in QUICK else ARCHITECTURES:
        report = compile_kernel(cuda, architecture).report
        assert report.spill_stores == report.spill_loads == 0
