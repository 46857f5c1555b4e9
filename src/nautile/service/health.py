"""`/livez`: the process answers. `/readyz`: it can take jobs, and somebody executes them.
`/metrics`: figures for Prometheus."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import sqlalchemy as sa
from fastapi import APIRouter, Response

from nautile.errors import NautileError

from . import metrics, presence
from .access import Scraper, Service
from .answers import EVERYWHERE, text_of
from .context import Context
from .models import Check, Health

__all__ = ["router"]

router = APIRouter(tags=["health"])


@router.get("/livez", operation_id="livez", response_model=Check)
async def livez() -> Check:
    """True as long as it answers at all."""
    return Check(ok=True, detail="alive")


@router.get(
    "/readyz",
    operation_id="readyz",
    response_model=Health,
    responses={503: {"model": Health, "description": "Not ready: `checks` tells what lacks."}},
)
def readyz(response: Response, context: Service) -> Health:
    """Whether database, disk and workers are there."""
    checks = {
        "database": _checked(_database, context),
        "disk": _checked(_disk, context),
        "workers": _checked(_workers, context),
    }
    if context.draining.is_set():
        checks["draining"] = Check(ok=False, detail="the process is about to end")
    ready = all(check.ok for check in checks.values())
    response.status_code = 200 if ready else 503
    return Health(ready=ready, checks=checks)


@router.get(
    "/metrics",
    operation_id="metrics",
    response_class=Response,
    responses={200: text_of("text/plain", "Prometheus' text format."), **EVERYWHERE},
)
def figures(context: Service, token: Scraper) -> Response:
    """Figures of all processes of this service."""
    return Response(metrics.text(context.database), media_type=metrics.MEDIA_TYPE)


def _checked(look: Callable[[Context], Check], context: Context) -> Check:
    try:
        return look(context)
    except (NautileError, OSError) as error:
        return Check(ok=False, detail=getattr(error, "code", "") or type(error).__name__)


def _database(context: Context) -> Check:
    with context.database.reading() as connection:
        connection.execute(sa.text("SELECT 1"))
    return Check(ok=True, detail="answers")


def _disk(context: Context) -> Check:
    free, least = shutil.disk_usage(context.store.objects.root).free, context.settings.free_bytes
    return Check(ok=free >= least, detail=f"{free >> 20} MiB are free; {least >> 20} are needed")


def _workers(context: Context) -> Check:
    living = presence.living(context.database)
    return Check(ok=living > 0, detail=f"{living} live")
