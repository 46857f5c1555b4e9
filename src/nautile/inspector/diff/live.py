"""A run as it is compared, from an optimization at hand; and runs made for a comparison.

Names are those of the first program: where two programs are equal up to renaming, the second one's
tensors and axes take the names of the first one's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from nautile import lang
from nautile.inline import inline
from nautile.report import kernel_dict
from nautile.terms import (
    Axis,
    Buffer,
    Index,
    Load,
    Online,
    Output,
    Program,
    Reduce,
    Running,
    Term,
    children,
    digest,
    rebuild,
    reduce_,
    transform,
    walk,
)

from .sides import FIGURES, Kernel, Side, Stored

if TYPE_CHECKING:
    from nautile.extract.device import Device
    from nautile.extract.kernel import Kernel as Chosen
    from nautile.options import Options
    from nautile.rules.law import Rule
    from nautile.stages import Optimization
    from nautile.worker import Worker

__all__ = ["Setting", "chosen", "laws_of", "run", "saturated", "shape_of", "side_of"]

GROWTH = 20  # e-nodes for each term of a region, as programs are optimized
_TERM = 400  # operations of a term that are printed


@dataclass(frozen=True, slots=True)
class Setting:
    """How a program is run for a comparison: options, rules that are left out, a device profile in
    place of the target's own, and the numerics class of the rules, where it is not that of the
    options (which says what may be rounded)."""

    options: Options
    without: frozenset[str] = frozenset()
    device: Device | None = None
    law_class: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """What of it a person chose."""
        o = self.options
        found: dict[str, Any] = {"target": o.target, "numerics": o.numerics}
        found |= {"rules": list(o.rules)} if o.rules else {}
        found |= {"without": sorted(self.without)} if self.without else {}
        return found


def laws_of(setting: Setting) -> tuple[Rule, ...]:
    """The rules of a setting. Raises InputError for a rule to leave out that there is not."""
    from nautile.options import NUMERICS
    from nautile.rules.admission import admit

    o = setting.options
    classes = NUMERICS[setting.law_class or o.numerics]
    return tuple(
        r for r in admit(o.packs, o.rules, o.accept, classes).rules if r.name not in setting.without
    )


def run(program: Program, setting: Setting, worker: Worker) -> Optimization:
    """The program saturated and chosen under a setting. Raises errors of nautile.errors."""
    result = saturated(program, setting, worker)
    chosen(result, setting)
    return result


def saturated(program: Program, setting: Setting, worker: Worker) -> Optimization:
    """The program's regions, saturated with the rules of a setting."""
    from nautile.egraph import Limits
    from nautile.extract.apart import apart
    from nautile.extract.regions import cut
    from nautile.stages import Optimization

    o = setting.options
    result = Optimization(program, o)
    laws = laws_of(setting)
    result.apart = apart(program)
    result.regions = cut(result.work)
    limits = Limits(rows=o.rows, growth=GROWTH, seconds=o.seconds, memory_bytes=o.memory)
    result.snapshots = tuple(
        worker.saturate(region.outputs, laws, limits=limits) for region in result.regions
    )
    return result


def chosen(result: Optimization, setting: Setting) -> None:
    """Choose for the device of a setting."""
    from nautile import extract

    o = setting.options
    target = setting.device or extract.device(o.target)
    pairs = list(zip(result.regions, result.snapshots, strict=True))
    result.plan = extract.choose(pairs, result.work, target, numerics=o.numerics)
    result.baseline = extract.baseline(result.program, target)


