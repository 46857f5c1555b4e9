"""`nautile batch`: the command line of batches.

Exit status: 0 all went well, 1 some inputs failed, 2 usage, or nothing to read, or no place to
write, 3 a certificate failed, 130 interrupted. The first SIGINT finishes what runs, a second one
and SIGTERM end it; `--resume` goes on after either.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nautile.cli_options import (
    Accept,
    Arch,
    Candidates,
    Dims,
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
from nautile.errors import CompileError, InputError

if TYPE_CHECKING:
    from nautile.batch.plan import Asked
    from nautile.batch.progress import Silent
    from nautile.batch.run import Batch
    from nautile.batch.summary import Summary
    from nautile.executor import Place
    from nautile.store import Store
    from nautile.task import Settings

__all__ = ["register"]

Inputs = Annotated[
    list[str],
    typer.Argument(
        help="Folders, expression files, globs, and lists of paths (- for standard input).",
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    """Add `batch` to the app."""
    app.command("batch")(_batch)


def _batch(
    inputs: Inputs,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for what comes out.")],
    resume: Annotated[
        bool, typer.Option(help="Go on where an earlier run stopped; keep its records.")
    ] = False,
    fail_fast: Annotated[bool, typer.Option(help="Stop at the first failure.")] = False,
    shard: Annotated[
        str, typer.Option(metavar="I/N", help="Take one of N parts of the files (default: all).")
    ] = "1/1",
    jobs: Annotated[
        int | None,
        typer.Option(min=1, max=1024, help="Workers (default: as cores and memory allow)."),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(help="Store of results: a folder, or a database's URL (default: OUT/store)."),
    ] = None,
    artifacts: Annotated[
        Path | None, typer.Option(help="The store's folder of files, where it is a database.")
    ] = None,
    dims: Dims = "",
    target: Target = "h200",
    numerics: Numerics = "real",
    rules: Rules = None,
    accept: Accept = None,
    compile: Annotated[bool, typer.Option(help="Compile kernels to cubins.")] = True,
    arch: Arch = "",
    candidates: Candidates = 1,
    seconds: Seconds = 10.0,
    rows: Rows = 50_000,
    memory: Memory = 4.0,
    time_limit: Annotated[
        float, typer.Option(min=0.1, max=86_400, help="Seconds that one program may take.")
    ] = 600.0,
    memory_limit: Annotated[
        float | None,
        typer.Option(min=0.1, max=4096, help="GiB that one program may take (default: its share)."),
    ] = None,
    executor: Annotated[
        str, typer.Option(help="Where programs run: pool (this machine) or ray (a cluster).")
    ] = "pool",
    address: Annotated[
        str | None, typer.Option(help="Address of the Ray cluster (default: one started here).")
    ] = None,
    measure: Annotated[
        bool, typer.Option(help="Time each bundle on the cluster's GPUs (with --executor ray).")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Optimize every program of many files: certified bundles, records and a report."""
    from nautile.batch.inputs import Shard
    from nautile.batch.plan import Asked
    from nautile.executor import Place, machine
    from nautile.task import Limits, Settings, pack_of

    here = machine()
    workers = jobs or here.workers
    share = memory_limit * 2**30 if memory_limit else min(here.share(workers), 16 << 30)
    settings = Settings(
        target=target,
        numerics=numerics,
        rules=tuple(pack_of(name) for name in rules or ()),
        accept=tuple(accept or ()),
        rows=rows,
        seconds=seconds,
        memory=int(memory * 2**30),
        compile=compile,
        architectures=tuple(a for a in arch.split(",") if a),
        candidates=candidates,
    )
    asked = Asked(
        inputs=tuple(inputs),
        output=output,
        settings=settings,
        dims=sizes_of(dims),
        limits=Limits(time_limit, 2 * time_limit, int(share)),
        store=store,
        artifacts=artifacts,
        jobs=workers,
        resume=resume,
        fail_fast=fail_fast,
        shard=Shard.of(shard),
        measure=measure,
    )
    _check(settings, list(rules or ()))
    place = Place(executor, address, measure=measure, jobs=jobs)
    raise typer.Exit(_run(asked, place, as_json, quiet))


