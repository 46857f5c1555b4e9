"""Questions to answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from nautile import lang

from .absent import of_absent
from .answers import Answer
from .asking import (
    Candidates,
    Kernel,
    OneKernel,
    OneKernelTerm,
    Question,
    RuleNamed,
    Stored,
    StoredTerm,
    understood,
)
from .inquiry import Inquiry, Place
from .kernels import of_candidate, of_kernel, of_one_kernel
from .present import Verdict, in_one_kernel, of_term
from .reading import read_term
from .rule_asked import known_rules, of_rule
from .stores import of_stored, of_stored_term

if TYPE_CHECKING:
    from nautile.stages import Optimization
    from nautile.worker import Worker

__all__ = ["why_not"]

_SHOWN = 400  # operations of a term


def why_not(result: Optimization, question: str, worker: Worker | None = None) -> Answer:
    """Why the chosen program of `result` is not as the question would have it (see asking.py for
    what may be asked, answers.py for the reasons).

    The stages up to the choice must have run. Raises InputError for questions that cannot be
    understood (SourceError at the place of a mistake, LimitError for too long ones).
    """
    if worker is not None:
        return _answer(Inquiry(result, worker), question)
    from nautile.worker import Worker

    with Worker() as own:
        return _answer(Inquiry(result, own), question)


def _answer(inquiry: Inquiry, question: str) -> Answer:
    asked = understood(question, inquiry, (r.name for r in known_rules(inquiry)))
    kind, (subject, verdict) = _found(inquiry, asked)
    words = " ".join(question.split())
    return Answer(
        inquiry.result.program.name,
        words,
        kind,
        subject,
        verdict.reason,
        verdict.forced,
        inquiry.plan.seconds,
    )


def _found(inquiry: Inquiry, asked: Question) -> tuple[str, tuple[str, Verdict]]:
    match asked:
        case Candidates(number):
            return "candidate", of_candidate(inquiry, number)
        case Kernel(name):
            return "kernel", of_kernel(inquiry, name)
        case OneKernel(names):
            return "kernel", of_one_kernel(inquiry, names)
        case OneKernelTerm(text):
            return "kernel", _one_kernel_term(inquiry, text)
        case Stored(names):
            return "stored", of_stored(inquiry, names)
        case StoredTerm(text):
            return "stored", _stored_term(inquiry, text)
        case RuleNamed(name):
            return "rule", of_rule(inquiry, name)
    return "term", _term(inquiry, asked.text)


def _term(inquiry: Inquiry, text: str) -> tuple[str, Verdict]:
    return _read(inquiry, text, "", of_term)


def _stored_term(inquiry: Inquiry, text: str) -> tuple[str, Verdict]:
    return _read(inquiry, text, " in memory between kernels", of_stored_term)


def _one_kernel_term(inquiry: Inquiry, text: str) -> tuple[str, Verdict]:
    return _read(inquiry, text, " in one kernel", in_one_kernel)


def _read(
    inquiry: Inquiry, text: str, wanted: str, answer: Callable[[Inquiry, Place], Verdict]
) -> tuple[str, Verdict]:
    """A term where an e-graph holds it, and the answer; else why none does."""
    asked = inquiry.apart(read_term(text, inquiry.result.program))
    places = inquiry.places(asked.term)
    subject = lang.show_term(asked.term, _SHOWN) + wanted
    if places and places[0].lookup.found:
        return subject, answer(inquiry, places[0])
    return subject, of_absent(inquiry, asked, places)
