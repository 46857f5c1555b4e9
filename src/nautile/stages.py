"""From a checked program to certified kernels: the named stages, one after the other.

```
Program --cut--> regions --saturate--> snapshots --choose--> Plan --lower--> tile programs
        --emit--> CUDA C++ --compile--> cubins --certify--> Certificate
```

Each stage is a function from the results of the stages before it; `Optimization` holds all of them
and can be inspected after any. How a kernel becomes CUDA and machine code, and what happens where a
schedule is refused, is in building.py; what happens where a kernel is, in retreat.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from nautile import building, lang, retreat
from nautile.building import architectures
from nautile.built import Built, Implementation, Step
from nautile.errors import CompileError, ExtractionError, InputError, LoweringError
from nautile.options import NUMERICS, Options
from nautile.provenance import ingredients, key_of
from nautile.terms import Program

if TYPE_CHECKING:
    from nautile.certificate import Certificate
    from nautile.extract.kernel import Kernel, Plan
    from nautile.extract.regions import Region
    from nautile.snapshot import Snapshot
    from nautile.worker import Worker

__all__ = [
    "NUMERICS",
    "Built",
    "Implementation",
    "Optimization",
    "Options",
    "Step",
    "architectures",
    "optimize",
]

_GROWTH = 20  # e-nodes for each term of a region


@dataclass(slots=True)
class Optimization:
    """All that is known about one program's optimization; fields fill as stages run. `apart` is the
    program over axes taken apart, where a product needs it: what the stages work on."""

    program: Program
    options: Options
    regions: tuple[Region, ...] = ()
    snapshots: tuple[Snapshot, ...] = ()
    baseline: Mapping[str, float] = field(default_factory=dict)
    plan: Plan | None = None
    built: tuple[Built, ...] = ()
    certificate: Certificate | None = None
    timings: dict[str, float] = field(default_factory=dict)
    apart: Program | None = None
    accepted: tuple[tuple[str, str], ...] = ()

    @property
    def work(self) -> Program:
        """What the stages work on: the program, or the same over axes taken apart."""
        return self.apart or self.program

    @property
    def passed(self) -> bool:
        """True when a certificate was made and its verdict is pass."""
        return self.certificate is not None and self.certificate.verdict == "pass"

    @property
    def key(self) -> str:
        """What the result depends on: the program up to names, the options, and what they name (see
        provenance.py)."""
        return key_of(ingredients(lang.key(self.program), self.options))

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of one program (schema: `nautile optimize --json`)."""
        from nautile.report import as_dict

        return as_dict(self)

    def as_text(self) -> str:
        """The same for people."""
        from nautile.report import as_text

        return as_text(self)

    def cost(self) -> list[dict[str, Any]]:
        """Each kernel's predicted cost by resource, against the roofline of the target (an object a
        kernel, as `nautile explain --json` has them); empty before a program was chosen."""
        from nautile.extract.costs import kernel_cost
        from nautile.extract.device import device
        from nautile.report import kernel_dict

        kernels = () if self.plan is None else self.plan.kernels
        target = device(self.options.target)
        numerics = self.options.numerics
        return [kernel_dict(k) | kernel_cost(k, target, numerics) for k in kernels]

    def explain(self, **wanted: Any) -> Any:
        """Why this program was chosen: an `Explanation` (see `nautile.explain`, which takes the
        same arguments). Stages up to the choice are run where they have not been."""
        import nautile

        return nautile.explain(self, **wanted)

    def why_not(self, question: str) -> Any:
        """Why the program is not as the question would have it (a kernel, a term in the expression
        language, or a rule): an `Answer`. Stages up to the choice are run where they have not been.
        Raises InputError for a question that cannot be understood."""
        import nautile

        return nautile.why_not(self, question)

    def _repr_html_(self) -> str:
        """A small table for notebooks."""
        from nautile.report import as_html

        return as_html(self)


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
    """Take apart what products need apart, cut the program into regions, and saturate each in the
    child process."""
    from nautile.egraph import Limits
    from nautile.extract.apart import apart
    from nautile.extract.regions import cut
    from nautile.rules.admission import admit
    from nautile.worker import Worker

    o = result.options
    admitted = admit(o.packs, o.rules, o.accept, NUMERICS[o.numerics])
    chosen, result.accepted = admitted.rules, admitted.accepted
    limits = Limits(rows=o.rows, growth=_GROWTH, seconds=o.seconds, memory_bytes=o.memory)
    result.apart = apart(result.program)
    result.regions = cut(result.work)
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
    """Pick the cheapest set of candidate kernels, and price the source program. Where none fits the
    device, the program is taken as it stands (see retreat.py)."""
    from nautile import extract

    o = result.options
    target = extract.device(o.target)
    pairs = list(zip(result.regions, result.snapshots, strict=True))
    try:
        result.plan = extract.choose(pairs, result.work, target, numerics=o.numerics)
    except ExtractionError as error:
        if not retreat.to_source(result):
            raise error from None
    result.baseline = extract.baseline(result.program, target)
    retreat.to_better(result, result.baseline["seconds"])