def side_of(
    result: Optimization,
    label: str,
    *,
    like: Program | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Side:
    """The run of an optimization whose choice was made. `like` is the program whose names it takes,
    where the two are equal up to renaming."""
    assert result.plan is not None
    names = _names(result.program, like) if like is not None else _Names({}, {})
    values = _values(result)
    kernels = tuple(_kernel(k, names, values) for k in result.plan.kernels)
    o = result.options
    given = settings if settings is not None else Setting(o).as_dict()
    certificate = result.certificate
    return Side(
        label,
        "live",
        result.program.name,
        result.key,
        {**given, "sizes": dict(result.program.sizes)},
        kernels,
        results=tuple(names.tensor(b.buffer.name) for b in result.program.outputs),
        seconds=result.plan.seconds,
        baseline=dict(result.baseline),
        verdict=certificate.verdict if certificate is not None else None,
    )


# ---- names ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Names:
    """Tensors and axis families of one program under the names of another."""

    tensors: Mapping[str, str]
    families: Mapping[str, str]

    def tensor(self, name: str) -> str:
        """The tensor's name; an intermediate's follows the result that it is named after."""
        if name in self.tensors:
            return self.tensors[name]
        stem = max((n for n in self.tensors if name.startswith(f"{n}_")), key=len, default=None)
        return name if stem is None else self.tensors[stem] + name[len(stem) :]

    def axis(self, axis: Axis) -> Axis:
        family = self.families.get(axis.family)
        if family is None:
            stem = max((f for f in self.families if axis.family.startswith(f"{f}_")),
                       key=len, default=None)  # fmt: skip
            family = axis.family
            if stem is not None:
                family = self.families[stem] + axis.family[len(stem) :]
        return Axis(family, axis.number, axis.extent)

    def term(self, root: Term) -> Term:
        if not self.tensors and not self.families:
            return root
        done: dict[Term, Term] = {}
        for term in walk(root):
            inner = tuple(done[c] for c in children(term))
            done[term] = self._over(term, inner)
        return done[root]

    def _over(self, term: Term, inner: tuple[Term, ...]) -> Term:
        match term:
            case Index(axis):
                return Index(self.axis(axis))
            case Load(buffer, _):
                return Load(replace(buffer, name=self.tensor(buffer.name)), inner)
            case Reduce(monoid, axis, _):
                return Reduce(monoid, self.axis(axis), inner[0])
            case Online(axis):
                return Online(self.axis(axis), *inner)
        return rebuild(term, inner)


def _names(program: Program, like: Program) -> _Names:
    """From the program's names to those of `like`; none where the two are not alike."""
    mine, theirs = lang.spelling(program), lang.spelling(like)
    alike = [len(a) == len(b) for a, b in zip(mine, theirs, strict=True)]
    if not all(alike) or shape_of(program) != shape_of(like):
        return _Names({}, {})
    tensors, families = (dict(zip(a, b, strict=True)) for a, b in zip(mine, theirs, strict=True))
    return _Names(tensors, families)


def shape_of(program: Program) -> tuple[Any, ...]:
    """What is the same of programs that differ in names and sizes alone."""
    plain = lang.anonymous(program)
    inputs = tuple((b.name, b.dtype, len(b.shape)) for b in plain.inputs)
    heads = tuple(
        (d.name, tuple(a.family for a in d.axes), _head(d.body)) for d in plain.definitions
    )
    return inputs, heads, tuple(o.buffer.name for o in plain.outputs)


def _head(term: Term) -> str:
    return type(term).__name__ + str(getattr(term, "operation", getattr(term, "monoid", "")))


# ---- what tensors hold ---------------------------------------------------------------------------


def _values(result: Optimization) -> dict[str, str]:
    """For each tensor between kernels a name of what it holds: the digest of its term, written out
    to inputs and regions' results, online sums as the sums that they come to."""
    assert result.plan is not None
    lasting = {b.name for b in result.program.inputs}
    lasting |= {d.name for d in result.work.definitions}
    lasting |= {o.buffer.name for o in result.work.outputs}
    own = {
        o.buffer.name: (o.axes, o.term)
        for k in result.plan.kernels
        for o in k.outputs
        if o.buffer.name not in lasting
    }
    found = {}
    for name, (_, term) in own.items():
        try:
            found[name] = digest(transform(inline(term, own), _meant))
        except ValueError:  # an axis under a running value would have to be renamed
            found[name] = digest(term)
    return found


def _meant(term: Term) -> Term:
    """An online sum as the sum that it comes to."""
    if not isinstance(term, Online) or term.offset is not None:
        return term
    return reduce_("sum", term.axis, transform(term.body, _final))


def _final(term: Term) -> Term:
    return term.reduction if isinstance(term, Running) else term


def _kernel(kernel: Chosen, names: _Names, values: Mapping[str, str]) -> Kernel:
    plain = kernel_dict(kernel)
    made = {o.buffer.name for o in kernel.outputs}
    loads = (t.buffer.name for o in kernel.outputs for t in walk(o.term) if isinstance(t, Load))
    reads = dict.fromkeys(names.tensor(n) for n in loads if n not in made)
    return Kernel(
        names.tensor(kernel.name),
        tuple(_stored(o, names, values) for o in kernel.outputs),
        tuple(reads),
        _tile(kernel, names),
        tuple(dict.fromkeys(names.axis(a).name for p in kernel.parts for a in p.streams)),
        {names.axis(a).name: n for a, n in kernel.split.items()},
        {name: float(plain[name]) for name in FIGURES},
        dict(kernel.prediction.shares),
        kernel.prediction.bound,
        kernel.rules,
        {names.tensor(o.buffer.name): _text(o, names) for o in kernel.outputs},
    )


def _tile(kernel: Chosen, names: _Names) -> dict[str, int]:
    return {names.axis(a).name: t for p in kernel.leading for a, t in p.tiles.items()}


def _stored(o: Output, names: _Names, values: Mapping[str, str]) -> Stored:
    b: Buffer = o.buffer
    name = names.tensor(b.name)
    return Stored(name, values.get(b.name, name), b.dtype, b.shape)


def _text(o: Output, names: _Names) -> str:
    return lang.show_term(names.term(o.term), _TERM)
