"""From a checked program to certified kernels: the named stages, one after the other.

```
Program --cut--> regions --saturate--> snapshots --choose--> Plan --lower--> tile programs
        --emit--> CUDA C++ --compile--> cubins --certify--> Certificate
```

Each stage is a function from the results of the stages before it; `Optimization` holds all of them
and can be inspected after any. A schedule that the compiler's gate refuses (spills, too much shared
memory) is replaced by the next-best one of the same kernel.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from nautile import lang
from nautile.errors import CompileError, InputError, LoweringError
from nautile.terms import Program, digest

if TYPE_CHECKING:
    from nautile.certificate import Certificate
    from nautile.codegen.compile import Compiled
    from nautile.codegen.source import CudaKernel
    from nautile.codegen.tile import TileProgram
    from nautile.extract.kernel import Kernel, Plan
    from nautile.extract.regions import Region
    from nautile.snapshot import Snapshot
    from nautile.worker import Worker

__all__ = ["NUMERICS", "Built", "Optimization", "Options", "optimize"]

NUMERICS: Mapping[str, tuple[str, ...]] = {
    "exact": ("exact",),
    "real": ("exact", "real"),
    "fast": ("exact", "real", "fast"),
}
_GROWTH = 20  # e-nodes for each term of a region


@dataclass(frozen=True, slots=True)
class Options:
    """What may be chosen: target device, numerics class, rule packs (all built-in ones by default),
    budgets of one region's saturation (rows, seconds, bytes), architectures to compile for (the
    target's own by default) and whether to compile at all."""

    target: str = "h200"
    numerics: str = "real"
    packs: tuple[str, ...] | None = None
    rows: int = 50_000
    seconds: float = 10.0
    memory: int = 4 << 30
    compile: bool = False
    architectures: tuple[str, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        if self.numerics not in NUMERICS:
            raise InputError(
                f"unknown numerics class {self.numerics!r}; known: {', '.join(NUMERICS)}",
                code="unknown-numerics",
            )


@dataclass(frozen=True, slots=True)
class Step:
    """One CUDA kernel: its tile programs, its text and its machine code by architecture."""

    tiles: tuple[TileProgram, ...]
    cuda: CudaKernel
    compiled: Mapping[str, Compiled] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Implementation:
    """One way to do a launch's work: a schedule of the kernel, and the CUDA kernels of it, which
    run one after the other."""

    kernel: Kernel
    steps: tuple[Step, ...]

    @property
    def tiles(self) -> tuple[TileProgram, ...]:
        """The tile programs of all steps."""
        return tuple(t for step in self.steps for t in step.tiles)

    @property
    def architecture(self) -> str:
        """The lowest that all steps need; one of its own ("sm_90a") before the portable ones."""
        return max((s.cuda.architecture for s in self.steps), key=lambda a: (a[-1] in "af", a))

    @property
    def schedule(self) -> str:
        """The schedule as people read it: architecture, tiles, launch shape."""
        tiles = {a.name: t for part in self.kernel.parts for a, t in part.tiles.items()}
        shape = " ".join(f"{a}={t}" for a, t in tiles.items())
        return f"{self.architecture}: tiles {shape}"


@dataclass(frozen=True, slots=True)
class Built:
    """One launch, all the way down: the kernel, its tile programs, its portable CUDA and cubins.

    `better` holds implementations for the target's own architecture, the best first; the launcher
    tries them before the portable one. `spare` holds others that a measurement may prefer."""

    kernel: Kernel
    tiles: tuple[TileProgram, ...]
    cuda: CudaKernel
    compiled: Mapping[str, Compiled] = field(default_factory=dict)
    better: tuple[Implementation, ...] = ()
    spare: tuple[Implementation, ...] = ()

    @property
    def implementations(self) -> tuple[Implementation, ...]:
        """Every way to do the launch's work, the best first."""
        portable = Step(self.tiles, self.cuda, self.compiled)
        return (*self.better, Implementation(self.kernel, (portable,)), *self.spare)


@dataclass(slots=True)
class Optimization:
    """All that is known about one program's optimization; fields fill as stages run."""

    program: Program
    options: Options
    regions: tuple[Region, ...] = ()
    snapshots: tuple[Snapshot, ...] = ()
    baseline: Mapping[str, float] = field(default_factory=dict)
    plan: Plan | None = None
    built: tuple[Built, ...] = ()
    certificate: Certificate | None = None
    timings: dict[str, float] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """True when a certificate was made and its verdict is pass."""
        return self.certificate is not None and self.certificate.verdict == "pass"

    @property
    def key(self) -> str:
        """What the result depends on: the program up to names, target, numerics and rules."""
        o = self.options
        packs = "all" if o.packs is None else ",".join(o.packs)
        return digest(lang.key(self.program), o.target, o.numerics, packs, _version())

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of one program (schema: `nautile optimize --json`)."""
        from nautile.report import as_dict

        return as_dict(self)

    def as_text(self) -> str:
        """The same for people."""
        from nautile.report import as_text

        return as_text(self)


def optimize(
    program: Program | str,
    options: Options | None = None,
    *,
    worker: Worker | None = None,
    progress: Callable[[str], None] = lambda stage: None,
) -> Optimization:
    """Optimize one program (or the text of one) and certify the result.

    Raises an error of nautile.errors: InputError for what cannot be handled, CompileError when no
    schedule passes the gate; a certificate that fails is returned, not raised.
    """
    start = time.perf_counter()
    result = Optimization(_program(program), options or Options())
    result.timings["parse"] = time.perf_counter() - start
    with _stage(result, "saturate", progress):
        saturate(result, worker)
    with _stage(result, "extract", progress):
        choose(result)
    with _stage(result, "lower", progress):
        build(result)
    with _stage(result, "compile", progress):
        compile_all(result)
    with _stage(result, "certify", progress):
        certify(result)
    return result


def saturate(result: Optimization, worker: Worker | None = None) -> None:
    """Cut the program into regions and saturate each in the child process."""
    from nautile import rules
    from nautile.egraph import Limits
    from nautile.extract.regions import cut
    from nautile.worker import Worker

    o = result.options
    chosen = rules.load(o.packs, classes=NUMERICS[o.numerics])
    limits = Limits(rows=o.rows, growth=_GROWTH, seconds=o.seconds, memory_bytes=o.memory)
    result.regions = cut(result.program)
    own = Worker() if worker is None else None
    try:
        active = worker or own
        assert active is not None
        result.snapshots = tuple(
            active.saturate(region.outputs, chosen, limits=limits) for region in result.regions
        )
    finally:
        if own is not None:
            own.close()


def choose(result: Optimization) -> None:
    """Pick the cheapest set of candidate kernels, and price the source program."""
    from nautile import extract

    o = result.options
    target = extract.device(o.target)
    pairs = list(zip(result.regions, result.snapshots, strict=True))
    result.plan = extract.choose(pairs, result.program, target, numerics=o.numerics)
    result.baseline = extract.baseline(result.program, target)


def build(result: Optimization) -> None:
    """Lower and emit each kernel; a schedule that does not lower gives way to the next."""
    assert result.plan is not None
    result.built = tuple(_built(result, kernel) for kernel in result.plan.kernels)
    result.plan = _as_built(result.plan, result.built)


def _built(result: Optimization, kernel: Kernel) -> Built:
    """The kernel on the first schedule whose tiles fit; without the tensor cores where none of
    those that could have them does."""
    try:
        return _first(result, kernel, _maker(result, fitting=True))
    except LoweringError:
        return _first(result, kernel, _maker(result))


def compile_all(result: Optimization) -> None:
    """Compile each kernel for each architecture; a refused schedule gives way to the next."""
    if not result.options.compile:
        return
    result.built = tuple(_compiled(result, b) for b in result.built)
    assert result.plan is not None
    result.plan = _as_built(result.plan, result.built)


def _as_built(plan: Plan, built: tuple[Built, ...]) -> Plan:
    """The plan with the schedules that were taken; its seconds and gap follow them."""
    kernels = tuple(b.kernel for b in built)
    if kernels == plan.kernels:
        return plan
    seconds = sum(k.prediction.seconds for k in kernels)
    return replace(plan, kernels=kernels, seconds=seconds, gap=max(0.0, 1 - plan.bound / seconds))


def certify(result: Optimization) -> None:
    """Check the chosen program against the source.

    Its many products are small: a second BLAS thread only spins (three times the CPU time for a
    transformer block on two busy cores).
    """
    from threadpoolctl import threadpool_limits

    from nautile.certificate import certify as check

    assert result.plan is not None
    o = result.options
    tiles = {b.kernel.name: b.tiles for b in result.built}
    with threadpool_limits(limits=1, user_api="blas"):
        result.certificate = check(
            result.program, result.plan, tiles, seed=o.seed, numerics=o.numerics
        )


def _maker(result: Optimization, *, fitting: bool = False) -> Callable[[Kernel], Built]:
    """Lowering and emission under the numerics class: `exact` forbids rounding of operands."""
    from nautile.codegen.emit import emit
    from nautile.codegen.lower import lower

    rounding = result.options.numerics != "exact"

    def make(kernel: Kernel) -> Built:
        tiles = tuple(lower(kernel, part, rounding=rounding) for part in kernel.parts)
        return Built(kernel, tiles, emit(kernel, tiles, fitting=fitting))

    return make


def _compiled(result: Optimization, built: Built) -> Built:
    """`built` with cubins, or other tiles of the same kernel if the gate refuses all its CUDA."""
    try:
        return _accepted(result, built)
    except CompileError as error:
        if error.code != "gate":
            raise
        make = _maker(result)
        return _first(
            result,
            built.kernel,
            lambda kernel: _accepted(result, make(kernel)),
            skip=built.kernel,
            cause=error,
        )


def _accepted(result: Optimization, built: Built) -> Built:
    """With cubins: its CUDA or other CUDA for the same tiles, the first that the gate accepts for
    every architecture; the first refusal is raised when it accepts none."""
    from nautile.codegen.emit import alternatives

    refusal: CompileError | None = None
    for cuda in chain([built.cuda], alternatives(built.kernel, built.tiles)):
        try:
            return _compile(result, replace(built, cuda=cuda))
        except CompileError as error:
            if error.code != "gate":
                raise
            refusal = refusal or error
    assert refusal is not None
    raise refusal


def _compile(result: Optimization, built: Built) -> Built:
    from nautile.codegen.compile import compile_many

    (compiled,) = compile_many([built.cuda], architectures(result.options))
    return replace(built, compiled=compiled)


def architectures(options: Options) -> tuple[str, ...]:
    """What is compiled for: the architectures asked for, or else the target's own."""
    from nautile.codegen.compile import architecture_of

    return options.architectures or (architecture_of(options.target),)


def _first(
    result: Optimization,
    kernel: Kernel,
    make: Callable[[Kernel], Built],
    *,
    skip: Kernel | None = None,
    cause: Exception | None = None,
) -> Built:
    """`make` of the kernel, or of the best alternative schedule for which it succeeds."""
    for candidate in _schedules(result, kernel):
        if skip is not None and candidate.parts == skip.parts:
            continue
        try:
            return make(candidate)
        except (LoweringError, CompileError) as error:
            if isinstance(error, CompileError) and error.code != "gate":
                raise
            cause = error
    raise cause or LoweringError(f"kernel {kernel.name} has no schedule that lowers")


def _schedules(result: Optimization, kernel: Kernel) -> Iterator[Kernel]:
    """The kernel itself, then the same parts under their next-best common schedules."""
    from nautile import extract
    from nautile.extract.together import alternatives

    yield kernel
    o = result.options
    for parts, prediction in alternatives(kernel, extract.device(o.target), numerics=o.numerics):
        if parts != kernel.parts:
            yield replace(kernel, parts=parts, prediction=prediction)


@contextmanager
def _stage(result: Optimization, name: str, progress: Callable[[str], None]) -> Iterator[None]:
    progress(name)
    start = time.perf_counter()
    try:
        yield
    finally:
        result.timings[name] = time.perf_counter() - start


def _program(source: Program | str) -> Program:
    if isinstance(source, Program):
        return source
    programs = lang.parse(source)
    if len(programs) != 1:
        raise InputError(f"the text holds {len(programs)} programs; pass one", code="one-program")
    return programs[0]


def _version() -> str:
    from nautile import __version__

    return __version__
