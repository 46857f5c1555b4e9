"""Do the tile programs compute it? Sampled blocks through the interpreter, in float32.

A block must write every element of its share of each output, and nothing outside of it; shares
start out as NaN. Values are judged against the float64 reference and the source's naive evaluation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from nautile.certificate.drawing import Drawn
from nautile.certificate.meaning import affordable, is_costly, positions_for
from nautile.certificate.model import Check
from nautile.certificate.places import Grid, fitted, spread_within
from nautile.certificate.subject import Subject, Target
from nautile.codegen.interpret import Written, block_count, interpret
from nautile.codegen.tile import Loop, Mma, Statement, TileProgram
from nautile.extract.kernel import Kernel, Part
from nautile.inline import Definitions
from nautile.judge import LARGEST, Verdict, judge
from nautile.oracle import evaluate
from nautile.oracle.order import ORDERS, adding
from nautile.oracle.programs import stored
from nautile.oracle.scope import BUDGET
from nautile.oracle.work import READ, work_of
from nautile.terms import Online, Output, Reduce, apply, reduce_, walk

__all__ = ["check_blocks", "check_operands", "coarsest", "naive_and_reference", "sum_floor"]

Array = npt.NDArray[Any]
Tiles = Mapping[str, Sequence[TileProgram]]
_CASES = {"ordinary": "last", "edges": "first", "large": "any"}
"""Which block is looked at on which inputs."""
_SAMPLES = 4096
_LOADS = 1 << 21
_LONGEST_BLOCK = 1 << 30  # products that one block may form to be interpreted
_LONGEST_READ = 1 << 33  # the same with what it reads of other kernels' results
_LONGEST_DRAWN = 1 << 34  # the same with the elements that are drawn for it
_MOVES = 3
_FEW = 64  # values that may all be lucky
_LAST_PLACE, _NARROW = 2.0**-22, 2.0**-8
_STEP = 1 << 16  # products in the time that one step of a loop takes besides


@dataclass(frozen=True, slots=True)
class _Share:
    """One block's part of one output: where it starts, and what was written (NaN elsewhere)."""

    starts: tuple[int, ...]
    values: Array
    complaint: str = ""


def check_blocks(
    subject: Subject, tiles: Tiles, others: Sequence[tuple[Kernel, Sequence[TileProgram]]] = ()
) -> Iterator[Check]:
    """One check for each kernel that has tile programs, and for each of `others`, which are kernels
    of the plan on other schedules. A kernel may compute what another stores anew: where cuts do not
    hold, everything follows from the program's inputs."""
    composed: Subject | None = None
    own = [(k, tiles[k.name]) for k in subject.plan.kernels if k.name in tiles]
    for number, (kernel, programs) in enumerate([*own, *others]):
        check = _check(subject, kernel, programs)
        if not check.passed and subject.cut:
            composed = composed or subject.composed()
            check = _check(composed, kernel, programs)
        yield check if number < len(own) else replace(check, name=f"{check.name}, other tiles")


def _check(subject: Subject, kernel: Kernel, programs: Sequence[TileProgram]) -> Check:
    if any(_too_long(subject, p) for p in kernel.parts):
        return _check_terms(subject, kernel)
    return _check_kernel(subject, kernel, programs)


def _check_kernel(subject: Subject, kernel: Kernel, programs: Sequence[TileProgram]) -> Check:
    name = f"tile program of {kernel.name}"
    if len(programs) != len(kernel.parts):
        detail = f"{len(programs)} tile programs for {len(kernel.parts)} parts"
        return Check(name, False, detail=detail)
    found = [
        (case, verdict)
        for part, program in zip(kernel.parts, programs, strict=True)
        for case, count in _cases(subject, part)
        for verdict in _check_case(subject, part, program, case, count)
    ]
    bad = list(dict.fromkeys(f"{case}: {v.detail}" for case, v in found if not v.passed))
    return Check(
        name=name,
        passed=not bad and bool(found),
        max_relative_error=max(
            (v.max_relative_error for c, v in found if c == "ordinary"), default=0
        ),
        rmse_ratio=max((v.rmse_ratio for _, v in found), default=0.0),
        samples=sum(v.samples for _, v in found),
        detail="; ".join(bad[:4]) or f"{len(found)} shares of blocks, each written completely",
    )


def _cases(subject: Subject, part: Part) -> Sequence[tuple[str, int]]:
    """Cases and blocks to look at; ordinary inputs only where the source takes seconds."""
    costly = any(is_costly(subject, t) for t in subject.targets if t.output in part.outputs)
    cases = [(case, 1) for case in _CASES if case in subject.cases]
    return [("ordinary", 2)] if costly or len(cases) == 1 else cases


