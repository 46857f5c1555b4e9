"""The rule packs on disk: which there are, and loading them by name or path."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from nautile.errors import InputError, LimitError, SourceError

from .egglog import print_rule
from .law import Rule
from .parser import BYTES, parse

__all__ = [
    "CLASSES",
    "OPTIONAL",
    "check_distinct",
    "describe",
    "load",
    "packs",
    "select",
    "version",
]

_HOME = Path(__file__).parent
OPTIONAL = ("casts", "identities", "masks")  # packs that are loaded by name alone
CLASSES: dict[str, tuple[str, ...]] = {
    "exact": ("exact",),
    "real": ("exact", "real"),
    "fast": ("exact", "real", "fast"),
}


def packs() -> dict[str, Path]:
    """The shipped packs by name."""
    return {path.stem: path for path in sorted(_HOME.glob("*.nau"))}


def load(
    names: Iterable[str | Path] | None = None, *, classes: Iterable[str] | None = None
) -> tuple[Rule, ...]:
    """The rules of packs given by shipped name or by path, all shipped packs but `OPTIONAL` ones
    when left out; of the given numerics classes alone, where given (see `select`).

    Raises InputError for an unknown pack or an unreadable file, SourceError for a malformed one and
    for a rule's name that two packs share.
    """
    shipped = packs()
    rules: list[Rule] = []
    for name in (n for n in shipped if n not in OPTIONAL) if names is None else names:
        path = shipped.get(str(name), Path(name))
        rules += _parsed(_read(path, str(name), shipped), path.stem, str(path))
    check_distinct(rules)
    return tuple(rules) if classes is None else select(rules, classes)


@lru_cache(maxsize=64)
def _parsed(text: str, pack: str, filename: str) -> tuple[Rule, ...]:
    """A pack's rules; whoever optimizes many programs reads the same packs again and again."""
    return tuple(parse(text, pack=pack, filename=filename))


def select(rules: Iterable[Rule], numerics: str | Iterable[str] = "real") -> tuple[Rule, ...]:
    """The rules that a numerics class allows: exact, real (with exact) or fast (with both), or an
    explicit collection of classes. Facts come along wherever the reals do, as they serve nothing
    else."""
    if isinstance(numerics, str):
        if numerics not in CLASSES:
            raise InputError(f"unknown numerics {numerics}; it is one of {', '.join(CLASSES)}")
        numerics = CLASSES[numerics]
    allowed = set(numerics)
    if allowed & {"real", "fast"}:
        allowed.add("facts")
    return tuple(rule for rule in rules if rule.numerics in allowed)


def describe(rule: Rule) -> str:
    """A rule for people: its law, class, comment, place and the egglog text made of it."""
    head = f"{rule.name}  ({rule.numerics}, pack {rule.pack}, {rule.filename}:{rule.line})"
    body = [f"    {rule.text}", *([f"    {rule.doc}"] if rule.doc else []), ""]
    return "\n".join([head, *body, *(printed.text for printed in print_rule(rule, 0))])


def _read(path: Path, name: str, shipped: dict[str, Path]) -> str:
    if not path.is_file():
        raise InputError(f"no rule pack {name}; shipped are {', '.join(shipped)}", code="pack")
    if path.stat().st_size > BYTES:
        raise LimitError(f"{path}: a pack of rules may hold {BYTES} bytes")
    try:
        return path.read_text(encoding="utf-8")
    except (UnicodeDecodeError, OSError) as error:
        raise InputError(f"{path}: not a readable text file ({error})", code="pack") from None


def version(names: Iterable[str | Path] | None = None) -> str:
    """A digest of the packs' texts (of those that are always loaded when left out), for the keys of
    caches."""
    shipped = packs()
    digest = hashlib.blake2b(digest_size=16)
    for name in (n for n in shipped if n not in OPTIONAL) if names is None else names:
        text = _read(shipped.get(str(name), Path(name)), str(name), shipped).encode()
        digest.update(f"{len(text)}:".encode() + text)
    return digest.hexdigest()


def check_distinct(rules: Iterable[Rule]) -> None:
    """Refuse a name that two packs share."""
    first: dict[str, Rule] = {}
    for rule in rules:
        other = first.setdefault(rule.name, rule)
        if other is not rule:
            raise SourceError(
                f"{rule.name} is already defined in {other.filename}:{other.line}",
                code="duplicate",
                filename=rule.filename,
                line=rule.line,
                column=5,
                text=f"    {rule.text}",
            )
