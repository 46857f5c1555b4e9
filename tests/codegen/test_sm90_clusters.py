"""Blocks of a cluster that bring shared operands together: sound programs pass the symbolic run of
both blocks, and every mistake is seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any

import pytest
import sample_kernels as samples
from test_sm90_simulate import ATTENTION, TILES, built, leaves, without

from nautile.codegen.sm90.boxes import Box, Ring
from nautile.codegen.sm90.layout import problems
from nautile.codegen.sm90.memory import Fill, Release, RoleProgram, WaitEmpty, WaitFull
from nautile.codegen.sm90.options import Options
from nautile.codegen.sm90.simulate import ScheduleError, simulate


@cache
def program(name: str, cluster: int = 2) -> RoleProgram:
    if name == "chain of two":
        kernel = samples.attention(1024, 1024, 128, 16, 4)
        return built(kernel, ATTENTION, Options(cluster=cluster))
    kernel = samples.matmul(1024, 1024, 512, store="bf16")
    return built(kernel, TILES[name], Options(cluster=cluster))


def changed(node: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """A program with every node of a kind changed."""
    if isinstance(node, tuple):
        return tuple(changed(n, kind, change) for n in node)
    if not is_dataclass(node) or "sm90" not in type(node).__module__:
        return node
    inner = {f.name: changed(getattr(node, f.name), kind, change) for f in fields(node)}
    made: Any = replace(node, **inner)  # type: ignore[type-var]
    return change(made) if isinstance(made, kind) else made


def refusal(made: RoleProgram) -> str:
    with pytest.raises(ScheduleError) as caught:
        simulate(made)
    return str(caught.value)


@pytest.mark.parametrize("name", ["mm", "mm64", "alternate", "chain of two"])
def test_both_blocks_are_run(name: str) -> None:
    pair, single = program(name), program(name, 1)
    assert pair.geometry.cluster == 2
    assert simulate(pair).steps == 2 * simulate(single).steps


def test_what_depends_on_the_rows_is_brought_alone() -> None:
    made = program("mm")
    (ring,) = made.rings
    row = made.geometry.row
    assert {b.blocks: row in b.inside for b in ring.boxes} == {1: True, 2: False}
    assert ring.bytes == program("mm", 1).rings[0].bytes


def test_an_odd_number_of_row_tiles_has_no_cluster() -> None:
    kernel = samples.matmul(3 * 128, 1024, 512, store="bf16")
    assert built(kernel, TILES["mm"], Options(cluster=2)).geometry.cluster == 1


def test_the_launch_has_whole_clusters() -> None:
    made = built(samples.matmul(1024, 1024, 512, store="bf16"), TILES["mm"], Options(cluster=2))
    few = built(
        samples.matmul(1024, 1024, 512, store="bf16"), TILES["mm"], Options(cluster=2, blocks=7)
    )
    assert (made.blocks, few.blocks) == (32, 6)


@pytest.mark.parametrize("name", ["mm", "alternate", "chain of two"])
@pytest.mark.parametrize("kind", [WaitEmpty, Fill, WaitFull, Release])
def test_each_operation_on_slots_is_needed(name: str, kind: type) -> None:
    made = program(name)
    for role in ("producer", "consumer"):
        for number, op in enumerate(leaves(getattr(made, role))):
            if isinstance(op, kind):
                refusal(without(made, role, number))


@pytest.mark.parametrize("name", ["mm", "alternate"])
def test_a_slot_that_the_other_block_fills_is_released_to_it(name: str) -> None:
    assert "is filled while warpgroup" in refusal(
        changed(program(name), Ring, lambda r: replace(r, blocks=1))
    )


def test_a_box_of_other_rows_is_not_shared() -> None:
    assert "blocks that have other rows" in refusal(
        changed(program("mm"), Box, lambda b: b if b.blocks == 2 else b.shared(2))
    )


def test_a_box_is_shared_by_the_blocks_of_the_cluster() -> None:
    made = program("mm")
    alone = replace(made, geometry=replace(made.geometry, cluster=1))
    assert "shared by 2 blocks of 1" in refusal(alone)


def test_parts_are_whole_periods_of_the_swizzle() -> None:
    made = program("mm")
    cut = changed(made, Box, lambda b: replace(b, rows=24, come=24))
    assert any("parts of whole panels" in found for found in problems(cut))
