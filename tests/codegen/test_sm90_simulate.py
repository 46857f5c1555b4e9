"""The symbolic run of memory programs with roles: sound ones pass, and every mistake is seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache

import pytest
import sample_kernels as samples

from nautile.codegen.lower import lower
from nautile.codegen.memory import FoldRow, Fragment, Keep, Pack, Pointwise, Rescale, Settle
from nautile.codegen.sm90.emit import memory_program
from nautile.codegen.sm90.happens import Actor, Barrier, Turns
from nautile.codegen.sm90.held import Held, Value
from nautile.codegen.sm90.layout import bank_conflicts, problems, staging_conflicts
from nautile.codegen.sm90.memory import (
    Advance,
    Begin,
    CommitGroup,
    Fence,
    Fill,
    Issue,
    Midway,
    Next,
    Operation,
    PairArrive,
    PairSync,
    Pin,
    Release,
    Ring,
    RoleProgram,
    Skip,
    Stream,
    Tiles,
    WaitEmpty,
    WaitFull,
    WaitGroup,
)
from nautile.codegen.sm90.options import Options
from nautile.codegen.sm90.simulate import ScheduleError, simulate
from nautile.extract.kernel import Kernel

TILES = {
    "mm": {"n": 128, "m": 256, "k": 64},
    "mm64": {"n": 64, "m": 256, "k": 64},
    "alternate": {"n": 128, "m": 128, "k": 64},
    "gate": {"n": 128, "m": 128, "k": 64},
    "chain": {"n": 128, "m": 128, "k": 128, "p": 128},
}
ATTENTIONS = ("attention", "dynamic", "free", "ragged", "ahead", "ahead dynamic", "midway")
ATTENTION = {"h": 1, "t": 128, "s": 128, "d": 128, "e": 128}


def built(kernel: Kernel, tiles: dict[str, int], options: Options) -> RoleProgram:
    """A sample kernel with tiles of the size that warpgroups take."""
    part = kernel.parts[0]
    part = replace(part, tiles={a: tiles[a.family] for a in part.tiles})
    return memory_program(lower(replace(kernel, parts=(part,)), part), options)


@lru_cache(maxsize=16)
def program(name: str) -> RoleProgram:
    """Memory programs of every schedule: skewed, lagged, alternate, in order; static, dynamic."""
    dynamic, ahead = True if "dynamic" in name else None, name.startswith("ahead")
    midway = name in ("midway", "ahead dynamic")
    options = Options(dynamic=dynamic, turns=name != "free", ahead=ahead, midway=midway)
    if name in ATTENTIONS:
        size = 900 if name == "ragged" else 1024
        mask = samples.causal if "dynamic" in name else None
        return built(samples.attention(1024, size, 128, 16, 4, mask=mask), ATTENTION, options)
    if name == "gate":
        return built(samples.gated(256, 512, 256), TILES[name], options)
    if name == "chain":
        return built(samples.chain(256, 128, 128, 128), TILES[name], options)
    return built(samples.matmul(1024, 1024, 512, store="bf16"), TILES[name], options)


NAMES = (*ATTENTIONS, *TILES)


@pytest.mark.parametrize("name", NAMES)
def test_planned_programs_are_sound(name: str) -> None:
    found = simulate(program(name))
    assert found.runs >= 5
    assert found.steps > 200
    assert found.conflicts == 1


def test_the_schedules_differ() -> None:
    geometries = {n: program(n).geometry for n in NAMES}
    assert geometries["alternate"].alternate
    assert {g.consumers for g in geometries.values()} >= {1, 2}
    assert any(op.order == "dynamic" for op in program("dynamic").consumer if isinstance(op, Tiles))


# -- edits -----------------------------------------------------------------------------------------


def edited(
    body: tuple[Operation, ...], change: Callable[[Operation], list[Operation]]
) -> tuple[Operation, ...]:
    """The body with every operation that holds no others replaced, in order."""
    made: list[Operation] = []
    for op in body:
        if isinstance(op, Tiles):
            first = edited((op.first,), change)[0] if op.first else None
            made.append(replace(op, first=first, body=edited(op.body, change)))
        elif isinstance(op, Next):
            waits, products = edited(op.waits, change), edited(op.products, change)
            made.append(replace(op, waits=waits, products=products))
        elif isinstance(op, Stream):
            first, rest = edited(op.first, change), edited(op.body, change)
            made.append(replace(op, first=first, body=rest))
        elif isinstance(op, Midway):
            made.append(replace(op, between=edited(op.between, change)))
        else:
            made += change(op)
    return tuple(made)


def leaves(body: tuple[Operation, ...]) -> list[Operation]:
    found: list[Operation] = []
    edited(body, lambda op: found.append(op) or [op])  # type: ignore[func-returns-value]
    return found


def without(made: RoleProgram, role: str, number: int) -> RoleProgram:
    """Operation `number` of a role dropped."""
    counter = iter(range(10_000))
    body = edited(getattr(made, role), lambda op: [] if next(counter) == number else [op])
    return replace(made, **{role: body})


def moved(
    made: RoleProgram, kind: type, place: int, by: int, role: str = "consumer"
) -> RoleProgram:
    """The `place`-th operation of a kind, in the body of the role's (last) stream, moved."""

    def change(body: tuple[Operation, ...]) -> tuple[Operation, ...]:
        at = [i for i, op in enumerate(body) if isinstance(op, kind)][place]
        rest = [*body[:at], *body[at + 1 :]]
        return (*rest[: at + by], body[at], *rest[at + by :])

    return replace(made, **{role: in_stream(getattr(made, role), change)})


