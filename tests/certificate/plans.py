"""Plans by hand: the source's own terms in kernels that somebody might have chosen, and mutants."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nautile import lang
from nautile.extract.kernel import Kernel, Part, Plan, Prediction
from nautile.inline import inline
from nautile.terms import (
    Axis,
    Before,
    Buffer,
    Const,
    Index,
    Load,
    Online,
    Output,
    Program,
    Reduce,
    Running,
    Term,
    apply,
    reduce_,
    transform,
)

FREE = Prediction(0.0, "", 0, 0, 0, 0, 0, 0, 0, 0)


def program_of(text: str, **sizes: int) -> Program:
    (program,) = lang.parse(text, dims=sizes or None)
    return program


def plan_of(*outputs: Output, streams: tuple[Axis, ...] = ()) -> Plan:
    """One kernel an output, tiles of 16."""
    kernels = tuple(
        Kernel(
            o.buffer.name,
            (Part((o,), {a: min(a.extent, 16) for a in (*o.axes, *streams)}, streams),),
            FREE,
        )
        for o in outputs
    )
    return Plan(kernels, (), 0.0, 0.0, 0.0)


def fused(program: Program, change: Callable[[Term], Term] = lambda t: t) -> Plan:
    """Every output in one kernel, all definitions written out, `change` applied to its terms."""
    known = {d.name: (d.axes, d.body) for d in program.definitions}
    outputs = [Output(o.buffer, o.axes, change(inline(o.term, known))) for o in program.outputs]
    return plan_of(*outputs)


def stored(program: Program, names: tuple[str, ...], dtypes: Mapping[str, str] = {}) -> Plan:
    """The named definitions in kernels of their own, in float32 unless `dtypes` says otherwise."""
    known = {d.name: (d.axes, d.body) for d in program.definitions if d.name not in names}
    own = [d for d in program.definitions if d.name in names]
    made = [
        Output(
            Buffer(d.name, d.buffer.shape, dtypes.get(d.name, "f32")), d.axes, inline(d.body, known)
        )
        for d in own
    ]
    last = [Output(o.buffer, o.axes, inline(o.term, known)) for o in program.outputs]
    return plan_of(*made, *last)


def online(term: Term, sign: float = 1.0, *, repaired: bool = True) -> Term:
    """Every sum[s](exp(x - max x) * w) in one pass, as the dependent-reduction rules derive it."""

    def step(part: Term) -> Term:
        carrier = _carrier(part)
        if carrier is None:
            return part
        assert isinstance(part, Reduce)
        change = apply("mul", Const(sign), apply("sub", Before(carrier), Running(carrier)))
        start = apply("eq", Before(carrier), Const(float("-inf")))
        repair = apply("where", start, Const(0.0), apply("exp", change))
        body = transform(part.body, lambda t: Running(carrier) if t == carrier else t)
        return Online(part.axis, repair if repaired else Const(1.0), body)

    return transform(term, step)


def _carrier(term: Term) -> Reduce | None:
    if not (isinstance(term, Reduce) and term.monoid == "sum"):
        return None
    stack: list[Term] = [term.body]
    while stack:
        part = stack.pop()
        if isinstance(part, Reduce) and part.monoid == "max":
            return part if part.axis == term.axis else None
        stack.extend(getattr(part, "arguments", ()))
    return None


def replaced(old: Callable[[Term], bool], new: Callable[[Term], Term]) -> Callable[[Term], Term]:
    """The change that rewrites every subterm for which `old` holds."""
    return lambda root: transform(root, lambda t: new(t) if old(t) else t)


def is_apply(operation: str) -> Callable[[Term], bool]:
    return lambda t: getattr(t, "operation", None) == operation


__all__ = ["Index", "Load", "fused", "is_apply", "online", "plan_of", "program_of", "reduce_"]
