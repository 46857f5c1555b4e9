"""Derivations for people."""

from __future__ import annotations

from collections.abc import Iterator

from .model import Derivation, Step

__all__ = ["derivation_text"]


def derivation_text(found: Derivation) -> str:
    """Each step with its law, its place, what became of it, and its checks."""
    return "\n".join(
        [*_head(found), *(t for n, s in enumerate(found.steps) for t in _step(n + 1, s))]
    )


def _head(found: Derivation) -> Iterator[str]:
    laws = sum(step.law is not None for step in found.steps)
    yield f"{found.program}: {len(found.steps)} steps, {laws} of them laws"
    if found.rules_needed:
        fewest = "the smallest set" if found.smallest else "none can be left out"
        rules = [name for name in found.rules_needed if name not in found.facts_needed]
        facts = f", with the facts {', '.join(found.facts_needed)}" if found.facts_needed else ""
        yield f"  rules needed ({fewest}): {', '.join(rules)}{facts}"
    else:
        yield "  rules needed: none; the source is computed as it stands"
    for names in found.alternatives:
        yield f"  or as few others: {', '.join(names)}"
    for gap in found.gaps:
        yield f"  gap: {gap.reason}"


def _step(number: int, step: Step) -> Iterator[str]:
    one_way = step.law is not None and ">>" in step.law
    way = "" if step.forward or not one_way else ", read from right to left"
    kind = f"{step.numerics}, pack {step.pack}{way}" if step.law is not None else "by the engine"
    yield f"{number:3}  {step.rule}  ({kind}){_place(step)}"
    if step.law is not None:
        yield f"       {step.law}"
    row = step.as_dict()
    if step.redex is not None:
        yield f"       {row['redex']}"
        yield f"    -> {row['contractum']}"
    for fact in step.facts:
        yield f"       as {fact.text}   [{fact.rule}]"
    if step.note:
        yield f"       {step.note}"
    if step.max_error is not None:
        yield (
            f"       error {step.max_error:.1e} of {step.samples} samples "
            f"(the source's own rounding: {step.rounding or 0.0:.1e}); checked: {step.check}"
        )


def _place(step: Step) -> str:
    if step.place is None:
        return ""
    p = step.place
    where = f"in {p.definition}, line {p.line}" if p.line else f"in {p.tensor}"
    return f"  {where}" + (f", at {p.count} places" if p.count > 1 else "")