def in_stream(
    body: tuple[Operation, ...],
    change: Callable[[tuple[Operation, ...]], tuple[Operation, ...]],
) -> tuple[Operation, ...]:
    return tuple(
        replace(op, body=change(op.body))
        if isinstance(op, Stream)
        else replace(op, body=in_stream(op.body, change))
        if isinstance(op, Tiles)
        else op
        for op in body
    )


def every(kinds: tuple[type, ...]) -> Iterator[tuple[str, str, int, Operation]]:
    for name in (
        "attention",
        "dynamic",
        "ahead",
        "ahead dynamic",
        "midway",
        "alternate",
        "mm",
        "chain",
    ):
        for role in ("producer", "consumer"):
            for number, op in enumerate(leaves(getattr(program(name), role))):
                if isinstance(op, kinds):
                    yield name, role, number, op


SYNCHRONISING = (
    WaitEmpty, Fill, Advance, WaitFull, Release, Fence, Issue, CommitGroup, WaitGroup, Pin, Pack,
    PairSync, PairArrive, Keep,
)  # fmt: skip


def test_each_operation_that_orders_others_is_needed() -> None:
    """Dropped anywhere, it is missed; but for the Fence of a next tile's products, since nothing
    touches their registers after the Fence of the last products of this tile."""
    kept = []
    for name, role, number, op in every(SYNCHRONISING):
        try:
            simulate(without(program(name), role, number))
        except ScheduleError:
            continue
        kept.append((name, role, number, type(op).__name__))
    spared = {(name, kind) for name, _, _, kind in kept}
    assert spared == {("ahead", "Fence"), ("ahead dynamic", "Fence")}
    assert len(kept) == 2


@pytest.mark.parametrize(
    ("name", "kind", "place", "reason"),
    [
        ("attention", Settle, 0, "before its threads combined it"),
        ("attention", FoldRow, -1, "has not seen all blocks"),
        ("attention", Issue, 1, "releases t5 and has not read it"),
        ("attention", Pack, 0, "is multiplied before it is packed"),
        ("attention", Pack, 1, "mixes blocks"),
        ("attention", PairArrive, 0, "deadlock"),
        ("mm", Begin, 0, "is added to before it begins"),
        ("alternate", Skip, 0, "sees another tile"),
        ("alternate", Skip, 1, "sees another block"),
        ("dynamic", WaitFull, 0, "a dynamic number is used before"),
    ],
)
def test_what_a_dropped_operation_leads_to(name: str, kind: type, place: int, reason: str) -> None:
    made = program(name)
    found = [i for i, op in enumerate(leaves(made.consumer)) if isinstance(op, kind)]
    with pytest.raises(ScheduleError, match=reason):
        simulate(without(made, "consumer", found[place]))


