"""What failed where a rule did not match, in the words of its law."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from nautile.rules.egglog import TRAITS, TYPES
from nautile.rules.law import Rule

from .answers import Failure
from .nearest import binds, unbound
from .places import Places
from .query import RELATIONS, Clause, Goal, variables

__all__ = ["absent", "failure"]

_WIDTH = 160  # characters of a term inside a sentence
_WORDS = {"pos": "> 0", "neg": "< 0", "nonneg": ">= 0", "nonpos": "<= 0", "nonzero": "!= 0"}


def failure(clause: Clause, known: dict[str, Any], rule: Rule, places: Places) -> Failure:
    """Why a condition does not hold where the law's names are `known`."""
    if clause.kind == "traits":
        return _trait_failure(clause, known, places)
    missing = unbound(clause, known)
    if missing:
        names = ", ".join(sorted(v[2:] for v in missing))
        return Failure(_label(clause, rule), f"nothing binds {names}", tried=False)
    if clause.kind == "premise":
        return Failure(_label(clause, rule), _no_fact(clause, known, places))
    if binds(clause):
        return Failure(_label(clause, rule), _no_term(clause, known, places))
    axes = {n: f"x_{n}" for n in sorted(clause.names) if f"x_{n}" in known}
    reasons = [f"{n} is {places.axes[known[v]].name}" for n, v in axes.items()]
    for name in sorted(n for n in clause.names if f"v_{n}" in known):
        c = known[f"v_{name}"]
        free = ", ".join(places.free(c)) or "nothing"
        reasons.append(f"{name} = {_short(places.text(c))} depends on {free}")
    return Failure(_label(clause, rule), "; ".join(reasons))


def _no_fact(clause: Clause, known: dict[str, Any], places: Places) -> str:
    """Which subject no fact is about, or none with this carrier."""
    goal = next(g for g in clause.goals if g.table in RELATIONS)
    subject = known.get(str(goal.columns[0]))
    if subject is None:
        return f"no {goal.table} is known of such a term"
    rows = [r for r in places.run.frozen.tables[str(goal.table)] if r[0] == subject]
    text = _short(places.text(subject))
    if not rows:
        return f"no {goal.table} is known of {text}"
    carriers = ", ".join(dict.fromkeys(_short(places.text(r[1])) for r in rows))
    return f"{goal.table} of {text} is known in {carriers} alone"


def _no_term(clause: Clause, known: dict[str, Any], places: Places) -> str:
    """Which term has not the form that a condition asks for."""
    c = known.get(str(clause.goals[0].columns[-1]))
    return "no such term is there" if c is None else f"{_short(places.text(c))} is no such term"


def _short(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]} ..."


def _trait_failure(clause: Clause, known: dict[str, Any], places: Places) -> Failure:
    """Which of the traits that a term must have it lacks, in words."""
    (variable,) = {v for g in clause.goals for c in g.columns for v in variables(c)
                   if v == "e" or v.startswith("v_")}  # fmt: skip
    name = "the left side" if variable == "e" else variable[2:]
    c = known.get(variable)
    if c is None:
        return Failure(f"what {name} is", f"nothing binds {name}", tried=False)
    mask, value = _wanted(clause)
    bits = places.traits.get(c, 0)
    words = list(_lacks(name, (bits ^ value) & mask, value))
    known_words = ", ".join(places.known(c))
    return Failure(" and ".join(words), f"of {_short(places.text(c))} is known: {known_words}")


def _wanted(clause: Clause) -> tuple[int, int]:
    """Mask and value of `(= value (& mask traits))`."""
    for goal in clause.goals:
        if goal.table is None:
            value, masked = goal.columns
            return int(masked[1]), int(str(value))
    return 0, 0


def _lacks(name: str, wrong: int, value: int) -> Iterator[str]:
    for i, kind in enumerate(TYPES):
        if wrong >> i & 1:
            integral = "is no float" if kind == "i64" else f"is {kind} or narrower"
            yield f"{name} is {kind} or narrower" if value >> i & 1 else f"not: {name} {integral}"
    for trait, bit in TRAITS.items():
        if wrong & bit:
            word = f"{name} {_WORDS[trait]}" if trait in _WORDS else f"{trait}({name})"
            yield word if value & bit else f"not {word}"


def _label(clause: Clause, rule: Rule) -> str:
    """The condition of the law's text that speaks of the same names, else the egglog text."""
    best, score = clause.text, 0.0
    for text, names in _conditions(rule.text):
        same = len(names & clause.names) / max(1, len(names | clause.names))
        if same > score:
            best, score = text, same
    if score < 1 and len(clause.goals) == 1 and clause.goals[0].compare == "!=":
        return f"{' and '.join(sorted(clause.names))} are different axes"
    return best if score >= 0.5 else clause.text


def _conditions(law: str) -> Iterator[tuple[str, frozenset[str]]]:
    """The conditions of a law's text, with the names in them."""
    tree = ast.parse(law, mode="eval").body
    for node in tree.elts[1:] if isinstance(tree, ast.Tuple) else ():
        parts = node.values if isinstance(node, ast.BoolOp) else [node]
        for part in parts:
            called = {id(n.func) for n in ast.walk(part) if isinstance(n, ast.Call)}
            called |= {id(n.value) for n in ast.walk(part) if isinstance(n, ast.Subscript)}
            names = {
                n.id for n in ast.walk(part) if isinstance(n, ast.Name) and id(n) not in called
            }
            yield ast.unparse(part), frozenset(names)


def absent(goal: Goal | None, binding: dict[str, Any], places: Places) -> str:
    """The part of the pattern that was looked for in vain, and what stands in its place."""
    if goal is None or goal.table is None:
        return "nothing of the pattern"
    name = _shown(goal)
    where = goal.columns[-1]
    if isinstance(where, str) and where in binding:
        there = ", ".join(places.heads(binding[where]))
        return f"{name} in place of {places.text(binding[where])}, which is {there}"
    return f"{name} anywhere"


def _shown(goal: Goal) -> str:
    """A row of a table as the law would spell it."""
    assert goal.table is not None
    inner = ["..." if not isinstance(c, str) or c[:2] not in ("v_", "x_") else c[2:]
             for c in goal.columns[:-1]]  # fmt: skip
    if goal.table.startswith("r_"):
        return f"{goal.table[2:]}[{inner[0]}]({inner[1]})"
    if goal.table in ("Num", "Int", "Truth"):
        return f"the number {goal.columns[0]}"
    return f"{goal.table.removeprefix('op_').lower()}({', '.join(inner)})"
