"""One random program tried: everything that is chosen or found for it, against the source.

```
trial ::= parse, saturate, choose on a small machine, lower
        | variants     the chosen kernels, a runner-up or a program drawn from the e-graph that
                       prefers online sums; as scheduled, and under random tiles and streams
        | comparisons  each variant's terms in float64 and in float32 kernel by kernel, and its tile
                       programs in the interpreter
        | certificate  of the chosen kernels
```

The comparison (random_truth.py) is independent of the certificate. Everything follows from the
program's text: a trial of equal text is equal.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np

from nautile import extract, lang, rules
from nautile.certificate import certify
from nautile.codegen.lower import lower
from nautile.codegen.tile import TileProgram
from nautile.egraph import Limits
from nautile.errors import LoweringError
from nautile.extract import candidates, tilings
from nautile.extract.kernel import Kernel, Part, Plan, Prediction
from nautile.extract.licence import Licence, widened
from nautile.snapshot import Snapshot, term_of
from nautile.stages import NUMERICS
from nautile.terms import Axis, Online, Output, Program, Reduce, Term, walk
from nautile.worker import Worker

from .random_truth import Variant, truths

__all__ = ["Trial", "numerics_of", "small_tiles", "trial"]

Array = np.ndarray
Arrays = dict[str, Array]
CASES = ("ordinary", "offset", "large", "infinite", "ties")
DONE = {"online", "streams"}
LIMITS = Limits(rows=12_000, growth=20, seconds=8.0, memory_bytes=2 << 30)
FREE = Prediction(0.0, "", 0, 0, 0, 0, 0, 0, 0, 0)
SMALL: dict[str, Any] = {
    "RESIDENT": 6,
    "_CHUNK": (2, 3, 4),
    "_FEW": (1, 2, 4),
    "_FLAT": (1, 2, 4, 8, 16),
    "_STREAM": (16,),
    "_WHOLE": 16,
}


SHORT = {"REFINEMENTS": 1, "BASE": 6, "PAIRS": 4, "JOINT": 8}
NARROW = 4
"""How far and wide most trials search for kernels: the rest tries the same things."""


@dataclass(slots=True)
class Trial:
    """What was tried and found: features of the chosen program, and what was wrong, if anything."""

    text: str
    numerics: str
    features: set[str] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        start = time.process_time()
        try:
            yield
        finally:
            passed = time.process_time() - start
            self.seconds[what] = self.seconds.get(what, 0.0) + passed


@contextmanager
def small_tiles() -> Iterator[None]:
    """Tile sizes that make axes of a dozen elements long: they are streamed, with ragged ends."""
    known = {k: v for k, v in SMALL.items() if hasattr(tilings, k)}
    with patch.multiple(tilings, **known):
        yield


@contextmanager
def search(*, whole: bool) -> Iterator[None]:
    """The search for kernels as it is, or a short one."""
    if whole:
        yield
        return
    defaults = {**candidates.Generator.__init__.__kwdefaults__, "width": NARROW}
    with (
        patch.multiple(candidates, **SHORT),
        patch.object(candidates.Generator.__init__, "__kwdefaults__", defaults),
    ):
        yield


def small_device() -> extract.Device:
    """A machine on which launches cost little and memory much, so that passes decide."""
    return replace(
        extract.device("h200"),
        name="small",
        sms=2,
        memory_bandwidth=1e9,
        l2_bandwidth=2e9,
        l2_bytes=64,
        launch_seconds=2e-8,
        step_seconds=1e-10,
        memory_sms=1,
    )


def numerics_of(text: str) -> str:
    """The class under which a program is tried by default: mostly `real`. `fast` assumes that
    values are of ordinary size, so masked rows are not for it."""
    found = ("exact", "fast", *["real"] * 10)[zlib.crc32(text.encode()) % 12]
    return "real" if found == "fast" and ("inf" in text or "1e30" in text) else found


def trial(text: str, worker: Worker, numerics: str = "real") -> Trial:
    """Try one program. Errors that no stage may raise are failures too."""
    result = Trial(text, numerics)
    try:
        _try(result, worker)
    except Exception as error:
        result.failures.append(f"{type(error).__name__}: {error}")
    return result


def _try(result: Trial, worker: Worker) -> None:
    rng = np.random.default_rng(zlib.crc32(result.text.encode()))
    (program,) = lang.parse(result.text)
    laws = loaded(result.numerics)
    regions = extract.cut(program)
    with result.timed("saturate"):
        snapshots = [worker.saturate(r.outputs, laws, limits=LIMITS) for r in regions]
    pairs = list(zip(regions, snapshots, strict=True))
    with result.timed("choose"), small_tiles(), search(whole=not rng.integers(0, 6)):
        plan = extract.choose(
            pairs,
            program,
            small_device(),
            numerics=result.numerics,
            runners=int(rng.integers(0, 4) == 0),
        )
    result.features |= features(plan)
    if dependent(regions):
        result.features |= {"dependent"} | {f"dependent {f}" for f in DONE & result.features}
    with result.timed("lower"):
        variants = _variants(result, plan, pairs, rng)
    with result.timed("compare"):
        for truth in truths(program, result.numerics, rng):
            for variant in variants:
                result.failures += truth.compare(variant)
    if numerics_checked(rng):
        with result.timed("certify"):
            result.failures += _certified(program, plan, variants[0], result.numerics)


@cache
def loaded(numerics: str) -> tuple[rules.Rule, ...]:
    """The laws of a numerics class."""
    return tuple(rules.load(classes=NUMERICS[numerics]))


def numerics_checked(rng: np.random.Generator) -> bool:
    """The certificate is asked for every fifth program: it costs as much as all the rest."""
    return not rng.integers(0, 5)


# ---- variants ----------------------------------------------------------------------------------


def _variants(
    result: Trial,
    plan: Plan,
    pairs: Sequence[tuple[extract.Region, Snapshot]],
    rng: np.random.Generator,
) -> list[Variant]:
    rounding = result.numerics != "exact"
    tiles = tuple(tuple(lower(k, p, rounding=rounding) for p in k.parts) for k in plan.kernels)
    found = [Variant("chosen", plan.kernels, tiles)]
    found += _rescheduled("chosen", plan.kernels, rng, rounding, result)
    if plan.runners_up:
        other = plan.runners_up[0][1]
        return found + _rescheduled("runner-up", other, rng, rounding, result, terms=True)
    drawn = _drawn(pairs, rng)
    if any(isinstance(t, Online) for o in drawn for t in walk(o.term)):
        result.features.add("drawn online")
    kernels = tuple(Kernel(f"drawn{i}", (_part((o,), rng),), FREE) for i, o in enumerate(drawn))
    if result.numerics == "fast":  # which loses digits wherever it likes
        return found
    found += _rescheduled("drawn", kernels, rng, rounding, result, terms=True)
    return found


def _rescheduled(
    label: str,
    kernels: tuple[Kernel, ...],
    rng: np.random.Generator,
    rounding: bool,
    result: Trial,
    *,
    terms: bool = False,
) -> list[Variant]:
    """The kernels under random tiles; where a part does not lower so, under others, or not at all
    (its terms may still be compared)."""
    made: list[Kernel] = []
    tiles: list[tuple[TileProgram, ...]] = []
    for kernel in kernels:
        for _ in range(3):
            new = replace(kernel, parts=tuple(_part(p.outputs, rng) for p in kernel.parts))
            try:
                tiles.append(tuple(lower(new, p, rounding=rounding) for p in new.parts))
            except LoweringError:
                continue
            made.append(new)
            break
        else:
            result.features.add(f"{label} not lowered")
            return [Variant(label, kernels, None)] if terms else []
    result.features.add(f"{label} rescheduled")
    return [Variant(f"{label}, rescheduled", tuple(made), tuple(tiles), terms)]


def _part(outputs: tuple[Output, ...], rng: np.random.Generator) -> Part:
    """A schedule by chance: most reduced axes streamed, tiles that need not divide anything."""
    bound = {t.axis for o in outputs for t in walk(o.term) if isinstance(t, (Reduce, Online))}
    stored_axes = {a for o in outputs for a in o.axes}
    tiles: dict[Axis, int] = {}
    streams = []
    for axis in sorted(bound | stored_axes):
        steps = int(rng.integers(1, 5 if axis in bound else 3))
        tiles[axis] = -(-axis.extent // steps)
        if axis in bound and tiles[axis] < axis.extent:
            streams.append(axis)
    order = [streams[i] for i in rng.permutation(len(streams))]
    return Part(outputs, tiles, tuple(order))


def _drawn(
    pairs: Sequence[tuple[extract.Region, Snapshot]], rng: np.random.Generator
) -> list[Output]:
    """A program drawn from the e-graphs, one term an output; online sums are taken where found."""
    outputs = []
    for region, snapshot in pairs:
        terms: dict[int, Term] = {}
        given = Licence(o.term for o in region.outputs)
        for output, root in zip(region.outputs, snapshot.roots, strict=True):
            _build(root, snapshot, rng, terms, frozenset(), given)
            outputs.append(Output(output.buffer, output.axes, terms[root]))
    return outputs


def _build(
    c: int,
    snapshot: Snapshot,
    rng: np.random.Generator,
    terms: dict[int, Term],
    above: frozenset[int],
    given: Licence,
) -> bool:
    """Build class `c` outside the classes `above`; whether that was possible."""
    if c in terms:
        return True
    nodes = snapshot.classes[c]
    order = sorted(range(len(nodes)), key=lambda i: (nodes[i].kind != "online", rng.random()))
    if rng.random() < 0.15:
        order = list(rng.permutation(len(nodes)))
    inside = above | {c}
    for i in order:
        if not inside & {*nodes[i].children} and all(
            _build(k, snapshot, rng, terms, inside, given) for k in nodes[i].children
        ):
            made = term_of(nodes[i], tuple(terms[k] for k in nodes[i].children))
            terms[c] = widened(made, given)
            return True
    return False


def dependent(regions: Sequence[extract.Region]) -> bool:
    """Whether a reduction of the source needs another one over the same dimension, one too long to
    be held: two passes, if nothing is rewritten."""
    terms = walk(*(o.term for region in regions for o in region.outputs))
    reductions = [t for t in terms if isinstance(t, Reduce) and t.axis.extent > SMALL["RESIDENT"]]
    return any(
        isinstance(inner, Reduce) and inner.axis.family == outer.axis.family
        for outer in reductions
        for inner in walk(outer.body)
    )


def features(plan: Plan) -> set[str]:
    """What the chosen program is made of."""
    found = {f"{min(len(plan.kernels), 4)} kernels"}
    found |= {"streams" for k in plan.kernels for p in k.parts if p.streams}
    for term in walk(*(o.term for k in plan.kernels for o in k.outputs)):
        if isinstance(term, Online):
            found.add("online")
            found |= {"offset"} if term.offset is not None else set()
            found |= {"repair"} if term.repair is not None and term.repair.free else set()
    found |= {"reassociated" for k in plan.kernels if "reassociate" in k.rules}
    found |= {f"rule {r}" for k in plan.kernels for r in k.rules}
    found |= {"split" for k in plan.kernels for p in k.parts if getattr(p, "splits", None)}
    return found


# ---- certificate ------------------------------------------------------------------------------


def _certified(program: Program, plan: Plan, variant: Variant, numerics: str) -> list[str]:
    assert variant.tiles is not None
    tiles: Mapping[str, Sequence[TileProgram]] = dict(
        zip((k.name for k in plan.kernels), variant.tiles, strict=True)
    )
    found = certify(program, plan, tiles, numerics=numerics, samples=64)
    return [f"certificate: {c.name}: {c.detail}" for c in found.checks if not c.passed]
