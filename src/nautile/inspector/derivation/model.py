"""A derivation as data.

```
Derivation ::= steps from the source to the kernels' terms, rules needed, gaps
Step       ::= rule (a law's name, or what the engine does), place, before, after, facts
```

`rule` of a step that is no law's names what the engine does (`law` is None there):

    apart      axes that a product needs taken apart, compared definition by definition
    cut        definitions written into the terms that read them, the program cut into regions
    literals   whole numbers among floats written as floats
    fold       arithmetic on constants
    store      chosen terms stored as tensors
    widen      narrow operands as f32 where a neighbour may not be rounded to their type
    narrow     tensors in the narrow type that all their readers round them to
    split      a reduction in chunks, and what merges them
    operands   operands rounded to the type that the tensor cores multiply
    gap        no derivation was found for this part; why, is told
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from nautile.terms import Output, Term

from .shown import Names, brief, text_of

__all__ = ["Derivation", "Fact", "Gap", "Place", "Step"]


@dataclass(frozen=True, slots=True)
class Fact:
    """What licenses a step: a law about dependence (or a rewrite that a running form took), and
    the relation that it states of these terms."""

    rule: str
    law: str
    pack: str
    text: str

    def as_dict(self) -> dict[str, Any]:
        return {"rule": self.rule, "law": self.law, "pack": self.pack, "text": self.text}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a step happens: the stored tensor, the way down to the first place (numbers of parts),
    how many places there are, and the definition and line of the source that the term stands in."""

    tensor: str
    path: tuple[int, ...]
    count: int
    definition: str | None = None
    line: int | None = None

    def as_dict(self) -> dict[str, Any]:
        return {
            "tensor": self.tensor,
            "path": list(self.path),
            "count": self.count,
            "definition": self.definition,
            "line": self.line,
        }


@dataclass(frozen=True)
class Step:
    """One step. `before` and `after` are what is stored, as terms; `redex` becomes `contractum`
    (None for what concerns whole programs). `check` tells how the step was checked by itself:
    "alone" (its law alone makes both sides equal), "known" (with what analyses know of classes),
    "equal" (written out, both are the same terms), "numbers" (by the oracle alone), or "failed".
    `max_error` is the largest relative error of the program after the step against the source, in
    float64; `rounding` what the source itself loses in its stated types."""

    rule: str
    name: str
    before: tuple[Output, ...]
    after: tuple[Output, ...]
    region: int | None = None
    law: str | None = None
    numerics: str | None = None
    pack: str | None = None
    forward: bool = True
    place: Place | None = None
    redex: Term | None = None
    contractum: Term | None = None
    facts: tuple[Fact, ...] = ()
    check: str = ""
    max_error: float | None = None
    rounding: float | None = None
    samples: int = 0
    note: str = ""
    names: Names = field(default_factory=dict, repr=False, compare=False)
    given: tuple[str, str] | None = field(default=None, repr=False)

    @cached_property
    def before_text(self) -> str:
        """The program before the step, in the expression language."""
        return self.given[0] if self.given else text_of(self.name, self.before, self.names)

    @cached_property
    def after_text(self) -> str:
        """The program after the step."""
        return self.given[1] if self.given else text_of(self.name, self.after, self.names)

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of a step (`nautile explain --json`, "derivation")."""
        return {
            "rule": self.rule,
            "law": self.law,
            "numerics": self.numerics,
            "pack": self.pack,
            "direction": "forward" if self.forward else "backward",
            "region": self.region,
            "place": None if self.place is None else self.place.as_dict(),
            "redex": self._part(self.redex),
            "contractum": self._part(self.contractum),
            "before": self.before_text,
            "after": self.after_text,
            "facts": [fact.as_dict() for fact in self.facts],
            "check": self.check,
            "max_error": self.max_error,
            "source_rounding": self.rounding,
            "samples": self.samples,
            "note": self.note,
        }

    def _part(self, term: Term | None) -> str | None:
        return None if term is None else brief(term, self.names)


@dataclass(frozen=True, slots=True)
class Gap:
    """What could not be derived: the region (None: between finished kernels), and why."""

    region: int | None
    reason: str

    def as_dict(self) -> dict[str, Any]:
        return {"region": self.region, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Derivation:
    """See the module's docstring. `rules_needed` are names of laws of which none can be left out;
    `facts_needed` are those of them that state facts; `smallest` says that no smaller set reaches
    the program, `alternatives` are others as small."""

    program: str
    steps: tuple[Step, ...]
    rules_needed: tuple[str, ...]
    smallest: bool
    alternatives: tuple[tuple[str, ...], ...] = ()
    gaps: tuple[Gap, ...] = ()
    facts_needed: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def complete(self) -> bool:
        """Whether every step was found, and none failed its checks."""
        return not self.gaps and all(step.check != "failed" for step in self.steps)

    def as_dict(self) -> dict[str, Any]:
        """The fields that `nautile explain --json` has of a derivation."""
        return {
            "derivation": [step.as_dict() for step in self.steps],
            "rules_needed": list(self.rules_needed),
            "facts_needed": list(self.facts_needed),
            "rules_smallest": self.smallest,
            "rules_alternatives": [list(names) for names in self.alternatives],
            "derivation_complete": self.complete,
            "derivation_gaps": [gap.as_dict() for gap in self.gaps],
        }

    def as_text(self) -> str:
        """The steps for people."""
        from .wording import derivation_text

        return derivation_text(self)
