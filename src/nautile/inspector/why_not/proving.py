"""Whether a program that was forced could run at all: lowered, compiled where that is asked for,
and certified."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from nautile.errors import CompileError, LoweringError
from nautile.extract.candidates import NOISE

from .forcing import Forced
from .inquiry import Inquiry

if TYPE_CHECKING:
    from nautile.certificate import Certificate
    from nautile.stages import Optimization

__all__ = ["Fault", "fault_of"]


_SAMPLES = 128  # elements of a tensor that are compared


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a program: a code of answers.py, and the message."""

    code: str
    text: str


def fault_of(inquiry: Inquiry, forced: Forced) -> Fault | None:
    """The first fault of the forced program; None where it would do."""
    from nautile import building
    from nautile.stages import Optimization

    result = inquiry.result
    plan = replace(
        inquiry.plan,
        kernels=forced.kernels,
        intermediates=forced.intermediates,
        seconds=forced.seconds,
    )
    trial = Optimization(result.program, result.options, result.regions, result.snapshots)
    trial.apart, trial.accepted, trial.plan = result.apart, result.accepted, plan
    try:
        trial.built = tuple(building.build(k, result.options) for k in forced.kernels)
        if result.options.compile:
            _compile(trial)
    except LoweringError as error:
        return Fault("lowering", error.message)
    except CompileError as error:
        return Fault("gate" if error.code == "gate" else "compile", error.message)
    kernels = tuple(b.best.kernel for b in trial.built)
    trial.plan = replace(plan, kernels=kernels)
    certificate = _certified(trial, blocks=forced.slower_by <= NOISE)
    bad = certificate.failures
    if not bad:
        return None
    return Fault("certificate", "; ".join(f"{c.name}: {c.detail}" for c in bad[:3]))


def _certified(trial: Optimization, *, blocks: bool) -> Certificate:
    """The certificate of a trial, on fewer samples than that of a result: without blocks of its
    tile programs (which take longest) where the program is dearer anyway."""
    from threadpoolctl import threadpool_limits

    from nautile.certificate import certify

    assert trial.plan is not None
    o = trial.options
    tiles = {b.kernel.name: b.best.tiles for b in trial.built} if blocks else {}
    with threadpool_limits(limits=1, user_api="blas"):
        return certify(
            trial.work, trial.plan, tiles, seed=o.seed, samples=_SAMPLES, numerics=o.numerics
        )


def _compile(trial: Optimization) -> None:
    from nautile import building

    with building.Compiler() as compiler:
        trial.built = tuple(
            building.compile_built(built, trial.options, compiler) for built in trial.built
        )
