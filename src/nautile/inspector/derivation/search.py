"""Finding equalities: laws applied round by round until the chosen terms are reached.

The rounds are those of the engine: folding, normal laws and facts to their end, then directed
rules, then those that rewrite both ways. A match is one of classes; an equality is one of terms. So
for each match terms are picked: what a fact is about for the names of its premise, the oldest
member for any other name, and where a law asks that an axis is not in a name a member without it.
Both sides are then the law's with the same term for a name wherever it stands."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nautile.rules.law import NotFree, Rule
from nautile.terms import Term
from nautile.workbench.query import Tree, variables

from .equalities import Equalities, Instance
from .matching import Form, Tables, value_of
from .writing import Related, item_parts

__all__ = ["Search"]

_ROUNDS, _FACT_ROUNDS = 30, 12
_ITEMS, _SECONDS = 20_000, 20.0
_PHASES = ("infer", "directed", "infer", "two_way")
_FACTS = 3  # equal facts that one match is tried with
_CONSTANTS = ("Num", "Int", "Truth", "Odd")


@dataclass(slots=True)
class Search:
    """Laws on their way from the source's terms to the chosen ones."""

    graph: Equalities
    laws: Sequence[Rule]
    forms: Sequence[Form]
    pairs: Sequence[tuple[Term, Term]]
    seconds: float = _SECONDS
    _facts: dict[tuple[Any, ...], list[Related]] = field(default_factory=dict)
    _start: float = field(default_factory=time.process_time)

    def run(self) -> bool:
        """Whether every source term has been found equal to its chosen one."""
        for _ in range(_ROUNDS):
            changed = False
            for phase in _PHASES:
                changed |= self._phase(phase)
                if self.reached():
                    return True
            if not changed or self._spent():
                return False
        return False

    def further(self) -> bool:
        """One round more, for other ways to what was reached; whether it found anything."""
        return not self._spent() and sum(self._phase(phase) for phase in _PHASES) > 0

    def _phase(self, phase: str) -> bool:
        return self._infer() if phase == "infer" else self._apply((phase,))

    def reached(self) -> bool:
        """Whether the goal is among what was found."""
        found = ((self.graph.lookup(a), self.graph.lookup(b)) for a, b in self.pairs)
        return all(one is two and one is not None for one, two in found)

    def _spent(self) -> bool:
        late = time.process_time() - self._start > self.seconds
        return late or len(self.graph.edges) > _ITEMS

    def _infer(self) -> bool:
        changed = False
        for _ in range(_FACT_ROUNDS):
            again = self._apply(("normal",)) | self._apply(("facts",))
            changed |= again
            if not again or self._spent():
                break
        return changed

    def _apply(self, phases: Sequence[str]) -> bool:
        """Apply all matches of the forms of some phases at once; whether anything is new."""
        own = [f for f in self.forms if f.phase in phases]
        if not own:
            return False
        tables = self.graph.tables()
        self._index_facts()
        found = [i for form in own for i in self._instances(form, tables)]
        return sum(self.graph.unite(i.left, i.right, i) for i in found) > 0

    def _index_facts(self) -> None:
        self._facts = {}
        for fact in self.graph.facts:
            self._facts.setdefault(self._row(fact), []).append(fact)

    def _row(self, fact: Related) -> tuple[Any, ...]:
        numbers = (self.graph.number(p) for p in item_parts(fact))
        return (fact.relation, *numbers, self.graph.number(fact))

    # ---- from a match of classes to an equality of terms ---------------------------------------

    def _instances(self, form: Form, tables: Tables) -> Iterator[Instance]:
        seen: set[tuple[Any, ...]] = set()
        for known in tables.matches(form):
            mark = tuple(sorted((k, v) for k, v in known.items() if k[0] != "t"))
            if mark in seen:
                continue
            seen.add(mark)
            for number in range(self._choices(form, known)):
                try:
                    instance = self._instance(form, known, number)
                except (KeyError, TypeError, OverflowError):
                    continue  # a name without a term that the law allows, so far
                if instance is not None:
                    yield instance

    def _choices(self, form: Form, known: Mapping[str, Any]) -> int:
        """How many facts there are to speak of: equal ones may be about unlike terms."""
        rows = (
            self._facts.get(self._asked(r, relation, known), ()) for r, relation in form.premises
        )
        return min(_FACTS, max((len(row) for row in rows), default=1)) or 1

    def _asked(self, result: Tree, relation: Tree, known: Mapping[str, Any]) -> tuple[Any, ...]:
        """The row of the facts that a premise asks for."""
        columns = [self._number(t, known) for t in relation[1:]]
        return (relation[0], *columns, self._number(result, known))

    def _instance(self, form: Form, known: Mapping[str, Any], number: int) -> Instance | None:
        """The terms of a match; `number` chooses among equal facts."""
        names: dict[str, Term] = {}
        for result, relation in form.premises:
            self._premise(relation, result, names, known, number)
        for name, tree in form.definitions:
            if tree[0] in _CONSTANTS:
                names[name] = self._term(tree, names, known)
            elif name in names:
                self._unify(tree, names[name], names, known)
        self._choose(form, names, known)
        left = self.graph.spelling.item(form.pattern, names, known)
        new = self._term(form.new, names, known)
        premises = tuple(self._rests_on(p, names, known) for p in form.premises)
        one = self._related(form.union, left, names, known) if form.fact else left
        axes = {n[2:]: self.graph.spelling.axes[v] for n, v in known.items() if n[:2] == "x_"}
        shown = {n[2:]: t for n, t in names.items() if n[:2] == "v_"}
        if self.graph.lookup_number(left) != known["e"]:
            return None
        return Instance(
            form.law, form.direction, one, new, shown, axes, premises, self._held(form, names)
        )

    def _held(self, form: Form, names: Mapping[str, Term]) -> tuple[Term, ...]:
        """The carriers that the query looks up, in the form in which they were written down."""
        own = (names[n] for n, tree in form.definitions if tree[0] not in _CONSTANTS)
        return tuple(t for t in map(self.graph.like, own) if t is not None)

    def _term(self, tree: Tree, names: Mapping[str, Term], known: Mapping[str, Any]) -> Term:
        return self.graph.spelling.term(tree, names, known)

    def _related(
        self, union: Tree, left: Any, names: Mapping[str, Term], known: Mapping[str, Any]
    ) -> Related:
        found = self.graph.spelling.item(union, {**names, "e": left}, known)
        assert isinstance(found, Related)
        return found

    def _rests_on(
        self, premise: tuple[Tree, Tree], names: Mapping[str, Term], known: Mapping[str, Any]
    ) -> tuple[Related, Term]:
        result, relation = premise
        related = self.graph.spelling.item(relation, names, known)
        assert isinstance(related, Related)
        return related, self._term(result, names, known)

    def _premise(
        self,
        relation: Tree,
        result: Tree,
        names: dict[str, Term],
        known: Mapping[str, Any],
        number: int,
    ) -> None:
        """Names stand for what a fact of this kind is about, the oldest first."""
        row = self._facts.get(self._asked(result, relation, known), ())
        for fact in row[min(number, len(row) - 1) :][:1]:
            pairs = [*zip(relation[1:], fact.places, strict=True), (result, self.graph.facts[fact])]
            for tree, term in pairs:
                if isinstance(tree, str):
                    names.setdefault(tree, term)

    def _number(self, tree: Tree, known: Mapping[str, Any]) -> Any:
        return known.get(tree) if isinstance(tree, str) else None

    def _unify(
        self, tree: Tree, term: Term, names: dict[str, Term], known: Mapping[str, Any]
    ) -> None:
        """Names inside a carrier stand for the parts of the carrier that a fact speaks of."""
        if isinstance(tree, str):
            names.setdefault(tree, term)
            return
        head, columns = self.graph.spelling.head(term)
        if (
            head != tree[0]
            or tuple(value_of(t, known) for t in tree[1 : 1 + len(columns)]) != columns
        ):
            return
        for inner, part in zip(tree[1 + len(columns) :], item_parts(term), strict=True):
            self._unify(inner, part, names, known)

    def _choose(self, form: Form, names: dict[str, Term], known: Mapping[str, Any]) -> None:
        """A member for every name that has no term, or one that holds an axis that is barred."""
        barred = self._barred(form, known)
        defined = {name: tree for name, tree in form.definitions if tree[0] not in _CONSTANTS}
        used = [form.pattern, form.new, form.union, *defined.values()]
        used += [part for premise in form.premises for part in premise]
        for name in sorted({v for tree in used for v in variables(tree) if v[:2] == "v_"}):
            if name in defined:
                continue
            axes = barred.get(name[2:], frozenset())
            if name not in names or names[name].free & axes:
                names[name] = self._member(known[name], axes)
        for name, tree in defined.items():
            names[name] = self._term(tree, names, known)

    def _barred(self, form: Form, known: Mapping[str, Any]) -> dict[str, frozenset[Any]]:
        found: dict[str, frozenset[Any]] = {}
        conditions = self.laws[form.law].conditions if form.law >= 0 else ()
        for c in conditions:
            if isinstance(c, NotFree):
                axis = self.graph.spelling.axes[known[f"x_{c.axis}"]]
                found[c.name] = found.get(c.name, frozenset()) | {axis}
        return found

    def _member(self, number: int, barred: frozenset[Any]) -> Term:
        for item in self.graph.members(self.graph.item(number)):
            if isinstance(item, Term) and not item.free & barred:
                return item
        raise KeyError(number)