def _check(settings: Settings, rules: list[str]) -> None:
    """What no program could be optimized with is told before any is tried."""
    from nautile.task.make import ingredients_of

    ingredients_of("", settings)
    if settings.compile:
        _check_compiler(settings)
    if rules or settings.accept:
        from nautile.options import NUMERICS
        from nautile.rules.admission import admit

        admit(None, tuple(rules), settings.accept, NUMERICS[settings.numerics])


def _check_compiler(settings: Settings) -> None:
    from importlib.util import find_spec

    from nautile.codegen.gate import architecture_number

    for name in settings.architectures:
        try:
            architecture_number(name)
        except CompileError as error:
            raise InputError(f"--arch: {error.message}", code="usage") from None
    if find_spec("cuda") is None:
        message = "cubins need NVRTC (pip install 'nautile[compile]'); or pass --no-compile"
        raise InputError(message, code="no-compiler")


def _run(asked: Asked, place: Place, as_json: bool, quiet: bool) -> int:
    from nautile.batch.inputs import files
    from nautile.batch.progress import progress
    from nautile.batch.run import Batch, Stopped

    lists_stdin = "-" in asked.inputs
    counted = () if quiet or lists_stdin else files(asked.inputs, asked.output, asked.shard)
    total = sum(1 for _ in counted)
    with _opened(asked) as store, progress(total, quiet) as shown, place.executor() as pool:
        batch = Batch(asked, store, pool, pool.jobs, tell=_teller(shown, as_json))
        stopped = False
        with _signals(batch, shown):
            try:
                batch.run()
            except Stopped:
                stopped = True
            except KeyboardInterrupt:
                stopped = True
                batch.stop()
        pool.close()
    _finish(asked, batch.summary)
    if not as_json:
        print(batch.summary.as_text(), flush=True)
    if not batch.summary.complete and not quiet:
        shown.say("stopped before its end; go on with --resume")
    if stopped:
        return 130 if batch.draining else batch.summary.exit_status
    return batch.summary.exit_status


@contextmanager
def _opened(asked: Asked) -> Iterator[Store]:
    from nautile.store import Store

    place = asked.store or str(asked.output / "store")
    if asked.store is None:
        try:
            asked.output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = f"{asked.output} cannot be written: {error.strerror or error}"
            raise InputError(message, code="unwritable-output") from error
    with Store.open(place, asked.artifacts) as store:
        yield store


def _teller(shown: Silent, as_json: bool) -> Callable[[Any, Summary], None]:
    def tell(record: Any, summary: Summary) -> None:
        if as_json:
            print(json.dumps(record), flush=True)
        shown.tell(record, summary)

    return tell


@contextmanager
def _signals(batch: Batch, shown: Silent) -> Iterator[None]:
    """SIGINT finishes what runs, and ends it the second time; SIGTERM ends it."""

    def interrupt(number: int, frame: Any) -> None:
        if batch.draining:
            raise KeyboardInterrupt
        batch.stop()
        shown.say("finishing what runs; once more to stop at once")

    def end(number: int, frame: Any) -> None:
        batch.stop()
        raise KeyboardInterrupt

    handlers = {signal.SIGINT: interrupt, signal.SIGTERM: end}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _finish(asked: Asked, summary: Summary) -> None:
    """What stands at the end of every run, also of one that was stopped."""
    from nautile.batch import report
    from nautile.batch.results import NAME

    try:
        summary.write(asked.output)
        report.write(asked.output, asked.output / NAME, summary)
    except OSError as error:
        message = f"{asked.output} cannot be written: {error.strerror or error}"
        raise InputError(message, code="unwritable-output") from error
