"""Every program of the corpus with its reductions split, wanted or not: certified, and emitted."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from nautile import extract, lang, rules
from nautile.certificate import certify
from nautile.certificate.model import Check
from nautile.codegen.emit import emit
from nautile.codegen.lower import lower
from nautile.egraph import saturate
from nautile.extract.kernel import Kernel, Plan
from nautile.extract.roofline import price
from nautile.extract.split import Split, launches
from nautile.terms import Axis, Online, Program, Reduce, walk

from .build import corpus

ENTRIES = {name: (text, sizes) for name, text, sizes in corpus()}
pytestmark = pytest.mark.slow


def chosen(text: str, sizes: dict[str, int]) -> tuple[Program, Plan]:
    (program,) = lang.parse(text, dims=sizes)
    found = rules.load(None, classes=("exact", "real", "facts"))
    pairs = [(r, saturate(r.outputs, found)) for r in extract.cut(program)]
    return program, extract.choose(pairs, program, extract.device("h200"), runners=0)


def reduced(kernel: Kernel) -> list[Axis]:
    terms = walk(*(o.term for o in kernel.outputs))
    axes = {t.axis for t in terms if isinstance(t, (Reduce, Online))}
    return sorted(a for a in axes if a.extent > 1)


def divided(plan: Plan, place: int, split: Split) -> Plan | None:
    """The plan with one kernel in launches, each on its best schedule; None where one has none."""
    kernel, count = plan.kernels[place], itertools.count()
    parts = launches(kernel.outputs, split, lambda: f"state{next(count)}")
    kernels = []
    for number, outputs in enumerate(parts):
        ranked = price(outputs, extract.device("h200")).ranked(1)
        if not ranked:
            return None
        ((part, prediction),) = ranked
        kernels.append(Kernel(f"{kernel.name}_{number}", (part,), prediction))
    return replace(plan, kernels=(*plan.kernels[:place], *kernels, *plan.kernels[place + 1 :]))


def _wrong(check: Check) -> bool:
    """Not by roundings alone: sums of one or two products have no average rounding to go by."""
    return "tile program" not in check.name or check.max_relative_error > 0.02


@pytest.mark.parametrize("name", ENTRIES)
def test_a_split_that_nobody_asked_for_is_certified(name: str) -> None:
    program, plan = chosen(*ENTRIES[name])
    pick = random.Random(name)
    places = [(k, axis) for k, kernel in enumerate(plan.kernels) for axis in reduced(kernel)]
    for place, axis in pick.sample(places, min(2, len(places))):
        wanted = divided(plan, place, Split(axis, pick.randint(1, axis.extent - 1)))
        if wanted is None:
            continue
        tiles = {k.name: tuple(lower(k, p) for p in k.parts) for k in wanted.kernels}
        made = certify(program, wanted, tiles, samples=64)
        assert [(c.name, c.detail) for c in made.checks if not c.passed and _wrong(c)] == []
        for kernel in wanted.kernels:
            assert emit(kernel, tiles[kernel.name]).text
