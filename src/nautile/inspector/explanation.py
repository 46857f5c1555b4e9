"""Everything that is known about why a program was chosen, as one object.

```
Explanation ::= what was chosen and what it costs, runners-up, candidates, margins, derivation,
                saturation's course, measurements, answers to why-not questions
```

`as_dict` is the JSON object of `nautile explain --json`, `as_text` the same in a page of words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nautile import lang
from nautile.errors import NautileError
from nautile.extract.costs import kernel_cost
from nautile.extract.kernel import Kernel
from nautile.report import as_dict as result_dict
from nautile.report import failure as result_failure
from nautile.report import kernel_dict
from nautile.stages import Optimization, optimize
from nautile.terms import Program

from .candidates import Row, rows
from .course import course
from .listing import left_side, program_text, steps
from .margins import Margin, Margins
from .margins import margins as margins_of
from .measured import Timing
from .runners import runners_up
from .subject import Subject, ready
from .wording import beaten_words, margin_words

if TYPE_CHECKING:
    from nautile.worker import Worker

__all__ = ["Explanation", "command", "explain", "failure", "why_not"]

_TERM = 400  # operations of a kernel's term that are printed


@dataclass(frozen=True)
class Explanation:
    """One program's explanation. `derivation` is that of `inspector.derivation`, None where it was
    not asked for; `error` is what kept a later stage (building, certifying, deriving) from ending;
    `answers` are those of `inspector.why_not`."""

    subject: Subject
    rows: tuple[Row, ...]
    margins: Margins | None
    derivation: Any = None
    measured: tuple[Timing, ...] = ()
    answers: tuple[Any, ...] = ()
    error: NautileError | None = None
    reproduce: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def result(self) -> Optimization:
        return self.subject.result

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of one program."""
        plan, whole = self.subject.plan, result_dict(self.result)
        derived = {} if self.derivation is None else self.derivation.as_dict()
        closest = None if self.margins is None else self.margins.closest
        saturation = dict(whole["saturation"] or {})
        found = {
            "program": whole["program"],
            "source": whole["source"],
            "key": whole["key"],
            "target": whole["target"],
            "numerics": whole["numerics"],
            "status": "ok" if self.error is None else "error",
            "error": None if self.error is None else self.error.as_dict(),
            "text": lang.show(self.result.program),
            "chosen": self._chosen(whole["chosen"]),
            "baseline": whole["baseline"],
            "bound": plan.bound,
            "gap": plan.gap,
            "pruned": dict(plan.pruned),
            "runners_up": runners_up(self.subject),
            "candidates": [r.as_dict() for r in self.rows],
            "margin": None if closest is None else self._margin(closest),
            "margins": self._margins(),
            "derivation": derived.get("derivation", []),
            "rules_needed": derived.get("rules_needed", []),
            **{k: v for k, v in derived.items() if k not in ("derivation", "rules_needed")},
            "saturation": saturation | {"course": course(self.result.snapshots)},
            "certificate": whole["certificate"],
            "measured": [t.as_dict() for t in self.measured],
            "why_not": [a.as_dict() for a in self.answers],
            "reproduce": self.reproduce,
            **self.extra,
        }
        return {name: _finite(value) for name, value in found.items()}

    def as_text(self) -> str:
        """The explanation in words, 100 columns wide."""
        from .text import as_text

        return as_text(self)

    def _chosen(self, chosen: dict[str, Any]) -> dict[str, Any]:
        """The plan as `optimize` has it, with texts, costs and source lines."""
        rows = zip(chosen["kernels"], self.subject.plan.kernels, strict=True)
        text = program_text(self.result.work, self.subject.plan.kernels)
        return chosen | {"text": text, "kernels": [row | self.kernel(k) for row, k in rows]}

    def kernel(self, kernel: Kernel) -> dict[str, Any]:
        """What is told of a kernel beyond `optimize`'s figures."""
        subject = self.subject
        return {
            "terms": [
                {
                    "output": o.buffer.name,
                    "axes": [a.name for a in o.axes],
                    "left": left_side(o.buffer.name, o.axes),
                    "text": lang.show_term(o.term, _TERM),
                    "steps": list(steps(o, subject.names)),
                }
                for o in kernel.outputs
            ],
            **kernel_cost(kernel, subject.device, subject.numerics),
            "source_lines": subject.lines(kernel),
            "columns": [f"c{k}" for k in kernel.columns],
        }

    def _margin(self, margin: Margin) -> dict[str, Any]:
        pool = self.subject.choice.pool
        own = self._runner(margin.columns)
        kernels = self.subject.renamed(margin.kernels)
        shown = [f"c{k}" if k < len(pool.columns) else f"d{k - len(pool.columns)}"
                 for k in margin.columns]  # fmt: skip
        return {
            "resource": margin.resource,
            "factor": margin.factor,
            "kernel": margin.kernel,
            "runner_up": own,
            "columns": shown,
            "program": program_text(self.result.work, kernels) if kernels else None,
            "kernels": [kernel_dict(k) for k in kernels],
            "chosen_seconds": margin.chosen_seconds,
            "seconds": margin.seconds,
            "checked": margin.checked,
            "how": margin.how,
            "text": margin_words(margin),
        }

    def _margins(self) -> list[dict[str, Any]]:
        """Of the choice by resource and kernel, then of each runner-up by resource."""
        if self.margins is None:
            return []
        own = [{"kind": "choice"} | self._margin(m) for m in self.margins.choice]
        theirs = [
            {
                "kind": "runner_up",
                "resource": b.resource,
                "factor": b.factor,
                "runner_up": f"r{b.runner_up + 1}",
                "text": beaten_words(b),
            }
            for b in self.margins.runners_up
        ]
        return [*own, *theirs]

    def _runner(self, columns: Sequence[int]) -> str | None:
        """The runner-up that is this set of columns."""
        for n, other in enumerate(self.subject.choice.others):
            if set(other.columns) == set(columns):
                return f"r{n + 1}"
        return None


