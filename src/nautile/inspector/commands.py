"""`nautile explain`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nautile.cli_options import (
    Accept,
    Dims,
    Files,
    Json,
    Memory,
    Numerics,
    Quiet,
    Rows,
    Rules,
    Seconds,
    Target,
    sizes_of,
)
from nautile.errors import InputError, NautileError

if TYPE_CHECKING:
    from nautile.options import Options
    from nautile.stages import Optimization
    from nautile.terms import Program
    from nautile.worker import Worker

    from .explanation import Explanation

__all__ = ["register"]

_WhyNot = Annotated[
    list[str] | None,
    typer.Option("--why-not", help="A kernel, a term in the expression language, or a rule."),
]
_Html = Annotated[
    Path | None, typer.Option("--html", help="Write a page for each program into this folder.")
]
_Measured = Annotated[
    list[Path] | None,
    typer.Option(help="A bundle that was tuned, or what `nautile bench --json` wrote."),
]
_Program = Annotated[str, typer.Option("--program", help="Explain this program of the files only.")]
_Derive = Annotated[
    bool, typer.Option("--derivation/--no-derivation", help="Find the steps from the source.")
]
_Margins = Annotated[
    bool, typer.Option("--margins/--no-margins", help="Find the prices that change the choice.")
]
_Thorough = Annotated[
    bool, typer.Option("--thorough", help="Generate candidates for other prices, too (slower).")
]
_Graph = Annotated[
    Path | None,
    typer.Option(help="Write the e-graph: .json (node-link), .graphml, .dot, .egraph.json."),
]
_FORMS = {
    ".egraph.json": "serialized",
    ".json": "node-link",
    ".graphml": "graphml",
    ".dot": "dot",
}


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("explain")(_explain)


def _explain(
    files: Files,
    dims: Dims = "",
    target: Target = "h200",
    numerics: Numerics = "real",
    why_not: _WhyNot = None,
    html: _Html = None,
    graph: _Graph = None,
    measured: _Measured = None,
    program: _Program = "",
    derivation: _Derive = True,
    margins: _Margins = True,
    thorough: _Thorough = False,
    as_json: Json = False,
    quiet: Quiet = False,
    seconds: Seconds = 10.0,
    rows: Rows = 50_000,
    memory: Memory = 4.0,
    rules: Rules = None,
    accept: Accept = None,
) -> None:
    """Tell why a program was chosen, what came next, and what would change the choice."""
    from nautile.extract.device import device
    from nautile.options import Options

    device(target)
    _form(graph)
    options = Options(
        target=target, numerics=numerics, seconds=seconds, rows=rows, memory=int(memory * 2**30),
        rules=tuple(rules or ()), accept=tuple(accept or ()),
    )  # fmt: skip
    wanted = _Wanted(
        tuple(why_not or ()), html, graph, tuple(measured or ()), program, derivation, margins,
        thorough, as_json, quiet,
    )  # fmt: skip
    raise typer.Exit(_each(files, sizes_of(dims), options, wanted))


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What is asked for beside the program."""

    questions: tuple[str, ...]
    html: Path | None
    graph: Path | None
    measured: tuple[Path, ...]
    program: str
    derivation: bool
    margins: bool
    thorough: bool
    as_json: bool
    quiet: bool


def _each(files: list[Path], sizes: dict[str, int], options: Options, wanted: _Wanted) -> int:
    from nautile.worker import Worker

    statuses: list[int] = []
    found = [(f, p) for f in files for p in _programs(f, sizes, wanted, statuses)]
    if not found and not statuses:
        raise InputError(f"no program is called {wanted.program!r}", code="unknown-name")
    with Worker() as worker:
        for path, program in found:
            try:
                explanation = _one(program, options, wanted, worker)
                statuses.append(_emit(explanation, wanted, len(found) == 1))
            except NautileError as error:
                statuses.append(_failed(program, path, error, wanted))
    return max(statuses)


def _programs(
    path: Path, sizes: dict[str, int], wanted: _Wanted, statuses: list[int]
) -> tuple[Program, ...]:
    """The wanted programs of a file; a malformed file is told and counted, and yields none."""
    from nautile import lang

    try:
        found = lang.parse_file(path, dims=sizes)
    except NautileError as error:
        statuses.append(_failed(None, path, error, wanted))
        return ()
    return tuple(p for p in found if wanted.program in ("", p.name))


