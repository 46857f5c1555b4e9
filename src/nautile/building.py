"""A kernel of a plan to CUDA and machine code: for the target's own architecture, and portable.

Where the target is a Hopper card, a kernel's parts are emitted for sm_90a (TMA, wgmma, warp roles)
if they can be, each as a kernel of its own; the portable kernel is always made beside it. Whatever
does not lower, or is refused by the compiler's gate (spills, too much shared memory), gives way to
the next-best schedule of the same kernel.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import chain, count, islice
from typing import TYPE_CHECKING, TypeVar

from nautile.built import Built, Implementation, Step
from nautile.dtypes import DTYPES
from nautile.errors import CompileError, LoweringError
from nautile.options import Options

if TYPE_CHECKING:
    from nautile.codegen.compile import Compiled
    from nautile.codegen.source import CudaKernel
    from nautile.codegen.tile import TileProgram
    from nautile.extract.device import Device
    from nautile.extract.kernel import Kernel

__all__ = ["Compiler", "architectures", "build", "compile_built"]

T = TypeVar("T")
HOPPER = ("sm_90", "sm_90a")
PORTABLE, WARPGROUPS = "portable", "wgmma"  # paths of extract/
_SCHEDULES = 8  # of a kernel that are tried, at most, where not more are asked for
_TRIES = 6  # kernels of one architecture that are compiled before the portable one is taken


def architectures(options: Options) -> tuple[str, ...]:
    """What is compiled for: the architectures asked for, or else the target's own."""
    from nautile.codegen.compile import architecture_of

    return options.architectures or (architecture_of(options.target),)


# ---- emission ------------------------------------------------------------------------------------


def build(kernel: Kernel, options: Options) -> Built:
    """The kernel on the first schedule whose tiles fit, with the best implementation for the
    target's own architecture if there is one, and as many others as the options ask for. Raises
    LoweringError where nothing covers it."""
    better = tuple(islice(ways(kernel, options), options.candidates))
    made = replace(_portable(kernel, options), better=better)
    wanted = options.candidates - len(better) - 1
    if wanted <= 0:
        return made
    others = _diagonal([_paying(kernel, options, False), _others(made, options)])
    return replace(made, spare=tuple(islice(others, wanted)))


def ways(kernel: Kernel, options: Options) -> Iterator[Implementation]:
    """Implementations for the target's own architecture that should be faster than the portable
    one, the best first; none where there is no emitter for it, or where it takes no schedule of the
    kernel."""
    return _paying(kernel, options, True)


def _paying(kernel: Kernel, options: Options, faster: bool) -> Iterator[Implementation]:
    """Those for the target's own architecture that should be faster, or those that should not: a
    measurement may know better."""
    found = (c for c in _candidates(kernel, options) if _pays(c, kernel) == faster)
    return _diagonal(_own(candidate, options) for candidate in found)


def _candidates(kernel: Kernel, options: Options) -> Iterator[Kernel]:
    """Schedules for which the target's own architecture has an emitter, the best first."""
    from nautile.codegen.compile import architecture_of

    if architecture_of(options.target) not in HOPPER:
        return
    if kernel.path == PORTABLE:
        yield kernel
    yield from schedules(kernel, options, replace(_device(options), path=WARPGROUPS), WARPGROUPS)


def _pays(candidate: Kernel, kernel: Kernel) -> bool:
    """Whether a schedule for the target's own architecture is faster than the chosen one, or is
    the chosen one, or the chosen one is of that kind itself."""
    faster = candidate.prediction.seconds < kernel.prediction.seconds
    return candidate is kernel or kernel.path == WARPGROUPS or faster


def _own(kernel: Kernel, options: Options) -> Iterator[Implementation]:
    """One schedule in every variant of its kernels: by warpgroups, or of rows that are too long for
    one block, shared by the blocks of clusters; none elsewhere."""
    with suppress(LoweringError):
        for number, steps in enumerate(_variants(kernel, _tiles(kernel, options))):
            if all(_reaches(step.cuda, kernel) for step in steps):
                yield Implementation(kernel, steps, number)


def _variants(kernel: Kernel, tiles: tuple[TileProgram, ...]) -> Iterator[tuple[Step, ...]]:
    """One launch whose last blocks merge the states, or one launch for each part."""
    if kernel.closing:
        yield from ((Step(tiles, cuda),) for cuda in _closing(kernel, tiles))
        return
    for made in zip(*(_emitted(program, kernel.path) for program in tiles), strict=False):
        yield tuple(Step((t,), cuda) for t, cuda in zip(tiles, made, strict=True))


def _closing(kernel: Kernel, tiles: tuple[TileProgram, ...]) -> Iterable[CudaKernel]:
    """Kernels whose last blocks merge the states, by warpgroups; none elsewhere."""
    from nautile.codegen.closing import closes
    from nautile.codegen.sm90.emit import emit_hopper_variants

    if kernel.path != WARPGROUPS:
        return ()
    return emit_hopper_variants(tiles[0], close=closes(kernel, tiles[1]))


