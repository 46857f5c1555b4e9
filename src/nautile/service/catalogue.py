"""What there is to ask for, and what waits: devices, rules, examples, the queue."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache

from fastapi import APIRouter

from . import presence, runs
from .access import Reads, Service
from .answers import EVERYWHERE
from .models import Catalogue, Example, Queue, RuleText
from .results import finite

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["catalogue"])


@router.get("/devices", operation_id="devices", response_model=Catalogue, responses=EVERYWHERE)
def devices(token: Reads) -> Catalogue:
    """The devices that programs can be optimized for, with their figures."""
    return _devices()


@router.get("/rules", operation_id="rules", response_model=list[RuleText], responses=EVERYWHERE)
def rules(token: Reads) -> list[RuleText]:
    """The laws of the shipped packs."""
    return _rules()


@router.get(
    "/examples", operation_id="examples", response_model=list[Example], responses=EVERYWHERE
)
def examples(token: Reads) -> list[Example]:
    """Shipped expression files."""
    return _examples()


@router.get("/queue", operation_id="queue", response_model=Queue, responses=EVERYWHERE)
def queue(context: Service, token: Reads) -> Queue:
    """How much waits and runs, of everybody's."""
    counts = runs.counted(context.database)
    return Queue(
        queued=counts["queued"],
        running=counts["running"],
        dead=counts["dead"],
        limit=context.settings.queue,
        workers=presence.living(context.database),
    )


@cache
def _devices() -> Catalogue:
    from nautile import extract

    names = extract.device_names()
    return Catalogue(devices=[finite(asdict(extract.device(name))) for name in names])


@cache
def _rules() -> list[RuleText]:
    from nautile.rules import load, packs

    return [
        RuleText(name=rule.name, pack=rule.pack, numerics=rule.numerics, text=rule.text)
        for rule in load(packs())
    ]


@cache
def _examples() -> list[Example]:
    from nautile.examples import paths

    return [Example(name=p.stem, text=p.read_text("utf-8")) for p in paths()]
