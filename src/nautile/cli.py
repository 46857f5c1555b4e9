"""The command line: `nautile optimize|build|run|bench|show|explain|examples|devices|rules|...`.

Results go to standard output, progress and errors to standard error. Exit status: 0 done, 1 some
inputs failed, 2 usage or a malformed input, 3 a certificate failed, 130 interrupted.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nautile import __version__
from nautile.batch import commands as batch_commands
from nautile.cli_options import (
    Accept,
    Arch,
    Candidates,
    Compile,
    Dims,
    Files,
    Json,
    Memory,
    Numerics,
    Out,
    Quiet,
    Rows,
    Rules,
    Seconds,
    Target,
    sizes_of,
)
from nautile.errors import InputError, NautileError
from nautile.inspector.commands import register as register_inspector
from nautile.inspector.diff.commands import register as register_diff
from nautile.interrupts import interruptible
from nautile.rules_cli import rules_app
from nautile.service.commands import register as register_service
from nautile.store.commands import register as register_store
from nautile.workbench.commands import register

if TYPE_CHECKING:
    from nautile.stages import Optimization, Options
    from nautile.terms import Program
    from nautile.worker import Worker

__all__ = ["app", "main"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Tensor mathematics in index notation in, certified CUDA kernels out.",
)
app.add_typer(rules_app, name="rules")
register(rules_app)
batch_commands.register(app)
register_store(app)
register_inspector(app)
register_diff(app)
register_service(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    with interruptible() as seen:
        try:
            return _run(arguments)
        except (Exception, KeyboardInterrupt) as error:
            if not seen and not isinstance(error, KeyboardInterrupt):
                raise
            return _say("interrupted", 130)


def _run(arguments: Sequence[str] | None) -> int:
    try:
        app(args=arguments, prog_name="nautile")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except NautileError as error:
        return _say(f"error: {error}", error.exit_status)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _say(message: str, status: int = 0) -> int:
    print(message, file=sys.stderr, flush=True)
    return status


def _version(wanted: bool) -> None:
    if wanted:
        print(f"nautile {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Tensor mathematics in index notation in, certified CUDA kernels out."""


@app.command()
def optimize(
    files: Files,
    dims: Dims = "",
    target: Target = "h200",
    numerics: Numerics = "real",
    output: Out = None,
    as_json: Json = False,
    compile: Compile = None,
    arch: Arch = "",
    quiet: Quiet = False,
    seconds: Seconds = 10.0,
    rows: Rows = 50_000,
    memory: Memory = 4.0,
    candidates: Candidates = 1,
    rules: Rules = None,
    accept: Accept = None,
) -> None:
    """Optimize programs: print what was found, and write bundles with -o."""
    options = _options(target, numerics, arch, seconds, rows, memory, compile, output, candidates)
    options = replace(options, rules=tuple(rules or ()), accept=tuple(accept or ()))
    raise typer.Exit(_each(files, dims, options, output, as_json, quiet))


@app.command()
def build(
    files: Files,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the bundles.")],
    dims: Dims = "",
    target: Target = "h200",
    numerics: Numerics = "real",
    as_json: Json = False,
    arch: Arch = "",
    quiet: Quiet = False,
    seconds: Seconds = 10.0,
    rows: Rows = 50_000,
    memory: Memory = 4.0,
    candidates: Candidates = 1,
    rules: Rules = None,
    accept: Accept = None,
) -> None:
    """Optimize, compile to cubins (no GPU needed) and write one bundle a program."""
    options = _options(target, numerics, arch, seconds, rows, memory, True, output, candidates)
    options = replace(options, rules=tuple(rules or ()), accept=tuple(accept or ()))
    raise typer.Exit(_each(files, dims, options, output, as_json, quiet))


@app.command()
def run(
    bundle: Annotated[Path, typer.Argument(help="A bundle folder.")],
    inputs: Annotated[Path | None, typer.Option(help="An .npz file with the inputs.")] = None,
    output: Annotated[Path | None, typer.Option("-o", help="Where to save outputs (.npz).")] = None,
    check: Annotated[bool, typer.Option(help="Check sampled outputs on the GPU.")] = False,
    as_json: Json = False,
) -> None:
    """Run a bundle on the GPU."""
    from nautile import runtime

    report = runtime.run_command(bundle, inputs=inputs, output=output, check=check)
    _print(report, as_json)
    raise typer.Exit(3 if report.get("verdict") == "fail" else 0)


