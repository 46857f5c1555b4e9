"""`nautile rules list|show|check`: looking at rewrite rules, and whether they are sound."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nautile.errors import InputError

if TYPE_CHECKING:
    from nautile.rules import Rule
    from nautile.rules.check import Verdict

__all__ = ["rules_app"]

rules_app = typer.Typer(no_args_is_help=True, help="Look at the rewrite rules.")
_REASONS = {
    "float32 bits": "the bits differ",
    "float64 undefined": "the left side has no value and the right one does",
    "float32 finite": "the left side is finite and the right one is not",
    "float32 error": "the right side loses digits that the left one keeps",
    "blocks": "the sides differ where the stream is taken block by block",
    "float64, within the bound": "off by more than the law states",
}
Json = Annotated[bool, typer.Option("--json", help="One JSON object a rule, one a line.")]


@rules_app.command("list")
def rules_list(pack: Annotated[str | None, typer.Argument()] = None, as_json: Json = False) -> None:
    """List rules: pack, numerics class, name and law."""
    from nautile import rules

    for rule in rules.load(rules.packs() if pack is None else (pack,)):
        row: dict[str, Any] = {
            "rule": rule.name, "pack": rule.pack, "class": rule.numerics, "law": rule.text
        }  # fmt: skip
        if as_json:
            more = {"applied": rule.is_applied, "deprecated": rule.deprecated or None}
            print(json.dumps(row | more))
        else:
            note = "" if rule.is_applied else "  (stated only)"
            note += f"  (deprecated: use {rule.deprecated})" if rule.deprecated else ""
            print(f"{rule.pack:14} {rule.numerics:6} {rule.name:24} {rule.text}{note}")


@rules_app.command("show")
def rules_show(name: Annotated[str, typer.Argument(help="RULE or PACK:RULE.")]) -> None:
    """Show one rule: its law, class, comment and the e-graph text made of it."""
    from nautile import rules

    found = [r for r in rules.load(rules.packs()) if name in (r.name, f"{r.pack}:{r.name}")]
    if not found:
        raise InputError(f"no rule {name!r}; see `nautile rules list`", code="unknown-name")
    for rule in found:
        print(rules.describe(rule))


@rules_app.command("check")
def rules_check(
    what: Annotated[
        list[str] | None, typer.Argument(help="PACK, PACK:RULE, RULE or FILE; all packs if none.")
    ] = None,
    as_json: Json = False,
    trials: Annotated[
        int, typer.Option(min=1, max=100_000, help="Instances of each law for each method.")
    ] = 64,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random instances.")] = 0,
    seconds: Annotated[
        float, typer.Option(min=0.1, max=86_400, help="Time after which a law has no verdict.")
    ] = 30.0,
) -> None:
    """Decide whether rules are sound in their stated class; counterexamples are made small.

    Exit status: 0 if every rule is sound, 3 if not (no verdict included), 2 for a malformed pack.
    """
    from nautile.rules.check import check

    verdicts: list[Verdict] = []
    wanted = list(_wanted(what or []))
    if not as_json:
        print(f"{'verdict':10} {'rule':28} {'class':7} {'instances':>9} {'time':>7}  how")
    for rule in wanted:
        verdict = check(rule, trials=trials, seed=seed, seconds=seconds)
        verdicts.append(verdict)
        print(json.dumps(verdict.as_dict()) if as_json else "\n".join(_lines(rule, verdict)))
        sys.stdout.flush()
    if not as_json:
        print(_summary(verdicts))
    raise typer.Exit(0 if all(v.verdict == "sound" for v in verdicts) else 3)


def _wanted(what: Sequence[str]) -> Iterator[Rule]:
    """The rules that arguments name, in the order of the arguments, each once."""
    from nautile import rules

    seen: set[tuple[str, str]] = set()
    for found in [_named(w) for w in what] or [rules.load(rules.packs())]:
        for rule in found:
            if (rule.filename, rule.name) not in seen:
                seen.add((rule.filename, rule.name))
                yield rule


def _named(what: str) -> tuple[Rule, ...]:
    from nautile import rules

    if what in rules.packs() or Path(what).is_file():
        return rules.load((what,))
    pack, _, name = what.rpartition(":")
    if pack and (pack in rules.packs() or Path(pack).is_file()):
        found = tuple(r for r in rules.load((pack,)) if r.name == name)
    else:
        found = tuple(r for r in rules.load(rules.packs()) if r.name == what)
    if not found:
        message = f"no pack, rule or file {what!r}; see `nautile rules list`"
        raise InputError(message, code="unknown-name")
    return found


def _lines(rule: Rule, verdict: Verdict) -> Iterator[str]:
    """A verdict for people."""
    mark = {"sound": "ok", "unsound": "UNSOUND", "unknown": "NO VERDICT"}[verdict.verdict]
    yield (
        f"{mark:10} {f'{rule.pack}:{rule.name}':28} {verdict.stated:7} {verdict.tried:9} "
        f"{verdict.seconds:5.1f} s  {_how(verdict)}"
    )
    if verdict.established not in (verdict.stated, "none"):
        better = ", too" if verdict.verdict == "sound" else ""
        yield f"           it holds as {verdict.established}{better}"
    if verdict.verdict != "sound":
        yield f"           {rule.text}"
    if verdict.counterexample is not None:
        yield from (f"           {line}" for line in _counterexample(verdict.counterexample))
    if verdict.missing_condition:
        yield f"           sound with: {verdict.missing_condition}"
    if rule.deprecated:
        yield f"           deprecated: use {rule.deprecated}"
    if not rule.is_applied:
        yield "           stated only: an e-graph has no place for the axis that it makes"


def _how(verdict: Verdict) -> str:
    """What a sound law passed, why an unsound one is none, why another has no verdict."""
    if verdict.verdict == "sound":
        proof, *tried = verdict.method.split(", ", 1) if verdict.proved else ["", verdict.method]
        return "; ".join([*filter(None, [proof]), *(f"passed {t}" for t in tried)])
    if verdict.verdict == "unsound":
        return f"{verdict.method}: {_REASONS.get(verdict.method, 'the sides differ')}"
    return verdict.method


def _counterexample(shown: dict[str, Any]) -> Iterator[str]:
    extents = ", ".join(f"{a} = {n}" for a, n in shown["extents"].items())
    yield f"in {shown['type']}" + (f", extents {extents}" if extents else "")
    for name, value in shown["values"].items():
        if isinstance(value, dict):
            yield f"{name}[{', '.join(value['axes'])}] = {value['data']}"
        else:
            yield f"{name} = {value}"
    at = ", ".join(f"{a} = {i}" for a, i in shown["at"].items())
    yield f"left {shown['left']}, right {shown['right']}" + (f" at {at}" if at else "")
    yield shown["reproduce"]


def _summary(verdicts: Sequence[Verdict]) -> str:
    counts = {v: sum(x.verdict == v for x in verdicts) for v in ("sound", "unsound", "unknown")}
    proved = sum(v.proved for v in verdicts)
    share = f"{proved / len(verdicts):.0%}" if verdicts else "none"
    return (
        f"{len(verdicts)} rules: {counts['sound']} sound, {counts['unsound']} unsound, "
        f"{counts['unknown']} without a verdict; {proved} proved ({share}); "
        f"{sum(v.seconds for v in verdicts):.1f} s"
    )