def build(result: Optimization) -> None:
    """Lower and emit each kernel; a schedule that does not lower gives way to the next, and a
    kernel of which none does to other kernels."""
    result.built = retreat.each(result, lambda kernel: building.build(kernel, result.options))
    assert result.plan is not None
    result.plan = _as_built(result.plan, result.built)


def compile_all(result: Optimization) -> None:
    """Compile each kernel for each architecture; a refused schedule gives way to the next, and a
    kernel of which all are refused to other kernels."""
    if not result.options.compile:
        return
    assert result.plan is not None
    options = result.options
    known = tuple(zip(result.plan.kernels, result.built, strict=True))

    with building.Compiler(options.threads or None) as compiler:

        def compiled(kernel: Kernel) -> Built:
            found = (built for other, built in known if other is kernel)
            built = next(found, None) or building.build(kernel, options)
            return building.compile_built(built, options, compiler)

        for built in result.built:
            building.ahead(built, options, compiler)
        result.built = retreat.each(result, compiled)
    result.plan = _as_built(result.plan, result.built)


def _as_built(plan: Plan, built: tuple[Built, ...]) -> Plan:
    """The plan with the schedules that were taken; its seconds and gap follow them."""
    kernels = tuple(b.best.kernel for b in built)
    if kernels == plan.kernels:
        return plan
    seconds = sum(k.prediction.seconds for k in kernels)
    bound = min(plan.bound, seconds)  # schedules that were no candidates may be faster
    return replace(plan, kernels=kernels, seconds=seconds, bound=bound, gap=1 - bound / seconds)


def certify(result: Optimization) -> None:
    """Check the chosen program against the source. Where a check fails, one that lets no value
    leave the range of its type is chosen, made and checked instead, if that passes (see
    retreat.py)."""
    result.certificate = _checked(result)
    if result.certificate.verdict == "pass":
        return
    names = ("plan", "regions", "snapshots", "built", "certificate")
    failed = {name: getattr(result, name) for name in names}
    with suppress(LoweringError, CompileError):
        if retreat.to_guarded(result):
            build(result)
            compile_all(result)
            result.certificate = _checked(result)
            if result.certificate.verdict == "pass":
                return
    for name, value in failed.items():
        setattr(result, name, value)


def _checked(result: Optimization) -> Certificate:
    """The certificate. Its many products are small: a second BLAS thread only spins (three times
    the CPU time for a transformer block on two busy cores)."""
    from threadpoolctl import threadpool_limits

    from nautile.certificate import certify as check

    assert result.plan is not None
    o = result.options
    tiles = {b.kernel.name: b.best.tiles for b in result.built}
    others = [(b.kernel, b.tiles) for b in result.built if b.kernel.parts != b.best.kernel.parts]
    with threadpool_limits(limits=1, user_api="blas"):
        found = check(
            result.work, result.plan, tiles, seed=o.seed, numerics=o.numerics, others=others
        )
    return replace(found, accepted=result.accepted)


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