def _reaches(cuda: CudaKernel, kernel: Kernel) -> bool:
    """Whether the kernel's tensor maps are such as the driver encodes, and end with their tensors:
    bounds of places are not always tight."""
    from nautile.bundle.launches import refusal
    from nautile.terms import buffers

    stored = {o.buffer.name: o.buffer for o in kernel.outputs}
    read = {b.name: b for b in buffers(*(o.term for o in kernel.outputs))}
    known = {n: b.size * DTYPES[b.dtype].bytes for n, b in (stored | read).items()}
    return all(not refusal(view, known.get(view.buffer, 0)) for view in cuda.maps)


def _emitted(program: TileProgram, path: str) -> Iterable[CudaKernel]:
    """Kernels of one tile program, the best first. Raises LoweringError for none."""
    from nautile.codegen.emit import emit_cluster_variants
    from nautile.codegen.sm90.emit import emit_hopper_variants

    return emit_hopper_variants(program) if path == WARPGROUPS else emit_cluster_variants(program)


def _diagonal(rows: Iterable[Iterator[T]]) -> Iterator[T]:
    """The firsts of all rows, seconds between them: of row r, element n comes at about r + 2 n. A
    row is not looked at before its turn."""
    waiting, left = iter(rows), []
    for turn in count():
        row = next(waiting, None)
        left += [(turn, row)] if row is not None else []
        if not left and row is None:
            return
        for start, known in list(left):
            if (turn - start) % 2 == 0:
                try:
                    yield next(known)
                except StopIteration:
                    left.remove((start, known))


def _others(built: Built, options: Options) -> Iterator[Implementation]:
    """Portable implementations on other schedules than the one taken, the best first."""
    make = _maker(options, fitting=True)
    device = _device(options)
    for candidate in schedules(built.kernel, options, device, PORTABLE):
        if candidate.parts != built.kernel.parts:
            with suppress(LoweringError):
                made = make(candidate)
                yield Implementation(candidate, (Step(made.tiles, made.cuda),))


def _portable(kernel: Kernel, options: Options) -> Built:
    """The kernel for every architecture; without the tensor cores where no schedule of those that
    could have them fits. Tiles that were chosen for another path are tried last."""
    found = list(schedules(kernel, options, _device(options), PORTABLE))
    found += [kernel] if kernel.path != PORTABLE else []
    try:
        return _first(found, _maker(options, fitting=True))
    except LoweringError:
        return _first(found, _maker(options))


def _maker(options: Options, *, fitting: bool = False) -> Callable[[Kernel], Built]:
    from nautile.codegen.emit import emit

    def make(kernel: Kernel) -> Built:
        tiles = _tiles(kernel, options)
        return Built(kernel, tiles, emit(kernel, tiles, fitting=fitting))

    return make


def _tiles(kernel: Kernel, options: Options) -> tuple[TileProgram, ...]:
    """Lowering under the numerics class: `exact` forbids rounding of operands."""
    from nautile.codegen.lower import lower

    rounding = options.numerics != "exact"
    return tuple(lower(kernel, part, rounding=rounding) for part in kernel.parts)


def _first(
    candidates: Iterable[Kernel], make: Callable[[Kernel], Built], cause: Exception | None = None
) -> Built:
    """`make` of the first candidate for which it succeeds; else the last reason, or `cause`."""
    for candidate in candidates:
        try:
            return make(candidate)
        except (LoweringError, CompileError) as error:
            if isinstance(error, CompileError) and error.code != "gate":
                raise
            cause = error
    raise cause or LoweringError("the kernel has no schedule that lowers")


def schedules(kernel: Kernel, options: Options, device: Device, path: str) -> Iterator[Kernel]:
    """The kernel itself if its tiles are meant for the path, then the same parts under the
    next-best common schedules of that path."""
    from nautile.extract.together import alternatives

    if kernel.path == path:
        yield kernel
    limit = max(_SCHEDULES, options.candidates)
    found = alternatives(kernel, device, limit, numerics=options.numerics, path=path)
    for parts, prediction in found:
        if parts != kernel.parts:
            yield replace(kernel, parts=parts, prediction=prediction)


def _device(options: Options) -> Device:
    from nautile import extract

    return extract.device(options.target)


# ---- compilation ---------------------------------------------------------------------------------


