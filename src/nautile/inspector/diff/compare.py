"""What changed between two runs of a program.

```
Change ::= kind, where, from, to, text
kind   ::= kernel: added removed merged split regrouped
         | schedule: tile streams chunks | stored: stored, not-stored, type | work: terms rules
```

Kernels are matched by what they store. Kernels that one run has and the other has not belong to the
kernels that read what they store, so that a group of kernels in one run stands for a group in the
other: one for one is the same kernel, two for one are merged, one for two is split.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import networkx as nx

from nautile.report import quantity

from .sides import Kernel, Side

__all__ = ["Change", "Totals", "changes", "totals"]

NOISE = 1e-9  # relative; figures that differ by less are equal
SCHEDULE = {"tile": "tiles", "streams": "streamed axes", "split": "chunks"}


@dataclass(frozen=True, slots=True)
class Change:
    """One difference: `before` and `after` are the values of the two runs, plain JSON."""

    kind: str
    where: str
    before: Any
    after: Any
    text: str

    def as_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "where": self.where,
            "from": self.before,
            "to": self.after,
            "text": self.text,
        }


@dataclass(frozen=True, slots=True)
class Totals:
    """A figure of both runs; None where a run does not tell it."""

    before: float | None
    after: float | None

    @property
    def ratio(self) -> float | None:
        if self.before is None or self.after is None or self.before == 0:
            return None
        return self.after / self.before

    @property
    def differs(self) -> bool:
        if self.before is None or self.after is None:
            return False
        return abs(self.after - self.before) > NOISE * max(abs(self.before), abs(self.after))

    def as_dict(self) -> dict[str, Any]:
        return {"from": self.before, "to": self.after, "ratio": self.ratio}


def totals(a: Side, b: Side) -> dict[str, Totals]:
    """Kernels, seconds, bytes, and the seconds that each resource is asked for."""
    found = {
        "kernels": Totals(len(a.kernels), len(b.kernels)),
        "seconds": Totals(a.seconds, b.seconds),
        "bytes": Totals(a.bytes, b.bytes),
    }
    mine, theirs = _shares(a), _shares(b)
    if mine is not None and theirs is not None:
        for name in sorted({*mine, *theirs}):
            found[f"{name} seconds"] = Totals(mine.get(name, 0.0), theirs.get(name, 0.0))
    return found


def _shares(side: Side) -> dict[str, float] | None:
    total: dict[str, float] = {}
    for kernel in side.kernels:
        if kernel.shares is None:
            return None
        for name, seconds in kernel.shares.items():
            total[name] = total.get(name, 0.0) + seconds
    return total


def changes(a: Side, b: Side) -> tuple[Change, ...]:
    """All differences of the two programs, group by group in the order of launches."""
    found: list[Change] = []
    for mine, theirs in _groups(a, b):
        found += _group(mine, theirs)
    found += _stored(a, b)
    return tuple(found)


# ---- groups --------------------------------------------------------------------------------------


def _groups(a: Side, b: Side) -> Iterator[tuple[list[Kernel], list[Kernel]]]:
    graph: Any = nx.Graph()
    for which, side in enumerate((a, b)):
        graph.add_nodes_from((which, i) for i in range(len(side.kernels)))
    common = _values(a) & _values(b)
    makers: dict[str, tuple[int, int]] = {}
    for which, side in enumerate((a, b)):
        for i, kernel in enumerate(side.kernels):
            for stored in kernel.stored:
                if stored.value in common:
                    graph.add_edge((which, i), makers.setdefault(stored.value, (which, i)))
            if not any(s.value in common for s in kernel.stored):
                graph.add_edges_from(((which, i), (which, k)) for k in _readers(side, i))
    parts = sorted(map(sorted, nx.connected_components(graph)), key=lambda part: _place(part))
    for part in parts:
        yield (
            [a.kernels[i] for which, i in part if which == 0],
            [b.kernels[i] for which, i in part if which == 1],
        )


def _place(part: list[tuple[int, int]]) -> tuple[int, int]:
    return min(i for _, i in part), part[0][0]


def _values(side: Side) -> set[str]:
    return {s.value for k in side.kernels for s in k.stored}


def _readers(side: Side, i: int) -> list[int]:
    """The kernels that read what kernel `i` stores; where runs do not tell, the one after it."""
    stored = {s.name for s in side.kernels[i].stored}
    later = range(i + 1, len(side.kernels))
    if all(k.reads is None for k in side.kernels):
        return list(later)[:1]
    return [k for k in later if stored & set(side.kernels[k].reads or ())]


def _group(mine: list[Kernel], theirs: list[Kernel]) -> Iterator[Change]:
    before, after = [k.name for k in mine], [k.name for k in theirs]
    if not mine or not theirs:
        kind = "added" if theirs else "removed"
        for kernel in theirs or mine:
            stored = ", ".join(s.name for s in kernel.stored)
            text = f"kernel {kernel.name}, which stores {stored}, is {kind}"
            yield Change(f"kernel-{kind}", kernel.name, before or None, after or None, text)
        return
    if len(mine) == len(theirs) == 1:
        yield from _kernel(mine[0], theirs[0])
        return
    kind, text = _regrouped(before, after)
    yield Change(f"kernel-{kind}", after[-1], before, after, text)
    rules = _rules(mine), _rules(theirs)
    yield from _work(after[-1], *rules)


def _regrouped(before: list[str], after: list[str]) -> tuple[str, str]:
    mine, theirs = " and ".join(before), " and ".join(after)
    if len(after) == 1:
        return "merged", f"kernels {mine} are merged into {theirs}"
    if len(before) == 1:
        return "split", f"kernel {mine} is split into {theirs}"
    return "regrouped", f"kernels {mine} are {theirs} now"


# ---- one kernel ----------------------------------------------------------------------------------


def _kernel(a: Kernel, b: Kernel) -> Iterator[Change]:
    for name, word in SCHEDULE.items():
        before, after = getattr(a, name), getattr(b, name)
        if before is None or after is None or before == after:
            continue
        old, new = _plain(before), _plain(after)
        text = f"kernel {b.name}: {word} {_told(before)} -> {_told(after)}"
        yield Change(name, b.name, old, new, text)
    yield from _terms(a, b)
    if a.bound is not None and b.bound is not None and a.bound != b.bound:
        text = f"kernel {b.name}: bound by {a.bound} -> {b.bound}"
        yield Change("bound", b.name, a.bound, b.bound, text)
    yield from _figures(a, b)


def _terms(a: Kernel, b: Kernel) -> Iterator[Change]:
    if a.terms is not None and b.terms is not None:
        old, new = [_by_value(k) for k in (a, b)]
        for value in old:
            if value in new and old[value] != new[value]:
                text = f"kernel {b.name}: computes {new[value]} instead of {old[value]}"
                yield Change("terms", b.name, old[value], new[value], text)
    if a.rules is not None and b.rules is not None:
        yield from _work(b.name, list(a.rules), list(b.rules))


def _by_value(kernel: Kernel) -> dict[str, str]:
    terms = kernel.terms or {}
    return {s.value: terms[s.name] for s in kernel.stored if s.name in terms}


def _work(where: str, before: list[str], after: list[str]) -> Iterator[Change]:
    if set(before) != set(after):
        more = [r for r in after if r not in before]
        less = [r for r in before if r not in after]
        parts = [f"made by {', '.join(more)} too" if more else "",
                 f"no more by {', '.join(less)}" if less else ""]  # fmt: skip
        text = f"kernel {where}: terms {', '.join(p for p in parts if p)}"
        yield Change("rules", where, before, after, text)


def _rules(kernels: Iterable[Kernel]) -> list[str]:
    return sorted({r for k in kernels for r in k.rules or ()})


def _figures(a: Kernel, b: Kernel) -> Iterator[Change]:
    for name in ("seconds", "reads_bytes", "writes_bytes"):
        figure = Totals(a.figures.get(name), b.figures.get(name))
        if figure.differs and figure.before is not None and figure.after is not None:
            unit, word = ("s", "predicted") if name == "seconds" else ("B", name.split("_")[0])
            old, new = quantity(figure.before, unit), quantity(figure.after, unit)
            text = f"kernel {b.name}: {word} {old} -> {new}"
            yield Change(name, b.name, figure.before, figure.after, text)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else list(value)


def _told(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{k}={v}" for k, v in value.items()) or "none"
    return " ".join(map(str, value)) or "none"


# ---- tensors -------------------------------------------------------------------------------------


def _stored(a: Side, b: Side) -> Iterator[Change]:
    mine = {s.value: s for k in a.kernels for s in k.stored}
    theirs = {s.value: s for k in b.kernels for s in k.stored}
    for value, stored in mine.items():
        if value not in theirs:
            text = f"{stored.name} is not stored any more"
            yield Change("not-stored", stored.name, stored.name, None, text)
    for value, stored in theirs.items():
        old = mine.get(value)
        if old is None:
            text = f"{stored.name} is stored now"
            yield Change("stored", stored.name, None, stored.name, text)
        elif old.dtype is not None and stored.dtype is not None and old.dtype != stored.dtype:
            text = f"{stored.name} is stored as {stored.dtype}, not {old.dtype}"
            yield Change("type", stored.name, old.dtype, stored.dtype, text)
        elif old.shape is not None and stored.shape is not None and old.shape != stored.shape:
            text = f"{stored.name} has shape {stored.shape}, not {old.shape}"
            yield Change("shape", stored.name, list(old.shape), list(stored.shape), text)
