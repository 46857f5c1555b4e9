"""From the chosen terms to the kernels: what is stored, in which type, in how many parts.

Each stage of finishing (`extract.finish.course`) that changes something is a step. The first is
checked term by term: written into one another, the stored terms are the chosen ones. The others
round, or add up in another order: they are judged in numbers, as a certificate judges.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from nautile.certificate.subject import stored_term
from nautile.extract.body import analyse
from nautile.extract.contractions import NARROW, Contraction
from nautile.extract.finish import course
from nautile.stages import Optimization
from nautile.terms import Axis, Cast, Load, Output, Program, Reduce, Term, reduce_, transform

from .goal import Goal
from .model import Gap, Step
from .numbers import Numbers, Tried
from .parts import over, replaced, written_in
from .shown import Names, brief

__all__ = ["Finish", "finishing"]

_NARROW = NARROW | {"tf32"}


@dataclass(frozen=True, slots=True)
class Finish:
    """Steps after the laws, and gaps between them."""

    steps: tuple[Step, ...]
    gaps: tuple[Gap, ...]


def finishing(
    result: Optimization, goals: Sequence[Goal], numbers: Sequence[Numbers], names: Names
) -> Finish:
    """The steps from the chosen whole terms to the outputs of the plan's kernels."""
    assert result.plan is not None
    assert result.plan.choice is not None
    pool, taken = result.plan.choice.pool, result.plan.choice.taken
    stages = dict(course(pool.chosen(taken), result.work, numerics=result.options.numerics))
    kernels = tuple(o for k in result.plan.kernels for o in k.outputs)
    judge = _Judge(result, goals, numbers, names)
    whole = tuple(
        Output(o.buffer, o.axes, t) for g in goals for o, t in zip(g.outputs, g.wholes, strict=True)
    )
    steps = list(judge.steps(whole, stages))
    last = stages["split"]
    gaps = []
    if _known(last) != _known(kernels):
        gaps.append(
            Gap(None, "the kernels' terms are not those that finishing makes of the choice")
        )
    steps += judge.operands(kernels)
    return Finish(tuple(steps), tuple(gaps))


def _known(outputs: Sequence[Output]) -> set[Output]:
    return set(outputs)