class Compiler:
    """Compilations in threads (NVRTC releases the GIL), each done once."""

    def __init__(self, threads: int | None = None) -> None:
        self._pool = ThreadPoolExecutor(threads or os.cpu_count() or 1)
        self._jobs: dict[tuple[CudaKernel, str], Future[Compiled]] = {}

    def __enter__(self) -> Compiler:
        return self

    def __exit__(self, *why: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def ahead(self, cuda: CudaKernel, wanted: Iterable[str]) -> None:
        """Start compiling what will be asked for."""
        from nautile.codegen.compile import compile_kernel, compiler_version

        if not self._jobs:
            compiler_version()  # load the library once, before threads race to do it
        for name in wanted:
            if (cuda, name) not in self._jobs:
                self._jobs[cuda, name] = self._pool.submit(compile_kernel, cuda, name)

    def compile(self, cuda: CudaKernel, wanted: Iterable[str]) -> Mapping[str, Compiled]:
        """The machine code for each architecture. CompileError for the first that fails."""
        names = tuple(wanted)
        self.ahead(cuda, names)
        return {name: self._jobs[cuda, name].result() for name in names}


def ahead(built: Built, options: Options, compiler: Compiler) -> None:
    """Start compiling what `compile_built` will ask for first."""
    own, _ = _asked(options)
    for way in built.better if own else ():
        for step in way.steps:
            compiler.ahead(step.cuda, own)
    compiler.ahead(built.cuda, _of_portable(built, options))
    for way in built.spare:
        for step in way.steps:
            compiler.ahead(step.cuda, _measured_on(way, options))


def compile_built(built: Built, options: Options, compiler: Compiler) -> Built:
    """`built` with machine code. Where an implementation for the target's own architecture passes
    the gate and nothing is to be measured, the portable one is compiled for the other architectures
    alone."""
    own, _ = _asked(options)
    better = _accepted_ways(built, options, compiler, own) if own and built.better else ()
    able = ((way, _measured_on(way, options)) for way in built.spare)
    spare = [_accepted_way(way, compiler, wanted) for way, wanted in able if wanted]
    built = replace(built, better=better, spare=tuple(w for w in spare if w))
    wanted = _of_portable(built, options)
    made = _compiled(built, options, compiler, wanted) if wanted else built
    return replace(made, spare=tuple(w for w in made.spare if w.kernel.parts != made.kernel.parts))


def _measured_on(way: Implementation, options: Options) -> tuple[str, ...]:
    """What a spare implementation is compiled for: the target, where it will be measured, if that
    is asked for; else every architecture asked for that can run it."""
    from nautile.codegen.compile import architecture_of

    asked, own = architectures(options), architecture_of(options.target)
    able = tuple(a for a in asked if a in HOPPER) if way.architecture[-1] in "af" else asked
    return (own,) if own in able else able


def _of_portable(built: Built, options: Options) -> tuple[str, ...]:
    """What the portable implementation is compiled for."""
    own, others = _asked(options)
    return others if own and built.better and options.candidates == 1 else architectures(options)


def _asked(options: Options) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The architectures asked for that a Hopper kernel runs on, and the others."""
    asked = architectures(options)
    return tuple(a for a in asked if a in HOPPER), tuple(a for a in asked if a not in HOPPER)


def _accepted_ways(
    built: Built, options: Options, compiler: Compiler, wanted: tuple[str, ...]
) -> tuple[Implementation, ...]:
    """The implementations for the target's own architecture that the gate accepts; the next one
    that it does where it accepts none of them."""
    found = (_accepted_way(way, compiler, wanted) for way in built.better)
    accepted = tuple(way for way in found if way)
    if accepted:
        return accepted
    others = islice(ways(built.better[0].kernel, options), len(built.better), _TRIES)
    found = (_accepted_way(way, compiler, wanted) for way in others)
    return tuple(islice((way for way in found if way), 1))


def _accepted_way(
    way: Implementation, compiler: Compiler, wanted: tuple[str, ...]
) -> Implementation | None:
    """With machine code, or None where the gate refuses it."""
    try:
        return _with_code(way, compiler, wanted)
    except CompileError as error:
        if error.code != "gate":
            raise
        return None


def _with_code(way: Implementation, compiler: Compiler, wanted: tuple[str, ...]) -> Implementation:
    steps = (replace(s, compiled=compiler.compile(s.cuda, wanted)) for s in way.steps)
    return replace(way, steps=tuple(steps))


def _compiled(built: Built, options: Options, compiler: Compiler, wanted: tuple[str, ...]) -> Built:
    """`built` with cubins, or other tiles of the same kernel if the gate refuses all its CUDA."""
    try:
        return _accepted(built, compiler, wanted)
    except CompileError as error:
        if error.code != "gate":
            raise
        make = _maker(options)
        found = schedules(built.kernel, options, _device(options), PORTABLE)
        next(found)  # the one that was refused

        def accepted(kernel: Kernel) -> Built:
            other = replace(make(kernel), better=built.better, spare=built.spare)
            return _accepted(other, compiler, wanted)

        return _first(found, accepted, error)


def _accepted(built: Built, compiler: Compiler, wanted: tuple[str, ...]) -> Built:
    """With cubins: its CUDA or other CUDA for the same tiles, the first that the gate accepts for
    every architecture; the first refusal is raised when it accepts none."""
    from nautile.codegen.emit import alternatives

    refusal: CompileError | None = None
    for cuda in chain([built.cuda], alternatives(built.kernel, built.tiles)):
        try:
            return replace(built, cuda=cuda, compiled=compiler.compile(cuda, wanted))
        except CompileError as error:
            if error.code != "gate":
                raise
            refusal = refusal or error
    assert refusal is not None
    raise refusal
