"""From chosen candidates to kernels: buffers and names, narrow storage, final schedules, order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from nautile.errors import ExtractionError
from nautile.extract.body import Body, analyse, below
from nautile.extract.candidates import Candidate
from nautile.extract.classes import Classes
from nautile.extract.closed import joined
from nautile.extract.contractions import NARROW
from nautile.extract.device import Device
from nautile.extract.kernel import Kernel, Part, Prediction
from nautile.extract.roofline import schedules
from nautile.extract.split import Split, launches
from nautile.extract.together import CHOICES, combined
from nautile.terms import (
    Buffer,
    Load,
    Output,
    Program,
    Term,
    buffers,
    transform,
)

__all__ = ["Chosen", "course", "finish"]


@dataclass(frozen=True, slots=True)
class Chosen:
    """A candidate, the region's classes that its numbers refer to, those that it stores (all that
    it makes, where None), and its number in the pool."""

    candidate: Candidate
    classes: Classes
    stores: frozenset[int] | None = None
    column: int | None = None


@dataclass(slots=True)
class _Draft:
    """A kernel on its way: outputs part by part, the rules that made its terms, the split of which
    it is the whole (before it is divided) or a launch that makes states (after that), what it is
    called if not by its outputs, and the number of its candidate."""

    groups: list[tuple[Output, ...]]
    rules: tuple[str, ...]
    split: Split | None = None
    stem: str = ""
    columns: tuple[int, ...] = ()

    @property
    def outputs(self) -> tuple[Output, ...]:
        return tuple(o for group in self.groups for o in group)


def finish(
    chosen: Sequence[Chosen], program: Program, device: Device, *, numerics: str = "real"
) -> tuple[tuple[Kernel, ...], tuple[Buffer, ...]]:
    """Kernels in launch order, and the tensors stored between them."""
    *_, (_, drafts) = _stages(chosen, program, numerics)
    drafts = _ordered([d for draft in drafts for d in _launchable(draft, device, numerics)])
    names = _kernel_names(drafts)
    kernels = tuple(
        _kernel(name, draft, device, numerics) for name, draft in zip(names, drafts, strict=True)
    )
    final = {o.buffer.name for o in program.outputs}
    kernels = joined(kernels, frozenset(final))
    between = [o.buffer for k in kernels for o in k.outputs if o.buffer.name not in final]
    return kernels, tuple(dict.fromkeys(between))


def course(
    chosen: Sequence[Chosen], program: Program, *, numerics: str = "real"
) -> Iterator[tuple[str, tuple[Output, ...]]]:
    """What is stored after each stage of finishing, as `finish` does it: "store" gives chosen terms
    tensors, "narrow" gives those the types that all readers round them to, "split" makes states
    over chunks and what merges them."""
    for name, drafts in _stages(chosen, program, numerics):
        yield name, tuple(o for d in drafts for o in d.outputs)


def _stages(
    chosen: Sequence[Chosen], program: Program, numerics: str
) -> Iterator[tuple[str, list[_Draft]]]:
    drafts = _drafts(chosen, program)
    yield "store", drafts
    if numerics != "exact":
        drafts = _narrowed(drafts, program)
    yield "narrow", drafts
    yield "split", _divided(drafts, program)


Schedule = tuple[tuple[Part, ...], Prediction]


def _schedule(draft: _Draft, device: Device, numerics: str) -> Schedule | None:
    """The best tiles of the parts, equal ones where several share a launch."""
    if len(draft.groups) == 1:
        best = schedules(draft.groups[0], device, 1, numerics=numerics)
        return ((best[0][0],), best[0][1]) if best else None
    tables = [
        schedules(g, device, CHOICES, numerics=numerics, path="portable") for g in draft.groups
    ]
    return combined(tables, device) if all(tables) else None


def _launchable(draft: _Draft, device: Device, numerics: str) -> list[_Draft]:
    """The draft, or one for each part where final storage types left no common tiles."""
    if len(draft.groups) > 1 and _schedule(draft, device, numerics) is None:
        return [_Draft([group], draft.rules, columns=draft.columns) for group in draft.groups]
    return [draft]


def _divided(drafts: list[_Draft], program: Program) -> list[_Draft]:
    """The drafts, those that are split as their launches."""
    taken = _names(program) | {o.buffer.name for d in drafts for o in d.outputs}
    return [part for draft in drafts for part in _launches(draft, taken)]


def _launches(draft: _Draft, taken: set[str]) -> list[_Draft]:
    if draft.split is None:
        return [draft]
    (outputs,) = draft.groups
    stem = f"{outputs[0].buffer.name}_chunks"
    *states, merged = launches(outputs, draft.split, lambda: _fresh(stem, taken))
    own = draft.columns
    first = [_Draft([group], draft.rules, draft.split, stem, own) for group in states]
    return [*first, _Draft([merged], draft.rules, columns=own)]


def _kernel(name: str, draft: _Draft, device: Device, numerics: str) -> Kernel:
    best = _schedule(draft, device, numerics)
    if best is None:
        raise ExtractionError(f"kernel {name} has no schedule that fits {device.name}")
    split = {draft.split.axis: draft.split.chunks} if draft.split else {}
    return Kernel(name, best[0], best[1], draft.rules, split, columns=draft.columns)


# ---- buffers -----------------------------------------------------------------------------------


def _drafts(chosen: Sequence[Chosen], program: Program) -> list[_Draft]:
    """Outputs with real buffers: a class that others read is stored in a program output that holds
    it exactly, else in a tensor of its own."""
    wanted = {(id(c.classes), k): c.classes for c in chosen for k in c.candidate.needs}
    homes: dict[str, Output] = {}
    extra: dict[tuple[int, int], Buffer] = {}
    taken = _names(program)
    for (region, k), classes in wanted.items():
        home = _home(classes, k)
        if home is None:
            stored = classes.buffer(k)
            name = _fresh(f"{classes.outputs[0].buffer.name}_part", taken)
            extra[region, k] = replace(stored, name=name, dtype=classes.exact_type(k))
            home = Output(extra[region, k], classes.axes[k], classes.load(k))
        homes[classes.buffer(k).name] = home
    drafts = [_draft(c, homes, extra) for c in chosen]
    return [d for d in drafts if d.groups]


def _names(program: Program) -> set[str]:
    """The names that the program gives to tensors."""
    stored = {b.name for b in program.inputs} | {o.buffer.name for o in program.outputs}
    return stored | {d.name for d in program.definitions}


def _home(classes: Classes, k: int) -> Output | None:
    for output, root in zip(classes.outputs, classes.snapshot.roots, strict=True):
        if root == k and output.buffer.dtype in (classes.exact_type(k), classes.carried_type(k)):
            return output
    return None


def _draft(
    chosen: Chosen, homes: Mapping[str, Output], extra: Mapping[tuple[int, int], Buffer]
) -> _Draft:
    """The candidate's parts, but for those of which nothing is stored."""
    groups = []
    for group in chosen.candidate.groups:
        outputs: list[Output] = []
        for k, term in group:
            if chosen.stores is not None and k not in chosen.stores:
                continue
            real = _relocated(term, homes)
            own = chosen.classes.output(k, real)
            if k in chosen.classes.roots:
                outputs += own
            buffer = extra.get((id(chosen.classes), k))
            if buffer is not None:
                outputs.append(Output(buffer, chosen.classes.axes[k], real))
        if outputs:
            groups.append(tuple(outputs))
    division = chosen.candidate.division
    rules = chosen.classes.made_by(chosen.candidate.choice)
    columns = () if chosen.column is None else (chosen.column,)
    return _Draft(groups, rules, division.split if division else None, columns=columns)


