"""Which reductions of a part are contractions, and which terms have tiles of their own: what the
statements of reductions read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from nautile.codegen.contraction import Contraction, contraction
from nautile.terms import (
    Axis,
    Before,
    Const,
    Load,
    Online,
    Reduce,
    Running,
    Term,
    children,
    walk,
)

__all__ = ["Products", "Reduction", "moves", "products"]

TENSOR = ("bf16", "f16", "tf32", "f8e4m3", "f8e5m2")  # operand types of the tensor cores
Reduction = Reduce | Online


def products(
    terms: Sequence[Term], streams: frozenset[Axis], tiles: Mapping[Axis, int], rounding: bool
) -> Products:
    """The contractions of a part's terms under a schedule. `rounding` allows the tensor cores'
    rounding of an f32 operand."""
    befores: set[Term] = {t.reduction for t in walk(*terms) if isinstance(t, Before)}
    found = Products(streams, tiles, rounding, befores)
    found.folded = found._folds(terms)
    found.plan(terms)
    return found


@dataclass(slots=True)
class Products:
    """`plans`: the contraction that each reduction is, or None; `roots`: the terms that statements
    read; `befores`: reductions whose values before a block are read, which are no contractions."""

    streams: frozenset[Axis]
    tiles: Mapping[Axis, int]
    rounding: bool
    befores: set[Term]
    plans: dict[Reduction, Contraction | None] = field(default_factory=dict)
    roots: set[Term] = field(default_factory=set)
    folded: frozenset[Term] = frozenset()
    lone: bool = False

    def plan(self, terms: Sequence[Term]) -> None:
        """Which reductions are contractions, and which terms are tiles of their own. Where none is
        one of the tensor cores', a chain of products with a single row may be."""
        self._plan_all(terms)
        if not any(p and p.operand in TENSOR for p in self.plans.values()):
            plain = self.plans, self.roots
            self.plans, self.roots, self.lone = {}, set(), True
            self._plan_all(terms)
            if not any(p and self._is_chained(p) for p in self.plans.values()):
                (self.plans, self.roots), self.lone = plain, False

    def _is_chained(self, plan: Contraction) -> bool:
        """Whether the product multiplies what another one made."""
        inside = (t for t in walk(plan.left, plan.right) if isinstance(t, (Reduce, Online)))
        return any(self.plans.get(t) for t in inside)

    def _plan_all(self, terms: Sequence[Term]) -> None:
        self.roots.update(terms)
        pending = list(terms)
        seen: set[Term] = set()
        while pending:
            for term in walk(pending.pop()):
                if term in seen:
                    continue
                seen.add(term)
                if isinstance(term, (Reduce, Online)):
                    needed = self._operands(term)
                    self.roots.update(needed)
                    pending += needed

    def _folds(self, terms: Sequence[Term]) -> frozenset[Term]:
        """The loads that reductions fold which are no contractions: what other reductions make of
        loads they fold as well is none."""
        found: set[Term] = set()
        for root in walk(*terms):
            if not isinstance(root, (Reduce, Online)):
                continue
            if contraction(root, self.streams, self.tiles, self.rounding) is None:
                inside = _above(root.body)
                found.update(t for t in inside if isinstance(t, Load) and root.axis in t.free)
        return frozenset(found)

    def _operands(self, term: Reduction) -> list[Term]:
        """The terms that the reduction's statement reads."""
        plan = contraction(
            term, self.streams, self.tiles, self.rounding, lone=self.lone, folded=self.folded
        )
        if term in self.befores or (self.lone and plan and plan.operand not in TENSOR):
            plan = None
        self.plans[term] = plan
        needed = [plan.left, plan.right] if plan else [term.body]
        return needed + [t for t in moves(term) if t is not None]


def _above(root: Term) -> Iterator[Term]:
    """The subterms that are inside no reduction."""
    stack, seen = [root], set[Term]()
    while stack:
        term = stack.pop()
        if term not in seen and not isinstance(term, (Reduce, Online, Running, Before)):
            seen.add(term)
            stack += children(term)
            yield term


def moves(term: Reduction) -> tuple[Term | None, Term | None]:
    """The repair and the offset of an online sum; a repair by 1 is none."""
    if not isinstance(term, Online):
        return None, None
    return None if term.repair is Const(1.0) else term.repair, term.offset