def explain(
    result: Optimization | Program | str,
    worker: Worker | None = None,
    *,
    derivation: bool = True,
    margin: bool = True,
    again: bool = True,
    thorough: bool = False,
    questions: Sequence[str] = (),
    measured: Sequence[Path | str | Timing] = (),
    reproduce: str = "",
    error: NautileError | None = None,
) -> Explanation:
    """Why this program was chosen.

    `result` is an optimization, or a program (or the text of one) that is optimized first. Stages
    up to the choice are run where they have not been. `derivation` and `margin`
    may be left out, as they take longest; with `again` the closest margin is checked by whole
    choices, with `thorough` candidates for other prices take part in all of them. `questions` are
    asked why they are not so (see `inspector.why_not`); `measured` are bundles' folders or files
    that `nautile bench --json` wrote. Raises what the stages raise, and InputError for a question
    or a measurement that cannot be read.
    """
    from .measured import timings

    result = result if isinstance(result, Optimization) else optimize(result, worker=worker)
    subject = ready(result, worker)
    times = timings(measured, subject)
    found, failed = _derived(result, worker) if derivation else (None, None)
    return Explanation(
        subject,
        rows(subject.choice, subject.places, subject.device),
        margins_of(result, again=again, thorough=thorough) if margin else None,
        found,
        times,
        _answers(result, questions, worker),
        error or failed,
        reproduce or command(result),
    )


def why_not(result: Optimization, question: str, *, worker: Worker | None = None) -> Any:
    """Why the chosen program is not as the question would have it: an `Answer` of
    `inspector.why_not`. Stages up to the choice are run where they have not been."""
    from .why_not import why_not as ask

    ready(result, worker)
    return ask(result, question, worker=worker)


def _derived(result: Optimization, worker: Worker | None) -> tuple[Any, NautileError | None]:
    """The derivation, or the error that kept it from being found."""
    from .derivation import derive

    try:
        return derive(result, worker), None
    except NautileError as error:
        return None, error


def _answers(
    result: Optimization, questions: Sequence[str], worker: Worker | None
) -> tuple[Any, ...]:
    if not questions:
        return ()
    from .why_not import why_not

    return tuple(why_not(result, question, worker=worker) for question in questions)


def _finite(value: Any) -> Any:
    """The value with null for numbers that JSON lacks."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    return [_finite(v) for v in value] if isinstance(value, (list, tuple)) else value


def failure(program: Program | None, source: str, error: NautileError) -> dict[str, Any]:
    """The object of an input of which no program was chosen."""
    empty: dict[str, Any] = {
        "text": None if program is None else lang.show(program),
        "bound": None,
        "gap": None,
        "pruned": {},
        "runners_up": [],
        "candidates": [],
        "margin": None,
        "margins": [],
        "derivation": [],
        "rules_needed": [],
        "measured": [],
        "why_not": [],
        "reproduce": None,
    }
    return result_failure(program, source, error) | empty


def command(result: Optimization) -> str:
    """The command line that explains the result again."""
    import shlex

    from nautile.options import Options

    o, default = result.options, Options()
    words = ["nautile", "explain", result.program.filename]
    sizes = ",".join(f"{name}={n}" for name, n in result.program.sizes.items())
    words += ["--dims", sizes] if sizes else []
    words += ["--target", o.target] if o.target != default.target else []
    words += ["--numerics", o.numerics] if o.numerics != default.numerics else []
    words += [w for pack in o.rules for w in ("--rules", pack)]
    words += [w for rule in o.accept for w in ("--accept", rule)]
    words += ["--seconds", f"{o.seconds:g}"] if o.seconds != default.seconds else []
    words += ["--rows", str(o.rows)] if o.rows != default.rows else []
    return shlex.join(words)
