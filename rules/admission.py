"""A user's rule packs: checked before they are used, refused where they are not sound.

A rule of a user's pack joins the shipped ones if the checker finds it sound in its class, or if the
user accepts it by name; approximate laws join by name alone. What was accepted is told to the
certificate. Verdicts are kept on disk, in `$NAUTILE_CACHE/rules` or the user's cache folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nautile.errors import InputError

from .law import Rule
from .library import check_distinct, load, packs, select

__all__ = ["Admitted", "admit"]

_HOME = Path(__file__).parent
_JUDGES = ("check", "trials", "exactly", "instance", "setting", "values", "search", "proof")


@dataclass(frozen=True, slots=True)
class Admitted:
    """The rules that an optimization may use, and the names of those that the user accepted though
    the checker does not call them sound, each with its verdict."""

    rules: tuple[Rule, ...]
    accepted: tuple[tuple[str, str], ...] = ()


def admit(
    names: Iterable[str] | None,
    own: Sequence[str],
    accept: Sequence[str],
    classes: Iterable[str],
) -> Admitted:
    """The rules of the packs `names` (None: those that are always loaded) and of the packs `own`
    (shipped names or the user's files), of some numerics classes.

    Raises InputError, code "unsound-rule", for a user's rule that is not found sound and that
    `accept` does not name; code "unknown-name" where `accept` names no rule of these packs;
    SourceError for a malformed pack, and for a name that two packs share.
    """
    base = load(names)
    if not own and not accept:
        return Admitted(select(base, classes))
    added = [(pack, rule) for pack in own for rule in load((pack,))]
    for pack in own:
        if pack not in packs() and Path(pack).stem in packs():
            message = f"{pack}: {Path(pack).stem} is a shipped pack's name"
            raise InputError(message, code="duplicate")
    check_distinct([*base, *(rule for _, rule in added)])
    known = {rule.name for _, rule in added}
    strange = [name for name in accept if name not in known]
    if strange:
        raise InputError(
            f"--accept {strange[0]}: no rule of that name in the packs given by --rules",
            code="unknown-name",
        )
    allowed = set(select([r for _, r in added], classes))
    allowed |= {r for _, r in added if r.numerics == "approx" and r.name in accept}
    asked = [r for pack, r in added if r in allowed and pack not in packs()]
    accepted = _judged(asked, set(accept))
    new = tuple(rule for _, rule in added if rule in allowed)
    return Admitted((*select(base, classes), *new), accepted)


def _judged(rules: Sequence[Rule], accept: set[str]) -> tuple[tuple[str, str], ...]:
    accepted: list[tuple[str, str]] = []
    refused: list[str] = []
    for rule in rules:
        verdict = _verdict(rule)
        if rule.name in accept and (verdict["verdict"] != "sound" or rule.numerics == "approx"):
            accepted.append((rule.name, str(verdict["verdict"])))
        elif verdict["verdict"] != "sound":
            refused.append(_why(rule, verdict))
    if refused:
        raise InputError("\n".join(refused), code="unsound-rule")
    return tuple(accepted)


def _why(rule: Rule, verdict: dict[str, Any]) -> str:
    """Why a rule is refused, and what to do."""
    found = verdict["verdict"] if verdict["verdict"] == "unsound" else "without a verdict"
    lines = [f"{rule.filename}:{rule.line}: {rule.name} is {found} ({rule.numerics}): {rule.text}"]
    shown = verdict.get("counterexample")
    if shown:
        values = ", ".join(f"{n} = {_short(v)}" for n, v in shown["values"].items())
        lines.append(f"    {values}: left {shown['left']}, right {shown['right']}")
    if verdict.get("missing_condition"):
        lines.append(f"    sound with: {verdict['missing_condition']}")
    lines.append(f"    see `nautile rules check {rule.filename}`; --accept {rule.name} takes it")
    return "\n".join(lines)


def _short(value: Any) -> str:
    return str(value["data"] if isinstance(value, dict) else value)[:60]


_KNOWN: dict[str, dict[str, Any]] = {}


def _verdict(rule: Rule) -> dict[str, Any]:
    """The verdict on a rule, from this process, the disk, or a new check."""
    key = _key(rule)
    if key not in _KNOWN:
        path = _folder(key)
        found = _read(path)
        if found is None:
            from .check import check

            found = check(rule, strongest=False).as_dict()
            _write(path, found)
        _KNOWN[key] = found
    return _KNOWN[key]


def _key(rule: Rule) -> str:
    """What a verdict depends on: the law, and the checker."""
    law = replace(rule, doc="", filename="", line=0, pack="")
    digest = hashlib.blake2b(repr(law).encode(), digest_size=20)
    for name in _JUDGES:
        digest.update((_HOME / f"{name}.py").read_bytes())
    return digest.hexdigest()


def _folder(key: str) -> Path | None:
    chosen = os.environ.get("NAUTILE_CACHE", "")
    if chosen.lower() == "off":
        return None
    home = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(home) if os.path.isabs(home) else Path(os.path.expanduser("~")) / ".cache"
    base = Path(chosen).expanduser() if chosen else root / "nautile"
    return base / "rules" / f"{key}.json"


def _read(path: Path | None) -> dict[str, Any] | None:
    if path is None:
        return None
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and "verdict" in found else None


def _write(path: Path | None, verdict: dict[str, Any]) -> None:
    """Keep a verdict; silently nothing where the folder cannot be written."""
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".tmp-")
        with os.fdopen(handle, "w") as file:
            json.dump(verdict, file)
        os.replace(name, path)
    except OSError:
        return
