"""The certificate of a plan, and the reference that a bundle carries for the GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nautile.certificate.blocks import check_blocks, check_operands, coarsest, sum_floor
from nautile.certificate.meaning import check_meaning, look_up_work, positions_for
from nautile.certificate.model import Certificate, Check
from nautile.certificate.subject import Subject, Target, subject_of
from nautile.codegen.tile import TileProgram
from nautile.extract.kernel import Kernel, Plan
from nautile.judge import to_json
from nautile.oracle.work import READ
from nautile.terms import Output, Program, buffers

__all__ = ["certify", "expected"]

_GPU_CASES = ("ordinary", "zeros")
_BUDGET = 1 << 25
_COSTLY, _IMPOSSIBLE = 1 << 30, 1 << 34
"""Products of one look-up: above the first one case must do, above the second none is evaluated."""


def certify(
    program: Program,
    plan: Plan,
    tile_programs: Mapping[str, Sequence[TileProgram]] | None = None,
    *,
    seed: int = 0,
    samples: int = 1024,
    numerics: str = "real",
    others: Sequence[tuple[Kernel, Sequence[TileProgram]]] = (),
) -> Certificate:
    """Check a plan (and the tile programs of its kernels, by kernel name) against its source, and
    `others`: the plan's kernels on other schedules, with their tile programs.

    `samples` bounds the elements of one tensor that are compared on ordinary inputs; adversarial
    ones take an eighth of it each. Under the numerics class `fast` no input is large: its
    rules assume that nothing overflows. A failed check is part of the result, never raised."""
    tile_programs = _by_step(plan.kernels, tile_programs or {})
    others = [step for k, programs in others for step in _steps(k, programs)]
    plan = replace(plan, kernels=tuple(s for k in plan.kernels for s in k.steps))
    structure = _structure(program, plan)
    if not structure.passed:
        return Certificate(program.name, (structure,), seed)
    subject = subject_of(program, plan, seed, numerics)
    checks = [structure, *check_meaning(subject, samples=samples)]
    checks += check_blocks(subject, tile_programs, others)
    rounding = check_operands(subject, tile_programs)
    checks += [rounding] if rounding else []
    return Certificate(program.name, tuple(checks), seed)


def _by_step(
    kernels: Sequence[Kernel], tiles: Mapping[str, Sequence[TileProgram]]
) -> dict[str, Sequence[TileProgram]]:
    """The tile programs of what runs one after the other, by the names of `Kernel.steps`."""
    made = (step for k in kernels if k.name in tiles for step in _steps(k, tiles[k.name]))
    return {step.name: programs for step, programs in made}


def _steps(
    kernel: Kernel, programs: Sequence[TileProgram]
) -> list[tuple[Kernel, Sequence[TileProgram]]]:
    if not kernel.closing or len(programs) != len(kernel.parts):
        return [(kernel, programs)]
    return [(step, (p,)) for step, p in zip(kernel.steps, programs, strict=True)]


def _structure(program: Program, plan: Plan) -> Check:
    """Every output is stored once, in its shape and type, and nothing is read before it is made."""
    ready = {b.name for b in program.inputs}
    wrong: list[str] = []
    for kernel in plan.kernels:
        read = {b.name for b in buffers(*(o.term for o in kernel.outputs))}
        wrong += [f"{kernel.name} reads {n} before it is made" for n in sorted(read - ready)]
        wrong += [
            f"{o.buffer.name} depends on {a.name}, which it has no axis for"
            for o in kernel.outputs
            for a in sorted(o.term.free - set(o.axes))
        ]
        made = [o.buffer.name for o in kernel.outputs]
        wrong += [f"{kernel.name} makes {n} again" for n in made if n in ready]
        ready |= set(made)
    stored = {o.buffer.name: o for k in plan.kernels for o in k.outputs}
    wrong += [said for o in program.outputs if (said := _unlike(o, stored.get(o.buffer.name)))]
    return Check("structure", not wrong, samples=0, detail="; ".join(wrong))


def _unlike(wanted: Output, made: Output | None) -> str:
    name = wanted.buffer.name
    if made is None:
        return f"output {name} is not made"
    if made.buffer != wanted.buffer:
        return f"output {name} is {made.buffer}, expected {wanted.buffer}"
    if tuple(a.extent for a in made.axes) != made.buffer.shape:
        return f"output {name} is stored over other extents than its shape"
    return ""


def expected(program: Program, plan: Plan, *, seed: int = 0, samples: int = 512) -> dict[str, Any]:
    """What a GPU must give, as JSON: for each case how inputs are drawn (`kinds`, see samples.py),
    and for each output a grid of positions (one list an axis), over it in row-major order the
    float64 `reference` and the `naive` values, those that are furthest off of several evaluations,
    and the extra `floor` that the judge is given. Outputs that would take minutes to look at (2**34
    products, 2**26 other elements, or 2**27 elements of inputs) are left out."""
    subject = subject_of(program, plan, seed, cuts=False)
    targets = [t for t in subject.targets if _is_output(program, t)]
    work = {t: look_up_work(subject, t, _GPU_CASES[0], samples, read=READ) for t in targets}
    looked_at = [t for t, needed in work.items() if needed <= _IMPOSSIBLE]
    costly = any(work[t] > _COSTLY for t in looked_at)
    wanted = _GPU_CASES[:1] if costly else _GPU_CASES
    cases = [_expected_case(subject, looked_at, case, samples) for case in wanted]
    return {"version": 1, "seed": seed, "cases": cases}


def _is_output(program: Program, target: Target) -> bool:
    return target.output.buffer.name in {o.buffer.name for o in program.outputs}


def _expected_case(
    subject: Subject, targets: Sequence[Target], case: str, samples: int
) -> dict[str, Any]:
    drawn = subject.drawn(case)
    outputs = []
    for target in targets:
        grid = positions_for(subject, target, case, samples)
        reference, naive = coarsest(subject, target, grid, case, _BUDGET)
        outputs.append(
            {
                "buffer": target.output.buffer.name,
                "dtype": target.output.buffer.dtype,
                "positions": [np.asarray(p).tolist() for p in grid.values()],
                "reference": to_json(reference),
                "naive": to_json(naive),
                "floor": sum_floor(target),
            }
        )
    return {"case": case, "kinds": dict(drawn.kinds), "outputs": outputs}
