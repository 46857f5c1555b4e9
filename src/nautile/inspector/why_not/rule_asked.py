"""A rule that is asked for: did it match, is it allowed, does the chosen program need it?"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from nautile.options import NUMERICS
from nautile.rules.law import Rule
from nautile.rules.library import OPTIONAL, load, packs
from nautile.workbench.answers import Answer as Closest
from nautile.workbench.why import why

from .answers import Reason
from .asking import unknown
from .inquiry import Inquiry
from .present import Verdict

__all__ = ["known_rules", "of_rule"]


def known_rules(inquiry: Inquiry) -> tuple[Rule, ...]:
    """Every rule that a question may name: those of all shipped packs and of the user's."""
    own = [p for p in inquiry.result.options.rules if p not in packs()]
    return load([*packs(), *own])


def of_rule(inquiry: Inquiry, name: str) -> tuple[str, Verdict]:
    """What became of a rule. Raises InputError for an unknown name, or for a law that is never
    applied."""
    rules = known_rules(inquiry)
    found = [r for r in rules if name in (r.name, f"{r.pack}:{r.name}")]
    if not found:
        raise unknown(name, [r.name for r in rules])
    rule = found[0]
    closest = why(rule, inquiry.program, inquiry.laws, worker=inquiry.worker)
    evidence: dict[str, Any] = {"closest": asdict(closest), "used": _used(inquiry, rule.name)}
    return rule.text, Verdict(Reason(*_reason(inquiry, rule, closest), evidence))


def _used(inquiry: Inquiry, name: str) -> list[str]:
    return [k.name for k in inquiry.plan.kernels if name in k.rules]


def _reason(inquiry: Inquiry, rule: Rule, closest: Closest) -> tuple[str, str]:
    allowed = any(r.name == rule.name for r in inquiry.laws)
    if not allowed:
        return _barred(inquiry, rule, closest)
    if closest.matches:
        used = _used(inquiry, rule.name)
        where = (
            f"the chosen kernels {', '.join(used)} use what it made"
            if used
            else ("the chosen program uses nothing that it made")
        )
        code = "chosen" if used else "matched"
        return code, f"it matched {closest.matches} time(s); {where}"
    return "unmatched", f"it never matched; {_closest(closest)}"


def _barred(inquiry: Inquiry, rule: Rule, closest: Closest) -> tuple[str, str]:
    classes = NUMERICS[inquiry.result.options.numerics]
    if rule.numerics not in classes and rule.numerics != "facts":
        text = f"it is a law of the class {rule.numerics}, and {classes[-1]} is allowed"
        return "numerics", f"{text}; {_closest(closest)}"
    pack = f"the pack {rule.pack}"
    if rule.pack in OPTIONAL:
        pack += f", which is loaded by name alone (--rules {rule.pack})"
    return "pack", f"it is a law of {pack}; {_closest(closest)}"


def _closest(answer: Closest) -> str:
    at = answer.closest
    place = f" at {at.place.term[:160]}" if at.place is not None else ""
    if at.absent is not None:
        return f"nearest{place}, where its pattern lacks {at.absent}"
    if not at.failures:
        return f"its pattern and conditions hold{place}"
    failed = "; ".join(f"{f.condition} ({f.reason})" for f in at.failures[:3])
    return f"nearest{place}, where this fails: {failed}"