def _failed(program: Program | None, path: Path, error: NautileError, wanted: _Wanted) -> int:
    from .explanation import failure

    name = f"{program.name}: " if program else ""
    print(f"error: {name}{error}", file=sys.stderr, flush=True)
    if wanted.as_json:
        print(json.dumps(failure(program, str(path), error)), flush=True)
    return error.exit_status


def _one(program: Program, options: Options, wanted: _Wanted, worker: Worker) -> Explanation:
    from .explanation import explain

    result, error = _optimized(program, options, wanted, worker)
    with _progress(program.name, "explain", wanted.quiet):
        return explain(
            result,
            worker,
            derivation=wanted.derivation,
            margin=wanted.margins,
            thorough=wanted.thorough,
            questions=wanted.questions,
            measured=wanted.measured,
            reproduce=_again(result, wanted),
            error=error,
        )


def _optimized(
    program: Program, options: Options, wanted: _Wanted, worker: Worker
) -> tuple[Optimization, NautileError | None]:
    """The program optimized as far as it goes: an error behind the choice is explained, too."""
    from nautile import stages

    result = stages.Optimization(program, options)
    with _progress(program.name, "saturate", wanted.quiet):
        stages.saturate(result, worker)
    with _progress(program.name, "extract", wanted.quiet):
        stages.choose(result)
    try:
        with _progress(program.name, "build", wanted.quiet):
            stages.build(result)
        with _progress(program.name, "certify", wanted.quiet):
            stages.certify(result)
    except NautileError as error:
        return result, error
    return result, None


def _again(result: Optimization, wanted: _Wanted) -> str:
    import shlex

    from .explanation import command

    words = [command(result), "--program", shlex.quote(result.program.name)]
    words += [f"--why-not {shlex.quote(q)}" for q in wanted.questions]
    words += [f"--measured {shlex.quote(str(m))}" for m in wanted.measured]
    words += [] if wanted.derivation else ["--no-derivation"]
    words += [] if wanted.margins else ["--no-margins"]
    words += ["--thorough"] if wanted.thorough else []
    return " ".join(words)


def _emit(explanation: Explanation, wanted: _Wanted, alone: bool) -> int:
    """Print the explanation, write what is asked for (into folders of the programs' names, where
    there are several), and give the exit status."""
    result = explanation.result
    shown = explanation.as_dict()
    if wanted.html is not None:
        folder = wanted.html if alone else wanted.html / result.program.name
        _write_page(folder, explanation, shown)
    if wanted.graph is not None:
        _write_graph(wanted.graph, result, alone)
    print(json.dumps(shown) if wanted.as_json else explanation.as_text() + "\n", flush=True)
    if explanation.error is not None:
        return explanation.error.exit_status
    return 0 if result.certificate is None or result.passed else 3


def _write_page(folder: Path, explanation: Explanation, shown: dict[str, Any]) -> None:
    from .page import write_page

    write_page(folder, shown, explanation.result)
    print(f"page {folder / 'index.html'}", file=sys.stderr, flush=True)


def _form(path: Path | None) -> str | None:
    """The form that a file's name asks for. Raises InputError for an unknown one."""
    if path is None:
        return None
    for ending, form in _FORMS.items():
        if path.name.endswith(ending):
            return form
    known = ", ".join(_FORMS)
    raise InputError(f"--graph writes {known}: not {path.name!r}", code="unknown-form")


def _write_graph(path: Path, result: Optimization, alone: bool) -> None:
    """Write the e-graph; of several programs each into a file with its name in front."""
    from .exports import export

    form = _form(path)
    assert form is not None
    path = path if alone else path.with_name(f"{result.program.name}.{path.name}")
    try:
        path.write_text(export(result, form), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}", code="usage") from error


@contextmanager
def _progress(name: str, stage: str, quiet: bool) -> Iterator[None]:
    """One line on a terminal that tells the stage; nothing where standard error is a file."""
    live = sys.stderr.isatty() and not quiet
    if live:
        print(f"\r\033[K{name}: {stage} ...", end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if live:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
