"""What the classes are called that candidates store: one name for each, in every table and text.

```
name ::= the tensor's, where the chosen program stores it | the definition's, where the class is one
         over its axes | `O_part3`: a part of the region's first result
```

Programs that were not chosen are finished one by one, each with numbers of its own for what it
stores; `renamed` gives their kernels the names that the classes have here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from nautile.extract.candidates import Candidate, Unfit
from nautile.extract.classes import Classes
from nautile.extract.kernel import Kernel
from nautile.extract.pool import Pool
from nautile.terms import Load, Output, Program, Term, transform

from .listing import Names

__all__ = ["Stored", "class_names", "renamed", "stored_classes"]

Stored = Mapping[tuple[int, int], str]
"""By region and class: the tensor that holds it between kernels."""


def stored_classes(pool: Pool, kernels: Sequence[Kernel]) -> dict[tuple[int, int], str]:
    """The tensors between finished kernels, by what they hold."""
    every = (*pool.candidates, *pool.dropped)
    found: dict[tuple[int, int], str] = {}
    for kernel in kernels:
        if kernel.split and not kernel.closing:
            continue
        outputs = kernel.parts[-1].outputs if kernel.closing else kernel.outputs
        for number, candidate in (every[k] for k in kernel.columns if k < len(every)):
            for c, name in _between(pool.classes[number], candidate, outputs, number, found):
                found[number, c] = name
    return found


def _between(
    classes: Classes,
    candidate: Candidate,
    outputs: Sequence[Output],
    number: int,
    found: Stored,
) -> Iterator[tuple[int, str]]:
    """What a candidate makes that is no result, in the order in which it is stored."""
    final = {o.buffer.name for o in classes.outputs}
    stored = [o.buffer.name for o in outputs if o.buffer.name not in final]
    made = [c for group in candidate.groups for c, _ in group if c not in classes.roots]
    if len(made) == len(stored):
        yield from ((c, n) for c, n in zip(made, stored, strict=True) if (number, c) not in found)


def class_names(
    pool: Pool, program: Program, stored: Stored, terms: Sequence[Mapping[Term, int]], source: Names
) -> tuple[dict[int, str], ...]:
    """By region, the names of all classes that some candidate makes or needs. `terms` are the
    classes of each region's terms, `source` the names that the program gives to terms."""
    taken = {b.name for b in program.inputs} | {d.name for d in program.definitions}
    taken |= {o.buffer.name for o in program.outputs} | set(stored.values())
    found = []
    for number, classes in enumerate(pool.classes):
        named = _named(classes, terms[number], source)
        own: dict[int, str] = {}
        for c in _used(pool, number):
            known = stored.get((number, c)) or named.get(c)
            own[c] = known or _part(classes.outputs[0].buffer.name, taken)
        found.append(own)
    return tuple(found)


def _named(classes: Classes, terms: Mapping[Term, int], source: Names) -> dict[int, str]:
    """The classes that are results or definitions over the axes that they are stored over."""
    found: dict[int, str] = {}
    for output, root in zip(classes.outputs, classes.snapshot.roots, strict=True):
        found.setdefault(root, output.buffer.name)
    for term, (name, axes) in source.items():
        c = terms.get(term)
        if c is not None and classes.axes[c] == tuple(axes):
            found.setdefault(c, name)
    return found


def _used(pool: Pool, number: int) -> Iterable[int]:
    """The classes of a region that candidates make or need, first those of the choice."""
    bodies: list[tuple[int, Candidate | Unfit]] = [*pool.candidates, *pool.dropped, *pool.unfit]
    own = (b for home, b in bodies if home == number)
    return dict.fromkeys(c for b in own for c in (*sorted(b.makes), *sorted(b.needs)))


def _part(result: str, taken: set[str]) -> str:
    n = 1
    while f"{result}_part{n}" in taken:
        n += 1
    taken.add(f"{result}_part{n}")
    return f"{result}_part{n}"


def renamed(
    kernels: Sequence[Kernel], pool: Pool, names: Sequence[Mapping[int, str]]
) -> tuple[Kernel, ...]:
    """Kernels of a program that was not chosen, what lies between them called as everywhere."""
    held = stored_classes(pool, kernels)
    new = {name: names[number][c] for (number, c), name in held.items() if c in names[number]}
    if all(a == b for a, b in new.items()) or not _distinct(kernels, new):
        return tuple(kernels)
    return tuple(_kernel(k, new) for k in kernels)


def _distinct(kernels: Sequence[Kernel], new: Mapping[str, str]) -> bool:
    """Whether no two tensors would have one name."""
    outputs = dict.fromkeys(o.buffer.name for k in kernels for o in k.outputs)
    after = [new.get(name, name) for name in outputs]
    return len(set(after)) == len(after)


def _kernel(kernel: Kernel, new: Mapping[str, str]) -> Kernel:
    def step(part: Term) -> Term:
        if isinstance(part, Load) and part.buffer.name in new:
            return Load(replace(part.buffer, name=new[part.buffer.name]), part.coordinates)
        return part

    def output(o: Output) -> Output:
        buffer = replace(o.buffer, name=new.get(o.buffer.name, o.buffer.name))
        return Output(buffer, o.axes, transform(o.term, step))

    parts = tuple(replace(p, outputs=tuple(output(o) for o in p.outputs)) for p in kernel.parts)
    return replace(kernel, name=_kernel_name(kernel, new), parts=parts)


def _kernel_name(kernel: Kernel, new: Mapping[str, str]) -> str:
    """A kernel is called by what it stores, or by that and what it does with it."""
    stored = "_".join(dict.fromkeys(o.buffer.name for o in kernel.outputs))
    if kernel.name == stored[:40].strip("_"):
        own = dict.fromkeys(new.get(o.buffer.name, o.buffer.name) for o in kernel.outputs)
        return "_".join(own)[:40].strip("_")
    stem = next((n for n in new if kernel.name.startswith(f"{n}_chunks")), None)
    return kernel.name if stem is None else new[stem] + kernel.name[len(stem) :]
