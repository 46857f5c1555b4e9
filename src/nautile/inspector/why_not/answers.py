"""What is told of a question.

```
Answer ::= program, question, kind, subject, reason, forced: the program it would have forced | None
Reason ::= code, text, evidence
kind   ::= candidate | kernel | stored | term | rule
```

| code | the reason |
|---|---|
| chosen | it is part of the chosen program |
| dearer | the program that it forces takes longer, by so much |
| tied | the model cannot tell the program that it forces from the chosen one |
| dominated | a named candidate makes as much of no more, for less |
| beam | the search left it out before the choice (its rank among the forms of its value) |
| infeasible | no tiling fits the device: the limit, and the least that it needs |
| form | no kernel has a place for all that it joins |
| open | a running value stands open in it: no online sum ends it |
| unstorable | it cannot, or need not, be a tensor in memory |
| unreachable | it is there, but no kernel of the program's results uses it |
| cut | the program is stored in between, where regions end |
| absent | the e-graph does not hold it: what is nearest, and the premise that fails |
| unequal | it differs from every value of the program, by values |
| numerics | rules of a higher numerics class make it |
| pack | rules of a pack that is loaded by name alone make it |
| rounding | a rounding that the contract does not allow |
| certificate | the program that it forces fails its certificate |
| lowering | the program that it forces does not lower |
| gate | the compiler's gate refuses the program that it forces |
| compile | the compiler itself does, for an architecture that was asked for |
| input | it is an input: it is read where it is needed |
| matched | (a rule) it matched |
| unmatched | (a rule) it never matched: where it came closest |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nautile.report import quantity

from .forcing import Forced

__all__ = ["CODES", "Answer", "Reason"]

CODES = (
    "chosen", "dearer", "tied", "dominated", "beam", "infeasible", "form", "open",
    "unstorable", "unreachable", "cut", "absent", "unequal", "numerics", "pack", "rounding",
    "certificate", "lowering", "gate", "compile", "input", "matched", "unmatched",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reason:
    """A code of the module's table, a sentence, and what it rests on (plain JSON)."""

    code: str
    text: str
    evidence: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return {"code": self.code, "text": self.text, "evidence": dict(self.evidence)}


@dataclass(frozen=True, slots=True)
class Answer:
    """Why something is, or is not, in the chosen program; `subject` says in the expression language
    what the question was taken to mean."""

    program: str
    question: str
    kind: str
    subject: str
    reason: Reason
    forced: Forced | None = None
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """The answer as plain JSON; `chosen_seconds` are those of the chosen program."""
        return {
            "program": self.program,
            "question": self.question,
            "kind": self.kind,
            "subject": self.subject,
            "reason": self.reason.as_dict(),
            "forced": None if self.forced is None else self.forced.as_dict(),
            "chosen_seconds": self.seconds,
        }

    def as_text(self) -> str:
        """The answer for people."""
        lines = [f"{self.program}: why not {self.question}", f"  {self.kind:<9} {self.subject}"]
        lines.append(f"  {self.reason.code:<9} {self.reason.text}")
        if "instead" in self.reason.evidence:
            lines.append(f"  instead   {self.reason.evidence['instead']}")
        if self.forced is not None:
            f = self.forced
            lines.append(
                f"  forced    {quantity(f.seconds, 's')} in {len(f.kernels)} kernel(s), chosen "
                f"{quantity(self.seconds, 's')} ({f.slower_by:+.1%})"
            )
            lines += [f"    {line}" for line in _wrapped(f.brief)]
        return "\n".join(lines)


def _wrapped(text: str) -> list[str]:
    """Lines of a program, the longest cut short."""
    return [x if len(x) <= 200 else f"{x[:197]}..." for x in text.splitlines()]
