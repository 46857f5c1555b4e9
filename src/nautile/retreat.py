"""What is taken instead of a kernel that code generation or the certificate refuses.

A kernel is refused when no schedule of it lowers, or the gate lets none of its CUDA pass. Then its
candidates leave the pool and the choice is made again. After some refusals, or where nothing is
left to choose from, the program is taken as it is: first its regions' own terms, without what rules
made of them ("unsaturated"), then a region for each definition ("written"). `Plan.pruned` counts
the refusals ("refused") and names the source that was taken; `Plan.choice.pool.refused` keeps the
candidates. The bound stays that of the first choice where it is lower: the source's own terms do
not tell what others might do.

So is the program taken where what was chosen is slower than it: the search among what rules made is
no complete one.

A certificate fails where a value that is rounded to f16 leaves its range. Then the choice is made
again of programs that round only what fits ("guarded" in `Plan.pruned`; see extract/licence.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from nautile.dtypes import DTYPES
from nautile.errors import CompileError, ExtractionError, LoweringError
from nautile.terms import Load, walk

if TYPE_CHECKING:
    from nautile.built import Built
    from nautile.extract.device import Device
    from nautile.extract.kernel import Kernel, Plan
    from nautile.extract.regions import Region
    from nautile.options import Options
    from nautile.snapshot import Snapshot
    from nautile.terms import Program

__all__ = [
    "GUARD",
    "Chosen",
    "each",
    "has_small_range",
    "is_guarded",
    "to_better",
    "to_guarded",
    "to_source",
]

_REFUSALS = 6  # of kernels before the next source is taken
_SOURCES = ("unsaturated", "written")
_GUARDED = "guarded"
GUARD = (
    "no value is rounded to a type whose range it may leave; --numerics fast, which assumes that"
    " nothing overflows, rounds more and is faster"
)
_EQUAL = 1e-6


class Chosen(Protocol):
    """What is known of an optimization once its program is chosen (stages.Optimization)."""

    options: Options
    regions: tuple[Region, ...]
    snapshots: tuple[Snapshot, ...]
    plan: Plan | None

    @property
    def work(self) -> Program:
        """What the stages work on."""
        ...


def each(result: Chosen, make: Callable[[Kernel], Built]) -> tuple[Built, ...]:
    """`make` of the plan's kernels, or of those of the next plan (which is the result's then) where
    it refuses one. Raises the first refusal where no plan is left."""
    first: LoweringError | CompileError | None = None
    while True:
        assert result.plan is not None
        made: list[Built] = []
        for kernel in result.plan.kernels:
            try:
                made.append(make(kernel))
            except (LoweringError, CompileError) as error:
                if isinstance(error, CompileError) and error.code != "gate":
                    raise
                first = first or error
                if not _refuse(result, kernel):
                    raise first from None
                break
        else:
            return tuple(made)


def to_source(result: Chosen) -> bool:
    """Choose from the program's own terms; False where that cannot be, or has been done."""
    taken = _taken(result.plan)
    left = _SOURCES if taken is None else _SOURCES[_SOURCES.index(taken) + 1 :]
    return any(_take(result, source) for source in left)


def to_guarded(result: Chosen) -> bool:
    """Choose so that nothing is rounded to a type whose range it may leave; False where that has
    been done, or changes nothing."""
    old = result.plan
    if old is None or is_guarded(old) or not has_small_range(old):
        return False
    plan = _choose(result, result.regions, result.snapshots, guarded=True)
    if plan is None or [k.outputs for k in plan.kernels] == [k.outputs for k in old.kernels]:
        return False
    marks = {m: n for m, n in old.pruned.items() if m in ("refused", *_SOURCES)}
    result.plan = replace(plan, pruned={**plan.pruned, **marks, _GUARDED: 1})
    return True


def to_better(result: Chosen, seconds: float) -> None:
    """Where the plan takes longer than so many seconds, which the source program is priced at: the
    best plan of the program's own terms, if that is faster."""
    if result.plan is None or result.plan.seconds <= seconds * (1 + _EQUAL):
        return
    best = (result.plan, result.regions, result.snapshots)
    for source in _SOURCES:
        if _take(result, source) and result.plan.seconds < best[0].seconds:
            best = (result.plan, result.regions, result.snapshots)
    result.plan, result.regions, result.snapshots = best


def is_guarded(plan: Plan | None) -> bool:
    """Whether the plan rounds nothing to a type whose range it may leave."""
    return plan is not None and _GUARDED in plan.pruned


def has_small_range(plan: Plan) -> bool:
    """Whether the plan has to do with a type of small range."""
    terms = walk(*(o.term for kernel in plan.kernels for o in kernel.outputs))
    held = (t.buffer.dtype if isinstance(t, Load) else getattr(t, "dtype", "") for t in terms)
    return any(dtype in DTYPES and DTYPES[dtype].has_small_range for dtype in held)


def _taken(plan: Plan | None) -> str | None:
    """The source that the plan was chosen from, None where it was what rules made of it."""
    pruned = {} if plan is None else plan.pruned
    return next((source for source in reversed(_SOURCES) if source in pruned), None)


def _take(result: Chosen, source: str) -> bool:
    from nautile import extract

    old = result.plan
    regions = extract.written(result.work) if source == "written" else result.regions
    snapshots = tuple(extract.snapshot_of(region.outputs) for region in regions)
    plan = _choose(result, regions, snapshots, guarded=is_guarded(old))
    if plan is None:
        return False
    refused = 0 if old is None else old.pruned.get("refused", 0)
    marks = {_GUARDED: 1} if is_guarded(old) else {}
    pruned = {**plan.pruned, **marks, "refused": refused, source: 1}
    result.regions, result.snapshots = regions, snapshots
    result.plan = replace(_bounded(plan, old), pruned=pruned)
    return True


def _choose(
    result: Chosen, regions: tuple[Region, ...], snapshots: tuple[Snapshot, ...], *, guarded: bool
) -> Plan | None:
    """The cheapest plan of these, None where nothing fits the device."""
    from nautile import extract

    pairs = list(zip(regions, snapshots, strict=True))
    numerics = result.options.numerics
    try:
        return extract.choose(
            pairs, result.work, _device(result), numerics=numerics, guarded=guarded
        )
    except ExtractionError:
        return None


def _refuse(result: Chosen, kernel: Kernel) -> bool:
    """Choose without the kernel's candidates; False where there is nothing else to choose."""
    plan = result.plan
    assert plan is not None
    gone = 0 if plan.choice is None else len(plan.choice.pool.refused)
    count = plan.pruned.get("refused", 0) + 1
    result.plan = replace(plan, pruned={**plan.pruned, "refused": count})
    if kernel.columns and gone < _REFUSALS and _choose_without(result, kernel):
        return True
    return to_source(result)


def _choose_without(result: Chosen, kernel: Kernel) -> bool:
    from nautile.extract.plan import decide

    old = result.plan
    if old is None or old.choice is None:
        return False
    pool = old.choice.pool.without(kernel.columns)
    try:
        plan = decide(pool, result.work, _device(result), numerics=result.options.numerics)
    except ExtractionError:
        return False
    plan = replace(plan, pruned=old.pruned)
    result.plan = plan if _taken(old) is None else _bounded(plan, old)
    return True


def _bounded(plan: Plan, old: Plan | None) -> Plan:
    """The plan with the lower bound of the one that was chosen of more."""
    if old is None or old.bound >= plan.bound:
        return plan
    return replace(plan, bound=old.bound, gap=1 - old.bound / plan.seconds)


def _device(result: Chosen) -> Device:
    from nautile import extract

    return extract.device(result.options.target)
