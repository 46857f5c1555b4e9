"""Reports of the workbench as text for people."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from nautile.terms import Program

from .profile import Profile, RuleProfile
from .redundant import Derivation, Loop
from .why import Answer, Attempt, Place

__all__ = ["profile_text", "redundant_text", "why_text"]

_FEW = 8  # rules of which each has a line


def profile_text(found: Profile, top: int | None = None) -> str:
    """Rules by the e-nodes that they added, then programs, what never fired, what explodes."""
    fired = sorted((r for r in found.rules if r.fired), key=lambda r: (-r.nodes, -r.matches))
    return "\n".join([*_rules(fired[:top], found), *_programs(found), *_ends(found, len(fired))])


def _rules(rules: Iterable[RuleProfile], found: Profile) -> Iterator[str]:
    total = len(found.programs)
    yield (
        f"{'rule':24} {'matches':>8} {'e-nodes':>8} {'ms':>8} {'fired':>7} {'chosen':>7} "
        f"{'needed':>7}  e-nodes by iteration"
    )
    for r in rules:
        needed = "-" if r.needed is None else f"{len(r.needed)}/{total}"
        growth = " ".join(map(str, r.growth))
        yield (
            f"{r.rule:24} {r.matches:8} {r.nodes:8} {1e3 * r.seconds:8.2f} "
            f"{f'{len(r.fired)}/{total}':>7} {f'{len(r.chosen)}/{total}':>7} {needed:>7}  {growth}"
        )


def _programs(found: Profile) -> Iterator[str]:
    yield ""
    yield f"{'program':24} {'stop':11} e-nodes after each iteration"
    for p in found.programs:
        yield f"{p.program:24} {p.stop:11} {' '.join(map(str, p.growth))}"


def _ends(found: Profile, fired: int) -> Iterator[str]:
    yield ""
    yield f"{fired} of {len(found.rules)} rules fired; never: {_never(found)}"
    exploding = [p for p in found.programs if p.exploding]
    if not exploding:
        yield "no rule makes growth explode"
    for p in exploding:
        yield f"{p.program}: growth explodes ({p.stop}) through {', '.join(p.exploding)}"


def _never(found: Profile) -> str:
    """Rules that never fired, by pack; whole packs by their names alone."""
    names = set(found.never)
    packs: dict[str, list[str]] = {}
    for rule in found.rules:
        packs.setdefault(rule.pack, []).append(rule.rule)
    lines = []
    for pack, rules in packs.items():
        silent = [name for name in rules if name in names]
        told = "all" if len(silent) == len(rules) else ", ".join(silent)
        if silent:
            head = f"  {pack:14} "
            lines.append(textwrap.fill(head + told, 100, subsequent_indent=" " * len(head)))
    return "\n".join(["", *lines]) if lines else "none"


def why_text(answer: Answer, program: Program, barred: str | None = None) -> str:
    """Whether a rule fired in a program, else where it came closest. `barred` is the rule's class,
    where the numerics do not allow it."""
    lines = [f"{answer.program}: {answer.rule}   {answer.law}"]
    if barred is not None:
        lines.append(f"  is left out: its class is {barred}")
    at = answer.closest
    if answer.matches:
        lines.append(f"  fires: {_count(answer.matches, 'match', 'es')} while saturating")
        if at.failures or at.absent is not None:
            return "\n".join(
                [*lines, "  (of what it matched, laws have dropped the left sides since)"]
            )
    elif not at.failures and at.absent is None:
        lines.append("  could fire here, but was not applied")
    elif at.absent is None:
        lines.append(
            f"  never fires; closest, with {_count(len(at.failures), 'failing condition')}:"
        )
    else:
        part = f"{at.found} of the {at.parts} parts of its pattern are there"
        lines.append(f"  never fires: no term has the form of its left side; {part}")
    return "\n".join([*lines, *_where(at, program), *_failures(at)])


def _where(at: Attempt, program: Program) -> Iterator[str]:
    if at.place is not None:
        yield f"  at {_shown(at.place, program)}"
    for name, bound in at.bindings.items():
        yield f"    {name} = {bound if isinstance(bound, str) else bound.term}"


def _failures(at: Attempt) -> Iterator[str]:
    for failure in at.failures:
        if failure.tried:
            yield f"  fails: {failure.condition}"
            yield f"         {failure.reason}"
    untried = [failure.condition for failure in at.failures if not failure.tried]
    if untried:
        yield f"  not tried, as nothing binds their names: {'; '.join(untried)}"
    if at.absent is not None:
        yield f"  absent: {at.absent}"


def _shown(place: Place, program: Program) -> str:
    if place.line is None:
        by = f" (made by {', '.join(place.makers)})" if place.makers else ""
        return f"{place.term}{by}"
    return f"{place.term}\n     {program.filename}:{place.line}: {_quoted(program, place.line)}"


def _quoted(program: Program, line: int) -> str:
    """The line of the program's file, where that can be read."""
    path = Path(program.filename)
    lines = path.read_text().splitlines() if path.is_file() else []
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""


def _count(n: int, noun: str, many: str = "s") -> str:
    return f"{n} {noun}{many if n != 1 else ''}"


def redundant_text(found: Sequence[Derivation], loops: Sequence[Loop]) -> str:
    """What others make up for (of a few rules, what is needed too), then what goes in circles."""
    lines = []
    for d in found:
        if d.verdict == "needed" and len(found) <= _FEW:
            lines.append(f"{d.rule:24} needed    no other rules make its right side")
        if d.verdict in ("derived", "subsumed"):
            asks = f"   (which asks {', '.join(d.asks)})" if d.asks else ""
            lines.append(f"{d.rule:24} {d.verdict:9} by {', '.join(d.by)}{asks}")
        elif d.verdict == "untried":
            lines.append(f"{d.rule:24} untried   no instance of it that it rewrites itself")
    counts = Counter(d.verdict for d in found)
    told = ", ".join(f"{counts[v]} {v}" for v in ("needed", "derived", "subsumed", "untried"))
    lines.append(f"{len(found)} rules: {told}")
    lines += [f"{' and '.join(p.rules)} undo each other" for p in loops if p.kind == "inverse"]
    for p in loops:
        if p.kind == "idle":
            fired = _count(len(p.programs), "program")
            lines.append(f"{' and '.join(p.rules)} only loops: idle in {fired} where it fires")
    return "\n".join(lines)
