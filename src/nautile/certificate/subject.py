"""The two sides of a certificate: what the source means, and what the plan computes.

Where the plan stores a definition of the source under its own name, both sides are **cut** there:
whoever reads it is given the same drawn values on both sides, and whoever makes it is compared with
the definition. So a large program is certified kernel by kernel, at the cost of single rows. Other
intermediates are the plan's own and are evaluated where they are read, rounded to their types.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nautile.certificate.drawing import Array, Drawn, Moved
from nautile.certificate.operands import rounded_operands
from nautile.certificate.recipes import CASES, float_kind, is_positive, recipes
from nautile.dtypes import is_float
from nautile.extract.kernel import Plan
from nautile.inline import Definitions
from nautile.oracle import Answers, Fetch, lazy
from nautile.oracle.scope import BUDGET
from nautile.terms import (
    Axis,
    Buffer,
    Cast,
    Definition,
    Online,
    Output,
    Program,
    Running,
    Term,
    buffers,
    reduce_,
    transform,
    walk,
)
from nautile.types import type_of

__all__ = ["Side", "Subject", "Target", "stored_term", "subject_of"]

_BINDING = ("ordinary", "edges", "tiny", "positive")
_WIDEN = 1 << 20
"""Elements of an intermediate that are evaluated together, where that costs little more."""


@dataclass(frozen=True, slots=True)
class Side:
    """How loads of one side are answered: the definitions that are evaluated on demand, and the
    stored types of what is drawn."""

    definitions: Definitions
    stored: Mapping[str, str] = field(default_factory=dict)

    def fetch(
        self,
        drawn: Drawn,
        precision: str,
        *,
        casts: bool = True,
        budget: int = BUDGET,
    ) -> Fetch:
        """The side's fetch in a precision; see `oracle.lazy` for the other arguments. Asked for
        again with the same tensors, it is the same fetch, which knows what it was asked before."""
        key = (id(self), precision, casts or not self.rounds, budget)
        if key not in drawn.fetches:
            drawn.fetches[key] = self._fetch(drawn, precision, casts=casts, budget=budget)
        return drawn.fetches[key]

    @property
    def rounds(self) -> bool:
        """Whether a definition has casts."""
        terms = (t for _, term in self.definitions.values() for t in walk(term))
        return any(isinstance(t, Cast) for t in terms)

    def _fetch(self, drawn: Drawn, precision: str, *, casts: bool, budget: int) -> Fetch:

        def read(buffer: Buffer, index: tuple[Array, ...]) -> Array:
            dtype = self.stored.get(buffer.name, buffer.dtype)
            return drawn(Buffer(buffer.name, buffer.shape, dtype), index)

        return lazy(
            self.definitions,
            read,
            precision=precision,
            casts=casts,
            widen=_WIDEN,
            budget=budget,
            answers=drawn.answers,
        )


@dataclass(frozen=True, slots=True)
class Target:
    """One tensor that a kernel stores: the source's term for it (over `axes`; the plan's own term
    where the source has no name for it, online sums as the sums that they come to), and the plan's
    output."""

    kernel: str
    axes: tuple[Axis, ...]
    term: Term
    output: Output
    named: bool


@dataclass(frozen=True, slots=True)
class Subject:
    """A program and its plan, ready for comparison. `cut` names the shared intermediates; `chosen`
    is the plan as it is stored, `meant` the same without the roundings of operands (those of the
    tensors `operands`, which readers would round anyway)."""

    program: Program
    plan: Plan
    seed: int
    cut: frozenset[str]
    source: Side
    chosen: Side
    meant: Side
    operands: frozenset[str]
    targets: tuple[Target, ...]
    numerics: str = "real"
    known: dict[str, dict[str, str]] = field(default_factory=dict, compare=False)
    tensors: dict[str, Drawn] = field(default_factory=dict, compare=False, init=False)
    answers: Answers = field(default_factory=Answers, compare=False, init=False)

    @property
    def cases(self) -> tuple[str, ...]:
        """How inputs are drawn in turn. Rules of the class `fast` assume that nothing overflows."""
        return tuple(c for c in CASES if self.numerics != "fast" or c not in ("large", "edges"))

    def binds(self, case: str) -> bool:
        """Whether NaN and infinities of the source must be the plan's too. Exact zeros, ties and
        huge numbers make divisions by zero and overflows, which are no real numbers: beyond the
        class `exact` a plan may have another value there."""
        return self.numerics == "exact" or case in _BINDING

    def kinds(self, case: str) -> dict[str, str]:
        """How inputs and shared intermediates are drawn in a case (one of recipes.CASES)."""
        if case not in self.known:
            self.known[case] = self._kinds(case)
        return self.known[case]

    def _kinds(self, case: str) -> dict[str, str]:
        kinds = recipes(self.program, case)
        for d in self.program.definitions:
            if d.name in self.cut:
                kinds[d.name] = float_kind(case, d.buffer)
                if is_positive(d.body, self.program) or case == "positive":
                    kinds[d.name] = "uniform:0.5:1.5"
        return kinds

    def drawn(self, case: str) -> Drawn:
        """The tensors of a case, for both sides."""
        if case not in self.tensors:
            self.tensors[case] = Drawn(self.seed, self.kinds(case), self.answers)
        return self.tensors[case]

    def again(self, case: str) -> Drawn:
        """The same tensors, without what was computed of them."""
        return Drawn(self.seed, self.kinds(case), kept=self.drawn(case).kept)

    def moved(self, case: str, number: int, by: float) -> Drawn:
        """The tensors of a case, moved by up to the share `by`."""
        return Moved(self.seed, self.kinds(case), number=number, by=by)

    def composed(self) -> Subject:
        """The same without cuts: everything follows from the program's inputs."""
        return subject_of(self.program, self.plan, self.seed, self.numerics, cuts=False)