def _too_long(subject: Subject, part: Part) -> bool:
    """Whether a block, or what it reads of other kernels' results, takes too long to interpret."""
    made = subject.chosen.definitions
    if _block_work(part) > _LONGEST_BLOCK or _block_work(part, made) > _LONGEST_READ:
        return True
    return _block_work(part, made, READ) > _LONGEST_DRAWN


def _block_work(part: Part, definitions: Definitions | None = None, read: int = 0) -> int:
    """Products that one block forms, with those of the definitions that it reads, the steps of its
    loops counted for what they cost, and elements that are drawn `read` times."""
    steps = math.prod(-(-a.extent // part.tiles[a]) for a in part.streams)
    sizes = ({a: part.tiles.get(a, 1) for a in o.axes} for o in part.outputs)
    terms = (o.term for o in part.outputs)
    return steps * _STEP + sum(
        work_of(t, s, definitions or {}, read=read) for t, s in zip(terms, sizes, strict=True)
    )


def _check_terms(subject: Subject, kernel: Kernel) -> Check:
    """In place of blocks too long to interpret: the terms in float32, over shorter axes."""
    found: list[Verdict] = []
    for whole in (t for t in subject.targets if t.output in kernel.outputs):
        near, target, _ = affordable(subject, whole)
        drawn = near.drawn("ordinary")
        grid = positions_for(near, target, "ordinary", 64)
        at = dict(zip(target.output.axes, grid.values(), strict=True))
        fetch = near.chosen.fetch(drawn, "f64")
        actual = evaluate(target.output.term, fetch, at, precision="f32")
        reference, naive = naive_and_reference(near, target, grid, "ordinary")
        dtype = target.output.buffer.dtype
        found.append(judge(stored(actual, dtype), reference, naive, dtype, floor=sum_floor(target)))
    return Check(
        name=f"float32 terms of {kernel.name}",
        passed=bool(found) and all(v.passed for v in found),
        max_relative_error=max((v.max_relative_error for v in found), default=0.0),
        rmse_ratio=max((v.rmse_ratio for v in found), default=0.0),
        samples=sum(v.samples for v in found),
        detail="; ".join(v.detail for v in found if not v.passed)
        or "a block is too long to interpret",
    )


def _check_case(
    subject: Subject, part: Part, program: TileProgram, case: str, count: int
) -> Iterator[Verdict]:
    rng = np.random.default_rng([subject.seed, *case.encode(), *program.name.encode()])
    drawn = subject.drawn(case)
    for block in _sample_blocks(block_count(program), case, count, rng):
        fetch = subject.chosen.fetch(drawn, "f64")
        pieces = list(interpret(program, fetch, [block]))
        for output in part.outputs:
            target = next(t for t in subject.targets if t.output == output)
            share = _share(program, output, block, pieces)
            yield _judge_share(subject, target, share, case, rng)


def _sample_blocks(
    counts: tuple[int, ...], case: str, count: int, rng: np.random.Generator
) -> list[tuple[int, ...]]:
    """The last block, the first, and random ones."""
    total = math.prod(counts)
    chance = [int(n) for n in rng.integers(0, total, count)]
    ends = {"last": [total - 1, 0], "first": [0], "any": []}
    order = [*ends[_CASES[case]], *chance]
    numbers = list(dict.fromkeys(order))[:count]
    return [tuple(int(i) for i in np.unravel_index(n, counts)) if counts else () for n in numbers]


def _share(
    program: TileProgram, output: Output, block: tuple[int, ...], pieces: Sequence[Written]
) -> _Share:
    """What the block wrote of its share of one output."""
    spans = _spans(program, output, block)
    starts = tuple(a for a, _ in spans)
    values = np.full([b - a for a, b in spans], np.nan)
    seen = np.zeros(values.shape, dtype=np.bool_)
    for piece in pieces:
        if piece.buffer.name == output.buffer.name:
            inside = [(p >= a) & (p < b) for p, (a, b) in zip(piece.positions, spans, strict=True)]
            if not all(i.all() for i in inside):
                return _Share(starts, values, f"{output.buffer.name}: block {block} strays")
            at = tuple(p - a for p, a in zip(piece.positions, starts, strict=True))
            written = np.asarray(piece.values).astype(np.float64)
            values[at] = written if at else written.reshape(())
            seen[at] = True
    missing = int(seen.size - seen.sum())
    if missing:
        said = f"{output.buffer.name}: block {block} leaves {missing} of {seen.size} unwritten"
        return _Share(starts, values, said)
    return _Share(starts, values)


def _spans(program: TileProgram, output: Output, block: tuple[int, ...]) -> list[tuple[int, int]]:
    """First and last position (exclusive) of the block's share along each axis of the output."""
    number = dict(zip(program.grid, block, strict=True))
    spans = []
    for axis in output.axes:
        start = number.get(axis, 0) * program.tiles[axis]
        stop = start + program.tiles[axis] if axis in number else axis.extent
        spans.append((start, min(stop, axis.extent)))
    return spans


def _judge_share(
    subject: Subject,
    target: Target,
    share: _Share,
    case: str,
    rng: np.random.Generator,
) -> Verdict:
    if share.complaint:
        return Verdict(False, 0.0, 0.0, share.values.size, share.complaint)
    grid = _grid_within(target, share, rng)
    local = [p - s for p, s in zip(grid.values(), share.starts, strict=True)]
    actual = share.values[np.ix_(*local)] if local else share.values
    reference, naive = naive_and_reference(subject, target, grid, case)
    dtype = target.output.buffer.dtype
    verdict = judge(actual, reference, naive, dtype, floor=sum_floor(target))
    if not verdict.passed:
        naive = _worst(subject, target, grid, case, reference, naive)
        naive = _cancelled(subject, target, grid, case, reference, naive)
        verdict = judge(actual, reference, naive, dtype, floor=sum_floor(target))
    said = f"{target.output.buffer.name}: {verdict.detail}" if not verdict.passed else ""
    return Verdict(
        verdict.passed, verdict.max_relative_error, verdict.rmse_ratio, verdict.samples, said
    )


def _grid_within(target: Target, share: _Share, rng: np.random.Generator) -> Grid:
    """Positions of the share to compare: all of a short axis, some of a long one, few enough that
    the reference reads a bounded number of elements."""
    shape = share.values.shape
    counts = fitted(target.axes, shape, [target.term], _SAMPLES, _LOADS)
    return {
        axis: np.array(spread_within(start, start + n, c, rng), dtype=np.int64)
        for axis, start, n, c in zip(target.axes, share.starts, shape, counts, strict=True)
    }


def naive_and_reference(
    subject: Subject, target: Target, grid: Grid, case: str, budget: int = BUDGET
) -> tuple[Array, Array]:
    """float64 values without roundings, and the naive evaluation rounded to the stored type; of the
    source's term, or of the plan's own where the source has no name for the tensor. Where nothing
    binds (see `Subject.binds`), both are not finite in ways that the judge takes for unknown."""
    drawn = subject.drawn(case)
    side = subject.source if target.named else subject.chosen
    exact = side.fetch(drawn, "f64", casts=False, budget=budget)
    reference = evaluate(target.term, exact, grid, casts=False)
    imitated = side.fetch(drawn, "mma", budget=budget)
    naive = evaluate(target.term, imitated, grid, precision="mma")
    naive = stored(naive, target.output.buffer.dtype)
    return reference, naive if subject.binds(case) else _unbound(reference, naive, target)


def _worst(
    subject: Subject, target: Target, grid: Grid, case: str, reference: Array, naive: Array
) -> Array:
    """The naive values with the largest errors of several evaluations, inputs moved in their last
    place (and as far as a narrow type rounds, where something is rounded to one). Few values that
    hang on one rounding may all be lucky in a single evaluation."""
    evaluated = _naively(subject, target, grid)
    first = subject.moved(case, 0, _LAST_PLACE)
    others = [evaluated(subject.drawn(case), "f32"), evaluated(first, "mma")]
    others += [evaluated(subject.moved(case, n, _LAST_PLACE), "mma") for n in range(1, _MOVES)]
    if not np.array_equal(evaluated(first, "f32", casts=False), others[1], equal_nan=True):
        others.append(evaluated(subject.moved(case, 0, _NARROW), "mma"))
    return _furthest(reference, naive, others)


class _Naively(Protocol):
    def __call__(self, drawn: Drawn, precision: str, *, casts: bool = True) -> Array: ...


def _naively(subject: Subject, target: Target, grid: Grid, budget: int = BUDGET) -> _Naively:
    """Evaluation of a target on given tensors, rounded to its stored type."""
    side = subject.source if target.named else subject.chosen

    def evaluated(drawn: Drawn, precision: str, *, casts: bool = True) -> Array:
        fetch = side.fetch(drawn, precision, casts=casts, budget=budget)
        found = evaluate(target.term, fetch, grid, precision=precision, casts=casts)
        return found if precision == "f64" else stored(found, target.output.buffer.dtype)

    return evaluated


def _furthest(reference: Array, naive: Array, others: Iterable[Array]) -> Array:
    """Place by place the finite value that is furthest off."""
    for other in others:
        further = _error(other, reference) > _error(naive, reference)
        naive = np.where(further & np.isfinite(naive), other, naive)
    return naive


def coarsest(
    subject: Subject, target: Target, grid: Grid, case: str, budget: int
) -> tuple[Array, Array]:
    """The float64 values, and the naive ones with the largest errors that any order of adding makes
    (see oracle.order): what a correct kernel may lose on a machine whose order nobody knows. Where
    few values are compared, the errors made on inputs as near as a narrow type tells apart count,
    too: a single evaluation of a few roundings may be lucky in all of them."""
    reference, naive = naive_and_reference(subject, target, grid, case, budget)
    if reference.dtype.kind != "f":
        return reference, naive
    evaluated = _naively(subject, target, grid, budget)
    others = [evaluated(subject.drawn(case), "f32")]
    for order in ORDERS[1:]:
        fresh = subject.again(case)
        with adding(order):
            others.append(evaluated(fresh, "mma"))
    if reference.size <= _FEW:
        for number in range(1 if is_costly(subject, target) else _MOVES):
            near = subject.moved(case, number, _NARROW)
            others.append(reference + evaluated(near, "mma") - evaluated(near, "f64", casts=False))
    return reference, _furthest(reference, naive, others)


def _cancelled(
    subject: Subject, target: Target, grid: Grid, case: str, reference: Array, naive: Array
) -> Array:
    """The naive values, at least as far off as adding in order errs: by the floor's share of the
    root of the terms' squares, which is as large as partial sums of either sign become. A sum of
    deviations from their mean is nearly 0: how near says nothing about another order of adding."""
    match target.term:
        case Reduce("sum", axis, body) if not target.named and reference.dtype.kind == "f":
            side = subject.chosen.fetch(subject.drawn(case), "f64", casts=False)
            squares = reduce_("sum", axis, apply("mul", body, body))
            reached = np.sqrt(evaluate(squares, side, grid, casts=False))
            moved = reference + sum_floor(target) * reached
            nearer = _error(naive, reference) < np.abs(moved - reference)
            return np.where(nearer & np.isfinite(moved), moved, naive).astype(naive.dtype)
    return naive


def _error(actual: Array, reference: Array) -> Array:
    with np.errstate(invalid="ignore"):
        return np.abs(actual.astype(np.float64) - reference.astype(np.float64))


def _unbound(reference: Array, naive: Array, target: Target) -> Array:
    """The naive values, made to disagree with a reference that is NaN, infinite or too large for
    the stored type (a quotient by what has vanished: it may have either sign)."""
    if reference.dtype.kind != "f":
        return naive
    beyond = np.abs(reference) > LARGEST.get(target.output.buffer.dtype, np.inf)
    naive = np.where(beyond & ~np.isfinite(naive), np.nan, naive)
    return np.where(np.isnan(reference), np.inf, np.where(np.isinf(reference), np.nan, naive))


def sum_floor(target: Target) -> float:
    """The relative error of summing in order in float32 along the longest reduction."""
    extents = [t.axis.extent for t in walk(target.term) if isinstance(t, (Reduce, Online))]
    return 2.0**-24 * math.sqrt(max(extents, default=1))


def check_operands(subject: Subject, tiles: Tiles) -> Check | None:
    """Which operands of contractions are rounded, and whether a rule allows it: float32 rounds to
    the other operand's bf16, f16 or fp8 only. None where nothing is rounded."""
    said = {f"{name} is stored as its readers round it": True for name in sorted(subject.operands)}
    for kernel, programs in tiles.items():
        for mma in (m for p in programs for m in _contractions(p.body)):
            for tile, other in ((mma.left, mma.right), (mma.right, mma.left)):
                if tile.dtype in ("f32", "f64") and mma.operand not in ("f32", "f64"):
                    allowed = tile.dtype == "f32" and other.dtype == mma.operand
                    text = f"{kernel}: {tile.dtype} operand to {mma.operand}"
                    said[text] = said.get(text, True) and allowed
    if not said:
        return None
    return Check("operand rounding", all(said.values()), detail="; ".join(said))


def _contractions(body: Sequence[Statement]) -> Iterator[Mma]:
    for statement in body:
        if isinstance(statement, Mma):
            yield statement
        if isinstance(statement, Loop):
            yield from _contractions(statement.body)