@app.command()
def bench(
    bundle: Annotated[Path, typer.Argument(help="A bundle folder.")],
    repeats: Annotated[int, typer.Option(min=1, help="Timed repetitions.")] = 100,
    tune: Annotated[
        bool, typer.Option(help="Measure every implementation; record the fastest for `run`.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Time a bundle on the GPU, after checking its results and picking the fastest kernels."""
    from nautile import runtime

    report = runtime.bench_command(bundle, repeats=repeats, tune=tune)
    _print(report, as_json)
    raise typer.Exit(3 if report.get("verdict") == "fail" else 0)


@app.command()
def show(
    files: Files,
    dims: Dims = "",
    stage: Annotated[str, typer.Option(help="source, tiles or cuda.")] = "source",
    target: Target = "h200",
    numerics: Numerics = "real",
    rules: Rules = None,
    accept: Accept = None,
) -> None:
    """Print programs as Nautile reads them, their tile programs, or the CUDA made of them."""
    if stage not in ("source", "tiles", "cuda"):
        raise InputError(f"unknown stage {stage!r}; known: source, tiles, cuda", code="usage")
    from nautile import lang

    programs = [p for f in files for p in lang.parse_file(f, dims=sizes_of(dims))]
    for program in programs:
        if stage == "source":
            print(lang.show(program))
        else:
            options = _options(target, numerics)
            own, taken = tuple(rules or ()), tuple(accept or ())
            _show_kernels(program, stage, replace(options, rules=own, accept=taken))


@app.command()
def examples(
    name: Annotated[str | None, typer.Argument(help="Print this example.")] = None,
    output: Annotated[Path | None, typer.Option("-o", help="Copy all examples here.")] = None,
) -> None:
    """List the shipped expression files, print one, or copy them."""
    from nautile.examples import paths

    shipped = {p.stem: p for p in paths()}
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        for path in shipped.values():
            (output / path.name).write_text(path.read_text())
    elif name is None:
        for stem, path in shipped.items():
            print(f"{stem:24} {path}")
    elif name.removesuffix(".nau") in shipped:
        print(shipped[name.removesuffix(".nau")].read_text(), end="")
    else:
        raise InputError(f"no example {name!r}; known: {', '.join(shipped)}", code="unknown-name")


@app.command()
def devices(as_json: Json = False) -> None:
    """List the devices that programs can be optimized for."""
    from dataclasses import asdict

    from nautile import extract

    for name in extract.device_names():
        d = extract.device(name)
        if as_json:
            print(json.dumps(asdict(d)))
        else:
            rates = f"{d.memory_bandwidth / 1e12:.2f} TB/s, {d.sms} SMs"
            print(f"{name:10} {d.architecture:8} {rates:20} {d.description}")


def _options(
    target: str,
    numerics: str,
    arch: str = "",
    seconds: float = 10.0,
    rows: int = 50_000,
    memory: float = 4.0,
    compile: bool | None = False,
    output: Path | None = None,
    candidates: int = 1,
) -> Options:
    from nautile import extract
    from nautile.stages import Options

    extract.device(target)
    wanted = compile if compile is not None else output is not None
    return Options(
        target=target,
        numerics=numerics,
        seconds=seconds,
        rows=rows,
        memory=int(memory * 2**30),
        compile=wanted,
        architectures=tuple(a for a in arch.split(",") if a),
        candidates=candidates,
    )


def _each(
    files: Sequence[Path],
    dims: str,
    options: Options,
    output: Path | None,
    as_json: bool,
    quiet: bool,
) -> int:
    from nautile.report import failure
    from nautile.worker import Worker

    statuses: list[int] = []
    sizes = sizes_of(dims)
    with Worker() as worker:
        for path in files:
            start = time.perf_counter()
            programs = _programs(path, sizes, as_json, statuses)
            parsed = time.perf_counter() - start
            for program in programs:
                try:
                    result = _one(program, options, worker, quiet)
                    result.timings["parse"] = parsed / len(programs)
                    _emit(result, output, as_json)
                    statuses.append(0 if result.passed else 3)
                except NautileError as error:
                    statuses.append(error.exit_status)
                    _say(f"error: {program.name}: {error}")
                    if as_json:
                        print(json.dumps(failure(program, str(path), error)), flush=True)
    return max(statuses, default=0)


def _programs(
    path: Path, sizes: dict[str, int], as_json: bool, statuses: list[int]
) -> tuple[Program, ...]:
    """The programs of a file; a malformed file is told and counted, and yields none."""
    from nautile import lang
    from nautile.report import failure

    try:
        return lang.parse_file(path, dims=sizes)
    except NautileError as error:
        statuses.append(error.exit_status)
        _say(f"error: {error}")
        if as_json:
            print(json.dumps(failure(None, str(path), error)), flush=True)
        return ()


def _one(program: Program, options: Options, worker: Worker, quiet: bool) -> Optimization:
    from nautile.stages import optimize as run_stages

    with _progress(program.name, quiet) as step:
        return run_stages(program, options, worker=worker, progress=step)


def _emit(result: Optimization, output: Path | None, as_json: bool) -> None:
    folder = None
    if output is not None:
        from nautile.bundle import write_bundle

        folder = output / result.program.name
        write_bundle(folder, result)
    if as_json:
        print(json.dumps(result.as_dict()), flush=True)
        return
    print(result.as_text())
    if folder is not None:
        for path in sorted(folder.glob("*.cu")):
            print(f"  cuda       {path}")
    print(flush=True)


@contextmanager
def _progress(name: str, quiet: bool) -> Iterator[Callable[[str], None]]:
    """One line on a terminal that follows the stage; nothing where standard error is a file."""
    live = sys.stderr.isatty() and not quiet

    def step(stage: str) -> None:
        if live:
            print(f"\r\033[K{name}: {stage} ...", end="", file=sys.stderr, flush=True)

    try:
        yield step
    finally:
        if live:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def _show_kernels(program: Program, stage: str, options: Options) -> None:
    from nautile.codegen.show import show as show_tiles
    from nautile.stages import optimize as run_stages

    for built in run_stages(program, options).built:
        for step in built.best.steps:
            texts = [step.cuda.text] if stage == "cuda" else [show_tiles(t) for t in step.tiles]
            print("\n".join(texts))


def _print(report: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(report))
        return
    for key, value in report.items():
        print(f"{key:12} {value}")


if __name__ == "__main__":
    sys.exit(main())