def _relocated(term: Term, homes: Mapping[str, Output]) -> Term:
    def step(part: Term) -> Term:
        if not isinstance(part, Load) or part.buffer.name not in homes:
            return part
        home = homes[part.buffer.name]
        return Load(home.buffer, _coordinates(part, home))

    return transform(term, step)


def _coordinates(load: Load, home: Output) -> tuple[Term, ...]:
    """The load's coordinates in the order of the tensor where the class lives. Both list the
    class' free axes by name, so each coordinate is its axis itself; along further axes of an output
    the class' values are all the same."""
    from nautile.terms import Const, Index

    return tuple(Index(a) if a in load.free else Const(0) for a in home.axes)


def _fresh(stem: str, taken: set[str]) -> str:
    n = 1
    while f"{stem}{n}" in taken:
        n += 1
    taken.add(f"{stem}{n}")
    return f"{stem}{n}"


# ---- narrow storage ----------------------------------------------------------------------------


def _narrowed(drafts: list[_Draft], program: Program) -> list[_Draft]:
    """f32 tensors between kernels take the type that all their readers round them to."""
    final = {o.buffer.name for o in program.outputs}
    between = {
        o.buffer.name: o.buffer
        for d in drafts
        for o in d.outputs
        if o.buffer.name not in final and o.buffer.dtype == "f32"
    }
    types: dict[str, set[str]] = {name: set() for name in between}
    for draft in drafts:
        for group in draft.groups:
            _note_readers(group, types)
    new = {
        between[name]: replace(between[name], dtype=next(iter(found)))
        for name, found in types.items()
        if len(found) == 1 and found <= NARROW
    }
    return [_retyped(d, new) for d in drafts] if new else drafts


