"""What a question asks for.

```
Question ::= "17" | "c17" | "#17" | "candidate 17"        a candidate of the table
           | "kernel NAME" | "one kernel [for O, ..]" | "one kernel for TERM"      a kernel
           | ["stored"|"store"] NAME, .. | stored TERM    tensors in memory
           | "rule NAME" | NAME of a rule | PACK:RULE     a rule
           | expression                                   a term (see reading.py)
```

A bare name is a definition before it is a kernel, and a kernel before it is a rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

from nautile.errors import InputError, LimitError

from .inquiry import Inquiry
from .reading import LONGEST

__all__ = [
    "Candidates",
    "Kernel",
    "OneKernel",
    "RuleNamed",
    "Stored",
    "StoredTerm",
    "Text",
    "understood",
]

_CANDIDATE = re.compile(r"(?:candidate\s+|c|#)?(\d{1,9})", re.IGNORECASE)
_ONE = re.compile(r"(?:a\s+single|single|one)\s+kernel(?:\s+for\s+(.+))?", re.IGNORECASE)
_KERNEL = re.compile(r"kernel\s+(\w+)", re.IGNORECASE)
_STORED = re.compile(r"(?:store|stored|storing)\s+(.+)", re.IGNORECASE)
_AFTER = re.compile(r"(.+?)\s+(?:is\s+)?(?:not\s+)?stored", re.IGNORECASE)
_RULE = re.compile(r"rule\s+([\w:]+)", re.IGNORECASE)
_NAME = re.compile(r"[^\W\d]\w*")
_PACKED = re.compile(r"\w+:\w+")
FORMS = (
    "ask for a candidate (`17`), a kernel (`one kernel for O`, `kernel O_part1`), stored tensors "
    "(`p`, `stored p, m`), a term (`sum[s](exp(x[t,s]))`) or a rule (`rule go_online`)"
)


@dataclass(frozen=True, slots=True)
class Candidates:
    """A candidate of the choice, by number."""

    number: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of the chosen program or of a runner-up, by name."""

    name: str


@dataclass(frozen=True, slots=True)
class OneKernel:
    """One kernel that makes these results from inputs alone."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OneKernelTerm:
    """One kernel that computes a whole term."""

    text: str


@dataclass(frozen=True, slots=True)
class Stored:
    """These definitions as tensors in memory."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoredTerm:
    """A term's value as a tensor in memory."""

    text: str


@dataclass(frozen=True, slots=True)
class RuleNamed:
    """A rule, by name."""

    name: str


@dataclass(frozen=True, slots=True)
class Text:
    """A term, still to be read."""

    text: str


Question = Candidates | Kernel | OneKernel | OneKernelTerm | Stored | StoredTerm | RuleNamed | Text


def understood(text: str, inquiry: Inquiry, rules: Iterable[str]) -> Question:
    """What a question's text asks for; `rules` are the names that a rule may have.

    Raises InputError (code "unknown-question") with what may be asked and the nearest name.
    """
    if len(text) > LONGEST:
        raise LimitError(f"a question of {len(text)} characters; at most {LONGEST} are read")
    words = " ".join(text.split())
    if not words:
        raise InputError(f"an empty question: {FORMS}", code="unknown-question")
    if found := _CANDIDATE.fullmatch(words):
        return Candidates(int(found[1]))
    if found := _ONE.fullmatch(words):
        if found[1] and not _are_names(found[1]):
            return OneKernelTerm(found[1])
        return OneKernel(_names(found[1], inquiry) if found[1] else _outputs(inquiry))
    if found := _KERNEL.fullmatch(words):
        return Kernel(found[1])
    if found := _STORED.fullmatch(words) or _AFTER.fullmatch(words):
        if not _are_names(found[1]):
            return StoredTerm(found[1])
        return Stored(_names(found[1], inquiry))
    if found := _RULE.fullmatch(words):
        return RuleNamed(found[1])
    return _bare(words, inquiry, set(rules))


def _bare(words: str, inquiry: Inquiry, rules: set[str]) -> Question:
    """A name alone, several names, or a term."""
    if _PACKED.fullmatch(words):
        return RuleNamed(words)
    names = [n.strip() for n in words.split(",")]
    if not all(_NAME.fullmatch(n) for n in names):
        return Text(words)
    known = _tensors(inquiry)
    if all(n in known for n in names):
        return Stored(tuple(names))
    if len(names) == 1 and words in kernel_names(inquiry):
        return Kernel(words)
    if len(names) == 1 and words in rules:
        return RuleNamed(words)
    strange = next(n for n in names if n not in known)
    if len(names) == 1 and strange in {a.name for d in inquiry.program.definitions for a in d.axes}:
        return Text(words)
    raise unknown(strange, [*known, *kernel_names(inquiry), *rules])


def _are_names(text: str) -> bool:
    return all(_NAME.fullmatch(n.strip()) for n in text.split(","))


def unknown(name: str, known: Iterable[str]) -> InputError:
    """The error for a name that nothing has."""
    near = get_close_matches(name[:100], sorted(set(known)), 1)
    hint = f" Did you mean {near[0]}?" if near else ""
    message = f"nothing here is named {name[:100]!r}.{hint} {FORMS[0].upper()}{FORMS[1:]}"
    return InputError(message, code="unknown-question")


def _names(text: str, inquiry: Inquiry) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(n.strip().strip("{}`'\"") for n in text.split(",")))
    known = _tensors(inquiry)
    for name in names:
        if name not in known:
            raise unknown(name, known)
    return names


def _tensors(inquiry: Inquiry) -> list[str]:
    p = inquiry.program
    return list(
        dict.fromkeys(
            [d.name for d in p.definitions]
            + [o.buffer.name for o in p.outputs]
            + [b.name for b in p.inputs]
        )
    )


def _outputs(inquiry: Inquiry) -> tuple[str, ...]:
    return tuple(o.buffer.name for o in inquiry.program.outputs)


def kernel_names(inquiry: Inquiry) -> list[str]:
    """The kernels of the chosen program and of the runners-up."""
    plans = [inquiry.plan.kernels, *(kernels for _, kernels in inquiry.plan.runners_up)]
    return list(dict.fromkeys(k.name for kernels in plans for k in kernels))