def subject_of(
    program: Program, plan: Plan, seed: int, numerics: str = "real", *, cuts: bool = True
) -> Subject:
    """Set up both sides. What the plan lacks is left to the structure check."""
    made = {o.buffer.name: o for k in plan.kernels for o in k.outputs}
    cut = _shared(program, plan, made) if cuts else frozenset()
    own = {d.name: (d.axes, d.body) for d in program.definitions if d.name not in cut}
    named = {o.buffer.name: (o.axes, o.term) for o in program.outputs}
    named |= {d.name: (d.axes, d.body) for d in program.definitions}
    operands = rounded_operands(plan)
    held = {d.name: _held(d) for d in program.definitions if d.name in cut}
    chosen = _stored_side(made, held, frozenset())
    meant = _stored_side(made, held, operands) if operands else chosen
    targets = tuple(_target(k.name, o, named) for k in plan.kernels for o in k.outputs)
    source = Side(own, held)
    return Subject(program, plan, seed, cut, source, chosen, meant, operands, targets, numerics)


def _held(definition: Definition) -> str:
    """The type of a definition's values: that of its outermost cast, else what it carries."""
    body = definition.body
    return body.dtype if isinstance(body, Cast) and is_float(body.dtype) else definition.dtype


def _stored_side(
    made: Mapping[str, Output], held: Mapping[str, str], exact: frozenset[str]
) -> Side:
    """The plan's side, every stored tensor rounded to its type except those in `exact`. `held`
    gives the types of shared values, which a wider store leaves as they are."""
    terms = {
        n: (o.axes, o.term if n in exact else stored_term(o))
        for n, o in made.items()
        if n not in held
    }
    kept = {
        n: h if n in exact or made[n].buffer.dtype in ("f32", "f64") else made[n].buffer.dtype
        for n, h in held.items()
    }
    return Side(terms, kept)


def _target(kernel: str, output: Output, known: Definitions) -> Target:
    name = output.buffer.name
    if name in known and tuple(a.extent for a in known[name][0]) == output.buffer.shape:
        return Target(kernel, known[name][0], known[name][1], output, True)
    return Target(kernel, output.axes, _settled(output.term), output, False)


def _settled(root: Term) -> Term:
    """What an online sum comes to: the sum with final values for running ones. It rounds as
    products of tensor cores in a pass of their own do, however long the blocks of a stream are."""

    def step(term: Term) -> Term:
        match term:
            case Running(reduction):
                return reduction
            case Online(axis, _, body):
                return reduce_("sum", axis, body)
        return term

    return transform(root, step)


def stored_term(output: Output) -> Term:
    """What a reader of a stored tensor gets: nothing is rounded that is stored as it is carried."""
    carried = type_of(output.term)
    exact = output.buffer.dtype == carried or carried == "bool"
    return output.term if exact else Cast(output.buffer.dtype, output.term)


def _shared(program: Program, plan: Plan, made: Mapping[str, Output]) -> frozenset[str]:
    """Definitions that the plan stores as they are and reads again."""
    read = {b.name for k in plan.kernels for b in buffers(*(o.term for o in k.outputs))}
    found = set()
    for d in program.definitions:
        output = made.get(d.name)
        if output and d.name in read and d.dtype in ("f32", "f64") and output.axes == d.axes:
            found.add(d.name)
    return frozenset(found)