def test_carried_products_are_rescaled_once_between_two() -> None:
    made = program("attention")

    def twice(op: Operation) -> list[Operation]:
        return [op, op] if isinstance(op, Rescale) else [op]

    with pytest.raises(ScheduleError, match="rescaled twice between products"):
        simulate(replace(made, consumer=edited(made.consumer, twice)))


def test_products_between_which_nothing_is_rescaled() -> None:
    made = program("attention")
    found = leaves(made.consumer)
    issue = [op for op in found if isinstance(op, Issue)][-1]
    assert isinstance(issue.left, Fragment)
    moved = [f for op in found if isinstance(op, Rescale) for f in op.targets]
    held = Held.of(made.accumulators, moved)
    held.begin(issue.target)
    held.define(issue.left, Value())
    held.fence()
    held.issue(issue, None)
    with pytest.raises(ScheduleError, match="is not rescaled between two products"):
        held.issue(issue, None)


def test_a_value_in_two_halves_is_nobody_s_between_them() -> None:
    """Neither what it is made of nor the whole may be touched; its products wait for both."""
    made = program("midway")

    def early(op: Operation) -> Operation:
        """The operation after a Midway between its halves."""
        if not isinstance(op, Stream):
            return op
        at = next(i for i, o in enumerate(op.body) if isinstance(o, Midway))
        halves = op.body[at]
        assert isinstance(halves, Midway)
        halves = replace(halves, between=(*halves.between, op.body[at + 1]))
        return replace(op, body=(*op.body[:at], halves, *op.body[at + 2 :]))

    def inside(op: Operation) -> Operation:
        return replace(op, body=tuple(map(early, op.body))) if isinstance(op, Tiles) else op

    simulate(made)
    with pytest.raises(ScheduleError, match="is used before it is computed"):
        simulate(replace(made, consumer=tuple(map(inside, made.consumer))))


def test_a_role_that_ends_while_products_fly() -> None:
    made = program("mm")

    def cut(op: Operation) -> Operation:
        if isinstance(op, Tiles):
            last = max(i for i, o in enumerate(op.body) if isinstance(o, Stream))
            return replace(op, body=op.body[: last + 1])
        return op

    with pytest.raises(ScheduleError, match="ends while products fly"):
        simulate(replace(made, consumer=tuple(map(cut, made.consumer))))


@pytest.mark.parametrize(
    ("name", "kind", "place", "by", "reason"),
    [
        ("attention", Release, 0, -1, "released while products of warpgroup"),
        ("attention", Release, 1, -1, "released while products of warpgroup"),
        ("attention", WaitGroup, 0, 3, "released while|touched while products"),
        ("attention", WaitFull, 1, 1, "read before it has been waited for"),
        ("attention", Fence, 0, 1, "no Fence stands between"),
        ("attention", Pack, 0, -4, "touched while products"),
        ("attention", Pin, 0, 1, "no Pin holds"),
        ("attention", Pin, 0, -1, "no Pin holds|before it is computed"),
        ("attention", PairArrive, 0, -8, "arrives twice at the turn|before its last turn"),
        ("attention", Advance, 0, -6, "releases k before it waited for it"),
        ("alternate", Release, 0, -1, "released while products of warpgroup"),
        ("mm", CommitGroup, 0, -1, "released while products of warpgroup"),
        ("mm", Advance, 0, -3, "released while products of warpgroup"),
        ("chain", Fence, 0, 2, "no Fence stands between"),
    ],
)
def test_an_operation_out_of_its_place(
    name: str, kind: type, place: int, by: int, reason: str
) -> None:
    with pytest.raises(ScheduleError, match=reason):
        simulate(moved(program(name), kind, place, by))


def test_a_producer_that_fills_first_and_waits_then() -> None:
    with pytest.raises(ScheduleError, match="a phase may end before who waits has seen it"):
        simulate(moved(program("mm"), WaitEmpty, 0, 1, role="producer"))