@dataclass(frozen=True, slots=True)
class _Judge:
    """Makes steps and judges them."""

    result: Optimization
    goals: Sequence[Goal]
    numbers: Sequence[Numbers]
    names: Names

    @property
    def program(self) -> Program:
        return self.result.program

    def steps(
        self, whole: tuple[Output, ...], stages: Mapping[str, tuple[Output, ...]]
    ) -> Iterator[Step]:
        """The stages that change something."""
        stored = stages["store"]
        thin = tuple(Output(o.buffer, o.axes, _unwidened(o.term)) for o in stored)
        if _known(thin) != _known(whole):
            yield self._stored(whole, thin)
        if _known(stored) != _known(thin):
            yield self._rounded("widen", thin, stored, "an exact copy in f32: no value changes")
        narrow, split = stages["narrow"], stages["split"]
        if _known(narrow) != _known(stored):
            yield self._rounded("narrow", stored, narrow, _narrower(stored, narrow))
        if _known(split) != _known(narrow):
            yield self._rounded("split", narrow, split, self._chunks())

    def operands(self, kernels: tuple[Output, ...]) -> Iterator[Step]:
        """What tensor cores round on the way into a product."""
        numerics = self.result.options.numerics
        assert self.result.plan is not None
        told: list[str] = []
        new: dict[Output, Output] = {o: o for o in kernels}
        for kernel in self.result.plan.kernels:
            for part in kernel.parts:
                for c in analyse(part.outputs, numerics=numerics).contractions.values():
                    for side in _rounded_sides(c):
                        told.append(f"{brief(side, self.names, 30)} to {c.operand}")
                        for o in part.outputs:
                            root = replaced(c.root, side, Cast(c.operand, side))
                            term = replaced(new[o].term, c.root, root)
                            new[o] = Output(o.buffer, o.axes, term)
        after = tuple(new.values())
        if numerics != "exact" and told:
            note = "rounded on the way into tensor cores: " + "; ".join(dict.fromkeys(told))
            yield self._rounded("operands", kernels, after, note)

    def _stored(self, whole: tuple[Output, ...], stored: tuple[Output, ...]) -> Step:
        """Written into one another, the stored terms must be the chosen ones."""
        made = self._wholes(stored)
        same = all(
            _plain(a) is _plain(b)
            for g, own in zip(self.goals, made, strict=True)
            for a, b in zip(g.wholes, own, strict=True)
        )
        tensors = [o.buffer.name for o in stored]
        note = f"kept in memory: {', '.join(dict.fromkeys(tensors))}"
        tried = _together(n.tried(t) for n, t in zip(self.numbers, made, strict=True))
        check = "equal" if same and not tried.wrong else "failed"
        return self._step("store", whole, stored, tried, check, note)

    def _rounded(
        self, rule: str, before: tuple[Output, ...], after: tuple[Output, ...], note: str
    ) -> Step:
        tried = _together(
            n.tried([t.term for t in own], rounds=True, between=inside)
            for n, (own, inside) in zip(self.numbers, self._read(after), strict=True)
        )
        check = "failed" if tried.wrong else "numbers"
        said = "; ".join(filter(None, [note, tried.wrong]))
        return self._step(rule, before, after, tried, check, said)

    def _step(
        self,
        rule: str,
        before: tuple[Output, ...],
        after: tuple[Output, ...],
        tried: Tried,
        check: str,
        note: str,
    ) -> Step:
        return Step(
            rule, self.program.name, before, after, check=check, max_error=tried.error,
            rounding=tried.naive, samples=tried.samples, note=note, names=self.names,
        )  # fmt: skip

    def _wholes(self, stored: Sequence[Output]) -> list[tuple[Term, ...]]:
        """For each region its outputs, what is stored between written in."""
        found = []
        for own, _ in self._read(stored):
            names = {o.buffer.name for o in own} | self._between(stored)
            inside = {o.buffer.name: o.term for o in stored if o.buffer.name in names}
            found.append(tuple(written_in(o.term, inside) for o in own))
        return found

    def _read(
        self, stored: Sequence[Output]
    ) -> Iterator[tuple[tuple[Output, ...], dict[str, tuple[tuple[Axis, ...], Term]]]]:
        """For each region its outputs, and what they may read beside its inputs, as it is
        stored."""
        made = {o.buffer.name: o for o in stored}
        for goal in self.goals:
            own = tuple(made[o.buffer.name] for o in goal.outputs)
            inner = self._between(stored) | {o.buffer.name for o in own}
            yield own, {n: (made[n].axes, stored_term(made[n])) for n in inner}

    def _between(self, stored: Sequence[Output]) -> set[str]:
        """The tensors that are no region's output."""
        ends = {o.buffer.name for g in self.goals for o in g.outputs}
        return {o.buffer.name for o in stored} - ends

    def _chunks(self) -> str:
        assert self.result.plan is not None
        splits = [(a, n) for k in self.result.plan.kernels for a, n in k.split.items()]
        return "; ".join(f"{a.name} in {n} chunks" for a, n in dict.fromkeys(splits))


def _together(tried: Iterable[Tried]) -> Tried:
    """The worst of several regions."""
    found = list(tried)
    return Tried(
        max((t.error for t in found), default=0.0),
        max((t.naive for t in found), default=0.0),
        sum(t.samples for t in found),
        "; ".join(t.wrong for t in found if t.wrong),
    )


def _plain(term: Term) -> Term:
    """Canonical binders, no widening: what two spellings of one term have in common."""

    def step(part: Term) -> Term:
        return reduce_(part.monoid, part.axis, part.body) if isinstance(part, Reduce) else part

    return transform(_unwidened(term), step)


def _unwidened(root: Term) -> Term:
    """Without casts to f32 of what is held in a narrower type: they change no value."""

    def step(term: Term) -> Term:
        match term:
            case Cast("f32", Load(buffer)) if buffer.dtype in _NARROW:
                return term.argument
            case Cast("f32", Cast(dtype)) if dtype in _NARROW:
                return term.argument
        return term

    return over(root, step)


def _narrower(before: Sequence[Output], after: Sequence[Output]) -> str:
    old = {o.buffer.name: o.buffer.dtype for o in before}
    found = {o.buffer.name: o.buffer.dtype for o in after}
    return "; ".join(f"{n} as {d}" for n, d in found.items() if old.get(n, d) != d)


def _rounded_sides(c: Contraction) -> Iterator[Term]:
    """The single parts of a product that are rounded to its operand type."""
    if c.operand not in _NARROW:
        return
    for part in (parts[0] for parts, _ in c.sides if len(parts) == 1):
        held = part.buffer.dtype if isinstance(part, Load) else "f32"
        held = part.dtype if isinstance(part, Cast) else held
        if held != c.operand:
            yield part
