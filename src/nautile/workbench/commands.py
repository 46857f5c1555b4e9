"""`nautile rules profile|why|redundant`: the workbench on the command line."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nautile.cli_options import Dims, Files, Json, Numerics, Rows, Seconds, Target, sizes_of
from nautile.errors import InputError

if TYPE_CHECKING:
    from nautile.rules.law import Rule
    from nautile.terms import Program

__all__ = ["register"]

Packs = Annotated[
    list[Path] | None,
    typer.Option(
        "--rules", help="A rule pack to add: a file, or one that is loaded by name alone."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the workbench's commands to the app of `nautile rules`."""
    app.command("profile")(_profile)
    app.command("why")(_why)
    app.command("redundant")(_redundant)


def _profile(
    files: Files,
    packs: Packs = None,
    dims: Dims = "",
    target: Target = "h200",
    numerics: Numerics = "real",
    leave_out: Annotated[
        bool, typer.Option(help="Leave out each rule that fired, to see if the choice needs it.")
    ] = False,
    choose: Annotated[
        bool, typer.Option(help="Choose programs, to see which rules took part.")
    ] = True,
    top: Annotated[int | None, typer.Option(min=1, help="Show this many rules.")] = None,
    seconds: Seconds = 10.0,
    rows: Rows = 50_000,
    as_json: Json = False,
) -> None:
    """What each rule does to the files' programs: matches, e-nodes, time, part in the choice."""
    from nautile.egraph import Limits
    from nautile.options import Options

    from .profile import profile
    from .runs import LIMITS
    from .show import profile_text

    found = profile(
        _programs(files, dims),
        _laws(packs, numerics),
        options=Options(target=target, numerics=numerics),
        limits=Limits(rows=rows, growth=LIMITS.growth, seconds=seconds),
        choosing=choose,
        leave_out=leave_out,
        progress=_progress,
    )
    print(json.dumps(found.as_dict()) if as_json else profile_text(found, top))


def _progress(name: str) -> None:
    """Tell what is at work, where standard error is a terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{name} ...", end="", file=sys.stderr, flush=True)


def _programs(files: list[Path], dims: str) -> list[Program]:
    from nautile import lang

    return [p for path in files for p in lang.parse_file(path, dims=sizes_of(dims))]


def _laws(packs: list[Path] | None, numerics: str) -> tuple[Rule, ...]:
    """The built-in rules and those of the user's packs, of the classes that are allowed."""
    from nautile import rules
    from nautile.options import NUMERICS, Options
    from nautile.rules.library import OPTIONAL

    Options(numerics=numerics)
    default = [name for name in rules.packs() if name not in OPTIONAL]
    own = [str(p) for p in packs or [] if str(p) not in default]
    return rules.select(rules.load([*default, *own]), NUMERICS[numerics])


def _why(
    rule: Annotated[str, typer.Argument(help="RULE or PACK:RULE.", show_default=False)],
    file: Annotated[Path, typer.Argument(help="An expression file.", show_default=False)],
    packs: Packs = None,
    dims: Dims = "",
    numerics: Numerics = "real",
    as_json: Json = False,
) -> None:
    """Where a rule came closest to a match in a file's programs, and which premise failed."""
    from nautile.worker import Worker

    from .show import why_text
    from .why import why

    wanted = _named(rule, packs)
    laws = _laws(packs, numerics)
    with Worker() as worker:
        for program in _programs([file], dims):
            answer = why(wanted, program, laws, worker=worker)
            allowed = wanted in laws
            shown = why_text(answer, program, None if allowed else wanted.numerics)
            print(json.dumps(answer.as_dict() | {"allowed": allowed}) if as_json else shown)


def _redundant(
    names: Annotated[
        list[str] | None, typer.Argument(help="Rules (RULE or PACK:RULE) or packs; all without.")
    ] = None,
    packs: Packs = None,
    programs: Annotated[
        list[Path] | None,
        typer.Option("--in", help="Tell two-way rules that only loop in these expression files."),
    ] = None,
    rows: Annotated[int, typer.Option(min=1, help="Row budget of one derivation.")] = 1500,
    seconds: Annotated[float, typer.Option(min=0.001, help="Time budget of one.")] = 2.0,
    as_json: Json = False,
) -> None:
    """Rules that the others derive, rules subsumed by another, and rules that only loop."""
    from nautile.egraph import Limits
    from nautile.worker import Worker

    from .redundant import BUDGET, idle, inverses, redundant
    from .show import redundant_text

    laws = _laws(packs, "fast")
    wanted = [rule for name in names or () for rule in _meant(name, laws)] or list(laws)
    limits = Limits(rows=rows, seconds=seconds, iterations=BUDGET.iterations)
    with Worker() as worker:
        found = redundant(wanted, laws, limits=limits, worker=worker, progress=_progress)
        told = {rule.name for rule in wanted}
        loops = [p for p in inverses(laws) if told & set(p.rules)]
        real = _laws(packs, "real")
        loops += idle(real, _programs(programs or [], ""), worker=worker) if programs else ()
    if as_json:
        print(
            json.dumps({"rules": [d.as_dict() for d in found], "loops": [asdict(p) for p in loops]})
        )
    else:
        print(redundant_text(found, loops))


def _meant(name: str, laws: tuple[Rule, ...]) -> list[Rule]:
    """The rules of a pack, or the rule of that name."""
    return [rule for rule in laws if rule.pack == name] or [_known(name, laws)]


def _named(name: str, packs: list[Path] | None) -> Rule:
    """The rule of that name, whatever its class."""
    return _known(name, _laws(packs, "fast"))


def _known(name: str, laws: tuple[Rule, ...]) -> Rule:
    """The rule of that name. Raises InputError with the nearest known name."""
    found = [r for r in laws if name in (r.name, f"{r.pack}:{r.name}")]
    if not found:
        near = get_close_matches(name.rpartition(":")[2], [r.name for r in laws], 1)
        hint = f"; did you mean {near[0]}?" if near else "; see `nautile rules list`"
        raise InputError(f"no rule {name!r}{hint}", code="unknown-name")
    return found[0]