def _note_readers(group: tuple[Output, ...], types: dict[str, set[str]]) -> None:
    """Add the type in which each tensor is read: an operand's type, or f32."""
    body = analyse(group)
    readers: dict[Term, list[Term]] = {}
    for term in body.inside:
        for child in below(term):
            readers.setdefault(child, []).append(term)
    stored = {o.term for o in group}
    for load in body.loads:
        if load.buffer.name in types:
            inside = all(r in body.free for r in readers.get(load, [load])) and load not in stored
            types[load.buffer.name] |= _operand_types(load, body) if inside else {"f32"}


def _operand_types(load: Load, body: Body) -> set[str]:
    """The types in which contractions take the load, "f32" where it is a part of an operand."""
    found: set[str] = set()
    for c in body.contractions.values():
        for parts, _ in c.sides:
            if load in parts:
                found.add(c.operand if len(parts) == 1 and c.operand else "f32")
    return found or {"f32"}


def _retyped(draft: _Draft, new: Mapping[Buffer, Buffer]) -> _Draft:
    def step(part: Term) -> Term:
        if isinstance(part, Load) and part.buffer in new:
            return Load(new[part.buffer], part.coordinates)
        return part

    groups = [
        tuple(Output(new.get(o.buffer, o.buffer), o.axes, transform(o.term, step)) for o in group)
        for group in draft.groups
    ]
    return _Draft(groups, draft.rules, draft.split, draft.stem, draft.columns)


# ---- order and names ---------------------------------------------------------------------------


def _ordered(drafts: list[_Draft]) -> list[_Draft]:
    """Kernels after those whose outputs they read; ties keep the given order."""
    makers = {o.buffer.name: d for d in drafts for o in d.outputs}
    done: list[_Draft] = []
    left = list(drafts)
    while left:
        ready = [d for d in left if all(any(m is e for e in done) for m in _makers(d, makers))]
        if not ready:
            raise ExtractionError("the chosen kernels wait for one another")
        done.append(ready[0])
        left = [d for d in left if d is not ready[0]]
    return done


def _makers(draft: _Draft, makers: Mapping[str, _Draft]) -> list[_Draft]:
    names = [b.name for b in buffers(*(o.term for o in draft.outputs))]
    return [makers[n] for n in names if n in makers and makers[n] is not draft]


def _kernel_names(drafts: Iterable[_Draft]) -> list[str]:
    """Short unique C identifiers made of the stored tensors' names."""
    names: list[str] = []
    for draft in drafts:
        stored = dict.fromkeys(o.buffer.name for o in draft.outputs)
        stem = draft.stem or "_".join(stored)
        stem = re.sub(r"\W+", "_", stem)[:40].strip("_") or "kernel"
        stem = stem if not stem[0].isdigit() else f"k{stem}"
        name, n = stem, 2
        while name in names:
            name, n = f"{stem}_{n}", n + 1
        names.append(name)
    return names
