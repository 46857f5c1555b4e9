"""`nautile rules profile|why|redundant`: the workbench on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nautile.cli_options import Dims, Files, Json, Numerics, Rows, Seconds, Target, sizes_of

if TYPE_CHECKING:
    from nautile.rules.law import Rule
    from nautile.terms import Program

__all__ = ["register"]

Packs = Annotated[
    list[Path] | None,
    typer.Option("--rules", help="A rule pack of your own, beside the built-in ones."),
]


def register(app: typer.Typer) -> None:
    """Add the workbench's commands to the app of `nautile rules`."""
    app.command("profile")(_profile)


def _profile(
    files: Files,
    packs: Packs = None,
    dims: Dims = "",
    target: Target = "h200",
    numerics: Numerics = "real",
    leave_out: Annotated[
        bool, typer.Option(help="Leave out each rule that took part, to see if it is needed.")
    ] = False,
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
        leave_out=leave_out,
    )
    print(json.dumps(found.as_dict()) if as_json else profile_text(found, top))


def _programs(files: list[Path], dims: str) -> list[Program]:
    from nautile import lang

    return [p for path in files for p in lang.parse_file(path, dims=sizes_of(dims))]


def _laws(packs: list[Path] | None, numerics: str) -> tuple[Rule, ...]:
    """The built-in rules and those of the user's packs, of the classes that are allowed."""
    from nautile import rules
    from nautile.options import NUMERICS, Options

    Options(numerics=numerics)
    own = rules.load([str(p) for p in packs or []]) if packs else ()
    return rules.select((*rules.load(None), *own), NUMERICS[numerics])
