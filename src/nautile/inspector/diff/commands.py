"""`nautile diff`: two runs of a program on the command line.

```
nautile diff A B                      files of JSON objects, or bundle folders
nautile diff FILE.nau --target h200,a100      one program under two settings
nautile diff OLD.nau NEW.nau          two programs under one setting, or under two
```
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nautile.cli_options import Accept, Json, Rows, Seconds, sizes_of
from nautile.errors import InputError, NautileError

if TYPE_CHECKING:
    from nautile.terms import Program

    from .difference import Difference
    from .live import Setting
    from .sides import Side

__all__ = ["register"]

Paths = Annotated[
    list[Path],
    typer.Argument(help="Two runs (JSON files, bundles), or expression files.", show_default=False),
]
Two = "one for both runs, or two (`%s`)"


def register(app: typer.Typer) -> None:
    """Add the command to the app of `nautile`."""
    app.command("diff")(_diff)


def _diff(
    paths: Paths,
    target: Annotated[str, typer.Option(help="Device: " + Two % "h200,a100")] = "h200",
    numerics: Annotated[
        str, typer.Option(help="Largest numerics class: " + Two % "real,fast")
    ] = "real",
    rules: Annotated[
        list[str] | None, typer.Option(help="A pack of rules that the second run has too.")
    ] = None,
    base_rules: Annotated[
        list[str] | None, typer.Option(help="A pack of rules that both runs have.")
    ] = None,
    accept: Accept = None,
    without: Annotated[
        list[str] | None, typer.Option(help="A rule that the second run leaves out.")
    ] = None,
    dims: Annotated[
        str, typer.Option(help="Sizes: T=8192 for both runs, T=4096:8192 for each its own.")
    ] = "",
    why: Annotated[
        bool, typer.Option(help="Exchange settings one by one, to tell what makes the change.")
    ] = True,
    seconds: Seconds = 10.0,
    rows: Rows = 50_000,
    as_json: Json = False,
) -> None:
    """Compare two runs: what changed in the program, and why."""
    if len(paths) > 2:
        raise InputError(f"two runs are compared: {len(paths)} paths given", code="usage")
    if not any(p.suffix == ".nau" for p in paths):
        raise typer.Exit(_files(paths, as_json))
    if not all(p.suffix == ".nau" for p in paths):
        message = "an expression file is compared with an expression file: run `nautile optimize "
        raise InputError(message + "--json` first to compare with a file", code="usage")
    settings = _settings(
        target, numerics, tuple(rules or ()), tuple(base_rules or ()), tuple(accept or ()),
        frozenset(without or ()), seconds, rows,
    )  # fmt: skip
    raise typer.Exit(_programs(paths, dims, settings, why, as_json))


# ---- runs that were kept -------------------------------------------------------------------------


def _files(paths: Sequence[Path], as_json: bool) -> int:
    from .difference import NO_CAUSES, compared
    from .sides import sides_in

    if len(paths) != 2:
        raise InputError("two runs are compared: give a second file or bundle", code="usage")
    first, second = (sides_in(p) for p in paths)
    for a, b in _paired(first, second, paths):
        _emit(compared(a, b, notes=(NO_CAUSES,)), as_json)
    return 0


def _paired(
    first: Sequence[Side], second: Sequence[Side], paths: Sequence[Path]
) -> Iterator[tuple[Side, Side]]:
    """The runs of one program each: the only ones, or those of one name."""
    if len(first) == len(second) == 1:
        yield first[0], second[0]
        return
    named = {side.program: side for side in second}
    both = [side for side in first if side.program in named]
    if not both:
        message = f"{paths[0]} and {paths[1]} have no program in common"
        raise InputError(message, code="not-a-run")
    for side in (*first, *second):
        if side.program not in {s.program for s in both}:
            print(f"{side.program}: in {side.label} alone", file=sys.stderr)
    yield from ((side, named[side.program]) for side in both)


# ---- runs that are made --------------------------------------------------------------------------


def _settings(
    target: str,
    numerics: str,
    rules: tuple[str, ...],
    base: tuple[str, ...],
    accept: tuple[str, ...],
    without: frozenset[str],
    seconds: float,
    rows: int,
) -> tuple[Setting, Setting]:
    from nautile import extract
    from nautile.options import Options

    from .live import Setting

    targets, classes = _two(target, "--target"), _two(numerics, "--numerics")
    for name in targets:
        extract.device(name)
    own = tuple(
        Options(
            target=targets[n],
            numerics=classes[n],
            rules=base + (rules if n else ()),
            accept=accept if n or base else (),
            seconds=seconds,
            rows=rows,
        )
        for n in (0, 1)
    )
    return Setting(own[0]), Setting(own[1], without)


def _two(text: str, option: str) -> tuple[str, str]:
    parts = [p.strip() for p in text.split(",")]
    if not all(parts) or len(parts) > 2:
        raise InputError(f"{option} takes one value or two: not {text!r}", code="usage")
    return parts[0], parts[-1]


def _sizes(text: str) -> tuple[dict[str, int], dict[str, int]]:
    """The sizes of each run."""
    first, second = [], []
    for item in filter(None, text.split(",")):
        name, equals, value = item.partition("=")
        before, colon, after = value.partition(":")
        first.append(f"{name}{equals}{before}")
        second.append(f"{name}{equals}{after if colon else before}")
    return sizes_of(",".join(first)), sizes_of(",".join(second))


def _programs(
    paths: Sequence[Path], dims: str, settings: tuple[Setting, Setting], why: bool, as_json: bool
) -> int:
    from nautile import lang
    from nautile.worker import Worker

    from .causes import of_settings

    sizes = _sizes(dims)
    first = lang.parse_file(paths[0], dims=sizes[0])
    second = lang.parse_file(paths[-1], dims=sizes[1])
    statuses = [0]
    with Worker() as worker:
        for a, b in _alike(first, second, paths):
            try:
                found = of_settings((a, settings[0]), (b, settings[1]), worker, why=why)
            except NautileError as error:
                print(f"error: {a.name}: {error}", file=sys.stderr, flush=True)
                if as_json:
                    print(json.dumps({"program": a.name, "error": error.as_dict()}), flush=True)
                statuses.append(error.exit_status)
                continue
            _emit(found, as_json)
    return max(statuses)


def _alike(
    first: Sequence[Program], second: Sequence[Program], paths: Sequence[Path]
) -> Iterator[tuple[Program, Program]]:
    if len(first) == len(second) == 1:
        yield first[0], second[0]
        return
    named = {p.name: p for p in second}
    both = [(p, named[p.name]) for p in first if p.name in named]
    if not both:
        message = f"{paths[0]} and {paths[-1]} have no program in common"
        raise InputError(message, code="usage")
    yield from both


def _emit(found: Difference, as_json: bool) -> None:
    print(json.dumps(found.as_dict()) if as_json else found.as_text() + "\n", flush=True)
