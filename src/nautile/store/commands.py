"""`nautile store stats|verify|gc|export|import`: what is stored, is it whole, and what may go."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nautile.cli_options import Json
from nautile.errors import InputError

if TYPE_CHECKING:
    from nautile.store import Store, Verified

__all__ = ["register"]

Place = Annotated[
    str,
    typer.Argument(
        envvar="NAUTILE_STORE",
        help="Folder of the store, or postgresql://USER@HOST/DATABASE.",
        show_default=False,
    ),
]
Artifacts = Annotated[
    Path | None,
    typer.Option(envvar="NAUTILE_ARTIFACTS", help="Folder of the artifacts, for PostgreSQL."),
]
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
SPANS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def register(app: typer.Typer) -> None:
    """Add `nautile store` to the command line."""
    store = typer.Typer(no_args_is_help=True, help="Look after the store of results.")
    store.command("stats")(_stats)
    store.command("verify")(_verify)
    store.command("gc")(_gc)
    store.command("export")(_export)
    store.command("import")(_import)
    app.add_typer(store, name="store")


def _stats(
    place: Place,
    artifacts: Artifacts = None,
    upgrade: Annotated[
        bool, typer.Option(help="Bring an older store to this release's schema.")
    ] = False,
    as_json: Json = False,
) -> None:
    """What is in the store, and which ingredients of their keys keep results apart."""
    if upgrade:
        _opened(place, artifacts).close()
    with _opened(place, artifacts, read_only=True) as store:
        found = store.stats()
    if as_json:
        print(json.dumps(found.as_dict()))
        return
    of = f"{found.entries} results of {found.terms} programs"
    print(f"{found.place}: {of}, schema {found.schema}")
    stored, saved = found.artifact_bytes, found.shared_bytes
    print(f"  records    {_bytes(found.record_bytes)}, database {_bytes(found.database_bytes)}")
    print(f"  artifacts  {found.artifacts}, {_bytes(stored)} ({_bytes(saved)} shared)")
    print(f"  hits       {found.hits}")
    if found.quarantined:
        print(f"  quarantine {found.quarantined} damaged artifacts; see `nautile store verify`")
    for name, count in found.apart.items():
        print(f"  apart      {count} results of programs that are there again differ in {name}")


def _verify(
    place: Place,
    artifacts: Artifacts = None,
    repair: Annotated[
        bool, typer.Option(help="Remove results that are damaged, so that they are made anew.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Read every row and every artifact. Exit status 1 where a result is damaged or lost."""
    with _opened(place, artifacts, read_only=not repair) as store, _counted() as step:
        found = store.verify(repair, progress=step)
    print(json.dumps(found.as_dict()) if as_json else _verified(found))
    raise typer.Exit(0 if found.sound else 1)


def _verified(found: Verified) -> str:
    lines = [f"{found.entries} results, {found.artifacts} artifacts, {_bytes(found.bytes)}"]
    for p in found.problems:
        of = f" of {', '.join(p.keys)}" if p.keys and p.keys != (p.name,) else ""
        lines.append(f"  {p.kind:11} {p.name}{of}{' (repaired)' if p.repaired else ''}")
    lost = sum(p.bad and not p.repaired for p in found.problems)
    lines.append(f"{lost} faults that lose a result" if lost else "every result is whole")
    return "\n".join(lines)