def test_a_value_kept_after_it_changed() -> None:
    with pytest.raises(ScheduleError, match="is rescaled from block"):
        simulate(moved(program("attention"), Keep, 0, 1))


def test_a_factor_computed_before_its_fold() -> None:
    made = program("attention")
    stream = next(op for op in made.consumer[-1].body if isinstance(op, Stream))
    work = [op for op in stream.body if isinstance(op, Pointwise)]
    place = next(i for i, op in enumerate(work) if op.target.column is None)  # one for each row
    with pytest.raises(ScheduleError, match=r"where it is rescaled|before the folds"):
        simulate(moved(made, Pointwise, place, -1))


def test_ping_pong_without_turns_passes_barriers_a_round_early() -> None:
    """Warpgroup 1 would wait for a phase two ahead, and parity alone cannot tell."""
    made = program("alternate")
    body = edited(made.consumer, lambda op: [] if type(op).__name__.startswith("Pair") else [op])
    with pytest.raises(ScheduleError, match=r"one round early|sees another"):
        simulate(replace(made, consumer=body))


def test_a_wait_that_leaves_one_group_too_many() -> None:
    def change(op: Operation) -> list[Operation]:
        return [replace(op, pending=op.pending + 1) if isinstance(op, WaitGroup) else op]

    made = program("attention")
    with pytest.raises(ScheduleError, match="products"):
        simulate(replace(made, consumer=edited(made.consumer, change)))


def test_a_wait_that_names_no_accumulator() -> None:
    def change(op: Operation) -> list[Operation]:
        return [replace(op, pinned=()) if isinstance(op, WaitGroup) else op]

    made = program("mm")
    with pytest.raises(ScheduleError, match="no wait names it"):
        simulate(replace(made, consumer=edited(made.consumer, change)))


def with_rings(made: RoleProgram, change: Callable[[Ring], Ring]) -> RoleProgram:
    """The program with changed rings, in its operations too."""

    def swap(op: Operation) -> list[Operation]:
        for name in ("ring", "left_ring"):
            if isinstance(getattr(op, name, None), Ring):
                op = replace(op, **{name: change(getattr(op, name))})  # type: ignore[type-var]
        if isinstance(op, Issue):
            op = replace(op, pairs=tuple((box, change(ring)) for box, ring in op.pairs))
        return [op]

    roles = {}
    for role in ("producer", "consumer"):
        body = edited(getattr(made, role), swap)
        roles[role] = tuple(
            replace(op, carrier=change(op.carrier))
            if isinstance(op, Tiles) and op.carrier is not None
            else op
            for op in body
        )
    return replace(made, rings=tuple(change(r) for r in made.rings), **roles)


@pytest.mark.parametrize("name", ["attention", "alternate", "dynamic"])
def test_a_ring_that_counts_too_few_or_too_many(name: str) -> None:
    for more in (-4, 4):
        made = with_rings(program(name), lambda r: replace(r, arrivals=r.arrivals + more))  # noqa: B023
        with pytest.raises(ScheduleError, match="arrivals"):
            simulate(made)


def test_a_ring_of_one_slot_deadlocks_where_a_slot_is_released_late() -> None:
    """The lagged loop holds the slot of block j - 1 while it waits for block j."""
    with pytest.raises(ScheduleError, match="deadlock: the producer waits for empty"):
        simulate(with_rings(program("mm"), lambda r: replace(r, stages=1)))


# -- shared memory ---------------------------------------------------------------------------------


def test_what_overlaps_or_is_not_aligned() -> None:
    made = program("attention")
    assert list(problems(made)) == []
    cases = {
        "overlaps": replace(made, words=made.rings[0].offset),
        "exceed": replace(made, shared_bytes=made.shared_bytes - 1024),
        "not aligned to 1024": with_rings(
            made, lambda r: replace(r, offset=r.offset - 16 * (r.offset > 0))
        ),
        "are not aligned to 8": with_rings(made, lambda r: replace(r, barriers=r.barriers + 4)),
        "exceed its slot": with_rings(made, lambda r: replace(r, slot_bytes=r.slot_bytes - 1024)),
    }
    for reason, broken in cases.items():
        assert [p for p in problems(broken) if reason in p] != [], reason
        with pytest.raises(ScheduleError):
            simulate(broken)


