"""Reports of the workbench as text for people."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from .profile import Profile, RuleProfile

__all__ = ["profile_text"]


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
    never = ", ".join(found.never)
    yield _wrapped(f"{fired} of {len(found.rules)} rules fired; {len(found.never)} never: ", never)
    exploding = [p for p in found.programs if p.exploding]
    if not exploding:
        yield "no rule makes growth explode"
    for p in exploding:
        yield f"{p.program}: growth explodes ({p.stop}) through {', '.join(p.exploding)}"


def _wrapped(head: str, text: str) -> str:
    return textwrap.fill(head + text, 100, subsequent_indent="    ", break_on_hyphens=False)