def _gc(
    place: Place,
    artifacts: Artifacts = None,
    older_than: Annotated[
        str, typer.Option(help="Remove results not used for so long: 30d, 12h, 90m.")
    ] = "",
    max_bytes: Annotated[
        str, typer.Option(help="Remove the least recently used beyond this: 500M, 20G.")
    ] = "",
    stale: Annotated[
        bool, typer.Option(help="Remove results that other releases of Nautile made.")
    ] = False,
    keep: Annotated[list[str] | None, typer.Option(help="A key to keep anyway.")] = None,
    grace: Annotated[str, typer.Option(help="Age of unnamed files before they go.")] = "1h",
    dry_run: Annotated[bool, typer.Option(help="Only tell what would go.")] = False,
    as_json: Json = False,
) -> None:
    """Remove old results as told, and files that no result needs."""
    with _opened(place, artifacts) as store:
        found = store.gc(
            _measure(older_than, SPANS, "an age") if older_than else None,
            int(_measure(max_bytes, UNITS, "a size")) if max_bytes else None,
            keep=keep or (),
            current=_versions() if stale else None,
            grace=_measure(grace, SPANS, "an age"),
            dry_run=dry_run,
        )
    if as_json:
        print(json.dumps(found.as_dict()))
        return
    does = "would remove" if dry_run else "removed"
    print(
        f"{does} {found.entries} results, {found.artifacts} artifacts, "
        f"{found.orphans + found.leftovers + found.quarantined} other files: {_bytes(found.bytes)}"
    )
    print(f"{found.remaining_entries} results remain, {_bytes(found.remaining_bytes)}")


def _export(
    place: Place,
    archive: Annotated[Path, typer.Argument(help="The file to write (tar).", show_default=False)],
    artifacts: Artifacts = None,
    keys: Annotated[
        list[str] | None, typer.Option("--key", help="Only the result of this key.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write results and their artifacts to one file. Exit status 1 where some are damaged."""
    with _opened(place, artifacts, read_only=True) as store:
        found = store.export(archive, keys or None)
    _say(found.as_dict(), as_json, f"{archive}: {found.entries} results, {_bytes(found.bytes)}")
    for key in found.skipped:
        print(f"left out, damaged: {key}", file=sys.stderr)
    raise typer.Exit(1 if found.skipped else 0)


def _import(
    place: Place,
    archive: Annotated[Path, typer.Argument(help="A file of `export`.", show_default=False)],
    artifacts: Artifacts = None,
    replace: Annotated[
        bool, typer.Option(help="Replace results whose key is in the store.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Add the results of an exported file; those whose key is there stay as they are."""
    with _opened(place, artifacts) as store:
        found = store.import_(archive, replace=replace)
    _say(found.as_dict(), as_json, f"{found.added} results added, {found.kept} were there")


def _opened(place: str, artifacts: Path | None, read_only: bool = False) -> Store:
    from nautile.store import Store

    if "://" not in place and not Path(place).exists():
        raise InputError(f"there is no store at {place}", code="store-missing")
    return Store.open(place, artifacts, read_only=read_only)


def _versions() -> dict[str, Any]:
    """The ingredients of a key that this release alone determines."""
    from nautile import task

    return dict(task.versions())


def _measure(text: str, units: dict[str, int], what: str) -> float:
    """The seconds of `12h`, or the bytes of `20G`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([A-Za-z]?)(i?B)?", text.strip())
    unit = match[2] if match else "?"
    found = units.get(unit, units.get(unit.upper(), units.get(unit.lower())))
    if match is None or found is None:
        known = ", ".join(u for u in units if u)
        raise InputError(f"{text!r} is not {what}: a number and one of {known}", code="usage")
    return float(match[1]) * found


def _bytes(count: int) -> str:
    size, unit = float(count), 0
    while size >= 1024 and unit < 4:
        size, unit = size / 1024, unit + 1
    return f"{size:.1f} {'KMGT'[unit - 1]}iB" if unit else f"{count} bytes"


@contextmanager
def _counted() -> Iterator[Callable[[int], None]]:
    """A count of artifacts on a terminal; nothing where standard error is a file."""
    done = 0

    def step(more: int) -> None:
        nonlocal done
        done += more
        if sys.stderr.isatty():
            print(f"\r\033[K{done} artifacts read ...", end="", file=sys.stderr, flush=True)

    try:
        yield step
    finally:
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def _say(report: dict[str, Any], as_json: bool, text: str) -> None:
    print(json.dumps(report) if as_json else text)
