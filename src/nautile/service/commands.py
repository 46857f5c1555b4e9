"""`nautile serve|worker|token|queue`: the service on the command line."""

from __future__ import annotations

import json
import os
import tempfile
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nautile.cli_options import Json
from nautile.errors import InputError

if TYPE_CHECKING:
    from nautile.store import Store

    from .settings import Settings

__all__ = ["register"]

Place = Annotated[
    str | None,
    typer.Option(
        "--store",
        help="A folder (SQLite), or the URL of a PostgreSQL database. [env: NAUTILE_STORE]",
    ),
]
Artifacts = Annotated[
    str | None,
    typer.Option(help="The folder of artifacts of a store by URL. [env: NAUTILE_ARTIFACTS]"),
]
_METRICS = "PROMETHEUS_MULTIPROC_DIR"

token_app = typer.Typer(no_args_is_help=True, help="Who may ask the service.")
queue_app = typer.Typer(no_args_is_help=True, help="What waits, runs, or is dead.")


def register(app: typer.Typer) -> None:
    """Add the service's commands."""
    app.command("serve")(_serve)
    app.command("worker")(_worker)
    app.add_typer(token_app, name="token")
    app.add_typer(queue_app, name="queue")
    token_app.command("create")(_create)
    token_app.command("list")(_list)
    token_app.command("revoke")(_revoke)
    queue_app.command("show")(_show)
    queue_app.command("requeue")(_requeue)


def _serve(
    store: Place = None,
    artifacts: Artifacts = None,
    host: Annotated[str | None, typer.Option(help="Address to listen at. [127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65_535, help="0: any. [8087]")] = None,
    workers: Annotated[
        int | None, typer.Option(min=0, max=1024, help="Processes that execute. [1]")
    ] = None,
    auth: Annotated[
        bool, typer.Option("--auth/--no-auth", help="Without: this machine alone, no tokens.")
    ] = True,
) -> None:
    """Answer over HTTP: submit programs, follow them, fetch results."""
    settings = _settings(store, artifacts, host=host, port=port, workers=workers)
    with tempfile.TemporaryDirectory(prefix="nautile-metrics-") as folder:
        os.environ.setdefault(_METRICS, folder)  # before prometheus-client is imported
        from .serving import serve

        serve(settings, authenticated=auth)


def _worker(
    store: Place = None,
    artifacts: Artifacts = None,
    parent: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Execute what a service has queued, on this machine or another one."""
    from .serving import work

    work(_settings(store, artifacts), parent)


def _create(
    name: Annotated[str, typer.Argument(help="Whose it is.", show_default=False)],
    store: Place = None,
    artifacts: Artifacts = None,
    scopes: Annotated[str, typer.Option(help="Of submit, read, admin, metrics.")] = "submit,read",
    rate: Annotated[float, typer.Option(min=0.001, help="Requests a second.")] = 20.0,
    burst: Annotated[int, typer.Option(min=1, help="Requests at once.")] = 100,
    concurrency: Annotated[int, typer.Option(min=1, help="Jobs in flight.")] = 100,
    as_json: Json = False,
) -> None:
    """Make a token and print it, once: nobody can see it again."""
    from . import tokens

    wanted = [s.strip() for s in scopes.split(",") if s.strip()]
    with _opened(store, artifacts) as opened:
        text = tokens.create(
            opened.database, name, wanted, rate=rate, burst=burst, concurrency=concurrency
        )
    print(json.dumps({"token": text, "name": name, "scopes": wanted}) if as_json else text)


def _list(store: Place = None, artifacts: Artifacts = None, as_json: Json = False) -> None:
    """List tokens: whose, for what, and whether they work. Their secrets are known to nobody."""
    from . import tokens

    with _opened(store, artifacts) as opened:
        found = tokens.listed(opened.database)
    for token in found:
        row: dict[str, Any] = {
            "id": token.id,
            "name": token.name,
            "scopes": sorted(token.scopes),
            "created": datetime.fromtimestamp(token.created, UTC).isoformat(timespec="seconds"),
            "revoked": token.revoked is not None,
        }
        state = "revoked" if token.revoked is not None else "valid"
        line = f"{token.id}  {state:8} {','.join(sorted(token.scopes)):24} {token.name}"
        print(json.dumps(row) if as_json else line)


def _revoke(
    id: Annotated[str, typer.Argument(help="As `token list` shows it.", show_default=False)],
    store: Place = None,
    artifacts: Artifacts = None,
) -> None:
    """End a token's life; services notice within seconds."""
    from . import tokens

    with _opened(store, artifacts) as opened:
        if not tokens.revoke(opened.database, id):
            raise InputError(f"no valid token has the id {id}", code="unknown-name")


def _show(store: Place = None, artifacts: Artifacts = None, as_json: Json = False) -> None:
    """Count what waits and runs, and list what is dead with the reason."""
    from . import presence, runs

    with _opened(store, artifacts) as opened:
        counts, dead = runs.counted(opened.database), runs.dead(opened.database)
        living = presence.living(opened.database)
    if as_json:
        print(json.dumps({"runs": counts, "workers": living, "dead": dead}))
        return
    print("  ".join(f"{state} {count}" for state, count in counts.items()), f" workers {living}")
    for row in dead:
        print(f"{row['number']:8}  {row['error']['code']}: {row['error']['message'][:100]}")


def _requeue(
    number: Annotated[
        int | None, typer.Argument(help="As `queue show` tells it; all dead ones without.")
    ] = None,
    store: Place = None,
    artifacts: Artifacts = None,
) -> None:
    """Give dead runs their attempts again."""
    from . import runs

    with _opened(store, artifacts) as opened:
        count = runs.requeue(opened.database, number)
    if number is not None and not count:
        raise InputError(f"no dead run has the number {number}", code="unknown-name")
    print(f"{count} requeued")


def _settings(store: str | None, artifacts: str | None, **given: Any) -> Settings:
    from .settings import Settings

    return Settings.of(store=store, artifacts=artifacts, **given)


def _opened(store: str | None, artifacts: str | None) -> Store:
    from pathlib import Path

    from nautile.store import Store

    settings = _settings(store, artifacts)
    return Store.open(settings.store, Path(settings.artifacts) if settings.artifacts else None)