def test_registers_that_the_roles_take_must_be_there() -> None:
    """384 threads have 168 each: 40 + 2 x 232 is 3 x 168."""
    made = replace(program("attention"), registers=(40, 232))
    assert list(problems(made)) == []
    (greedy,) = problems(replace(made, registers=(40, 240)))
    assert "the roles take (40, 240) of 168 registers" in greedy
    (odd,) = problems(replace(made, registers=(20, 200)))
    assert "are not possible" in odd


def test_a_box_that_brings_other_bytes_than_its_place_has() -> None:
    def change(ring: Ring) -> Ring:
        boxes = tuple(
            replace(b, map=replace(b.map, box=(b.map.box[0], b.map.box[1] // 2, *b.map.box[2:])))
            for b in ring.boxes
        )
        return replace(ring, boxes=boxes)

    found = list(problems(with_rings(program("mm"), change)))
    assert any("moves 8192 bytes, not 16384" in p for p in found)


def test_bank_conflicts_are_counted() -> None:
    assert bank_conflicts(list(range(32))) == 1
    assert bank_conflicts([0, 0, 0]) == 1
    assert bank_conflicts([32 * i for i in range(8)]) == 8
    assert (staging_conflicts(), staging_conflicts(swizzled=False)) == (1, 8)
    assert (staging_conflicts(size=4), staging_conflicts(swizzled=False, size=4)) == (2, 4)


# -- barriers --------------------------------------------------------------------------------------


def actors(count: int) -> list[Actor]:
    return [Actor(f"actor {i}", i, [0] * count) for i in range(count)]


def test_a_phase_ends_with_its_last_arrival_and_orders_what_came_before() -> None:
    a, b, c = actors(3)
    barrier = Barrier("barrier", 8, 3)
    assert barrier.passes(1)
    assert not barrier.passes(0)
    before = a.event()
    barrier.arrive(a, 4)
    assert not barrier.passes(0)
    barrier.arrive(b, 4)
    assert barrier.passes(0)
    assert not c.knows(before)
    assert barrier.passed(c) == 0
    assert c.knows(before)


def test_who_skips_a_phase_may_pass_a_round_early() -> None:
    a, b = actors(2)
    barrier = Barrier("barrier", 4, 2)
    barrier.arrive(a, 4)
    barrier.arrive(a, 4)
    with pytest.raises(ScheduleError, match="actor 1 may pass barrier one round early"):
        barrier.passed(b)


def test_a_phase_must_not_end_before_who_waits_has_seen_the_last() -> None:
    a, b = actors(2)
    barrier = Barrier("barrier", 4, 2)
    barrier.arrive(a, 4)
    barrier.passed(b)
    with pytest.raises(ScheduleError, match="may end before who waits has seen it"):
        barrier.arrive(a, 4)


def test_turns_are_given_and_taken_one_by_one() -> None:
    a, b = actors(2)
    turns = Turns("turn")
    assert not turns.take(b)
    turns.arrive(a)
    assert turns.take(b)
    with pytest.raises(ScheduleError, match="before its last turn"):
        turns.arrive(a)
    a.learn(b.clock)
    turns.arrive(a)
    with pytest.raises(ScheduleError, match="arrives twice"):
        turns.arrive(a)


def test_an_actor_arrives_once_for_a_phase_and_not_before_it() -> None:
    a, b = actors(2)
    barrier = Barrier("barrier", 8, 2)
    barrier.arrive(a, 4)
    with pytest.raises(ScheduleError, match="actor 0 arrives twice for one phase of barrier"):
        barrier.arrive(a, 4)
    barrier.arrive(b, 4)
    with pytest.raises(ScheduleError, match="actor 0 may arrive at barrier before its phase"):
        barrier.arrive(a, 4)
    barrier.passed(a)
    barrier.arrive(a, 4)


def test_a_barrier_counts_what_it_was_told() -> None:
    (a,) = actors(1)
    with pytest.raises(ScheduleError, match="more arrivals than the 2"):
        Barrier("barrier", 2, 1).arrive(a, 4)
