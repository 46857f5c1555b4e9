"""`/v1/optimizations`: submit, see, follow, cancel, and list."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated

import msgspec
from fastapi import APIRouter, Header, Path, Query, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from nautile.errors import RequestError
from nautile.task import Limits, Settings, Task
from nautile.task import Pack as TaskPack

from . import jobs, runs
from .access import Admin, Reads, Service, Submits, whose
from .answers import EVENTS, EVERYWHERE, problems
from .body import StrictRoute
from .context import Context
from .jobs import Asked, Job
from .metrics import ANSWERS
from .models import Optimization, Optimizations, State, Submission, shown
from .streams import check_place, events_of, place
from .tokens import Token

__all__ = ["Id", "found", "router"]

router = APIRouter(prefix="/v1/optimizations", tags=["optimizations"], route_class=StrictRoute)

Id = Annotated[str, Path(pattern="^opt_[0-9a-f]{24}$", examples=["opt_0123456789abcdef01234567"])]
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[!-~]{1,200}$",
        description="A submission that is sent again with its key is the same job.",
    ),
]
_LOCATION = {
    "Location": {"description": "The job.", "schema": {"type": "string"}},
    "Idempotency-Replayed": {
        "description": "`true` where this submission was known.",
        "schema": {"type": "string", "enum": ["true", "false"]},
    },
}
_GET_JOB = {
    "job": {"operationId": "optimization", "parameters": {"id": "$response.body#/id"}},
    "cancel": {"operationId": "cancel", "parameters": {"id": "$response.body#/id"}},
}


@router.post(
    "",
    operation_id="submit",
    status_code=202,
    response_model=Optimization,
    responses={
        200: {
            "model": Optimization,
            "description": "The result is there already.",
            "headers": _LOCATION,
            "links": _GET_JOB,
        },
        202: {"description": "Accepted.", "headers": _LOCATION, "links": _GET_JOB},
        **EVERYWHERE,
        **problems(400, 408, 413, 415),
    },
)
async def submit(
    submission: Submission,
    response: Response,
    context: Service,
    token: Submits,
    idempotency: Key = None,
) -> Optimization:
    """Ask for the best program that computes the same."""
    if context.draining.is_set():
        raise RequestError("the service stops", code="busy", http_status=503, retry_after=5)
    task = await _read(context, submission)
    asked = _asked(task, submission, token, idempotency)
    job, new = await run_in_threadpool(_submitted, context, asked, token)
    response.status_code = 200 if job.final else 202
    response.headers["Location"] = f"/v1/optimizations/{job.id}"
    response.headers["Idempotency-Replayed"] = "false" if new else "true"
    ANSWERS.labels("replayed" if not new else "stored" if job.final else "queued").inc()
    return shown(job)


async def _read(context: Context, submission: Submission) -> Task:
    settings = context.settings
    if len(submission.text.encode()) > settings.text_bytes:
        message = f"the text is longer than {settings.text_bytes} bytes; split it"
        raise RequestError(message, code="limit", http_status=413)
    for pack in submission.rules:
        if pack.text is not None and len(pack.text.encode()) > settings.pack_bytes:
            message = f"the pack {pack.name} is longer than {settings.pack_bytes} bytes"
            raise RequestError(message, code="limit", http_status=413)
    limits = Limits(
        seconds=settings.task_seconds,
        cpu_seconds=2 * settings.task_seconds,
        memory_bytes=settings.task_memory,
    )
    return await context.readers.read(
        submission.text,
        submission.program,
        submission.dims,
        _settings(submission, settings.task_memory),
        limits=limits,
        terms=settings.terms,
    )


def _settings(submission: Submission, memory: int) -> Settings:
    return Settings(
        target=submission.target,
        numerics=submission.numerics,
        rules=tuple(_pack(pack.name, pack.text) for pack in submission.rules),
        accept=tuple(submission.accept),
        rows=submission.rows,
        seconds=submission.seconds,
        memory=min(4 << 30, memory),
        compile=submission.compile,
        architectures=tuple(submission.architectures),
        candidates=submission.candidates,
    )


def _pack(name: str, text: str | None) -> TaskPack:
    """A pack of the user's has a file's name, and a shipped one none: no name is ever a path."""
    if text is None:
        from nautile.rules.library import packs

        if name not in packs():
            message = f"no shipped pack is called {name}; known: {', '.join(packs())}"
            raise RequestError(message, code="unknown-name", http_status=422)
        return TaskPack(name)
    return TaskPack(name if name.endswith(".nau") else f"{name}.nau", text)


def _asked(task: Task, submission: Submission, token: Token, idempotency: str | None) -> Asked:
    body = json.dumps(submission.model_dump(), sort_keys=True).encode()
    return Asked(
        token=token.id,
        key=task.key,
        task=msgspec.msgpack.encode(task),
        program=task.program,
        target=task.settings.target,
        numerics=task.settings.numerics,
        body_digest=hashlib.sha256(body).hexdigest(),
        priority=submission.priority,
        idempotency=idempotency,
    )


def _submitted(context: Context, asked: Asked, token: Token) -> tuple[Job, bool]:
    return jobs.submit(
        context.database,
        asked,
        known=context.store.get(asked.key) is not None,
        concurrency=token.concurrency,
        queue=context.settings.queue,
    )


@router.get("", operation_id="optimizations", response_model=Optimizations, responses=EVERYWHERE)
def listing(
    context: Service,
    token: Reads,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: Annotated[str | None, Query(pattern="^[0-9]{1,15}$")] = None,
    state: State | None = None,
) -> Optimizations:
    """The token's jobs, the newest first; an administrator's are everybody's."""
    before = None if cursor is None else int(cursor)
    page = jobs.listed(context.database, whose(token), limit=limit + 1, before=before, state=state)
    more = str(page[limit - 1].number) if len(page) > limit else None
    return Optimizations(optimizations=[shown(job) for job in page[:limit]], next=more)


def found(context: Context, id: str, token: Token) -> Job:
    """The job of that id. Raises RequestError (404) where there is none for this token."""
    job = jobs.find(context.database, id, whose(token))
    if job is None:
        raise RequestError(f"there is no optimization {id}", code="not-found", http_status=404)
    return job


@router.get(
    "/{id}",
    operation_id="optimization",
    response_model=Optimization,
    responses={**EVERYWHERE, **problems(404)},
)
def one(id: Id, context: Service, token: Reads) -> Optimization:
    """One job."""
    return shown(found(context, id, token))


@router.delete(
    "/{id}",
    operation_id="cancel",
    response_model=Optimization,
    responses={**EVERYWHERE, **problems(404)},
)
def cancel(id: Id, context: Service, token: Submits) -> Optimization:
    """Cancel a job: what was to be executed for it alone stops. A job that has ended stays."""
    job = jobs.cancel(context.database, id, whose(token))
    if job is None:
        raise RequestError(f"there is no optimization {id}", code="not-found", http_status=404)
    return shown(job)


@router.post(
    "/{id}/requeue",
    operation_id="requeue",
    response_model=Optimization,
    responses={**EVERYWHERE, **problems(404, 409)},
)
def requeue(id: Id, context: Service, token: Admin) -> Optimization:
    """Give a dead job its attempts again."""
    job = found(context, id, token)
    if job.run is None or not runs.requeue(context.database, job.run):
        message = f"the job is {job.state}; dead ones are requeued, unless their key is in flight"
        raise RequestError(message, code="not-dead", http_status=409)
    return shown(found(context, id, token))


@router.get(
    "/{id}/events",
    operation_id="events",
    response_class=StreamingResponse,
    responses={
        200: EVENTS,
        204: {"description": "The job has ended, and `Last-Event-ID` was its last event."},
        **EVERYWHERE,
        **problems(404),
    },
)
async def events(
    id: Id,
    context: Service,
    token: Reads,
    last: Annotated[
        int | None,
        Header(alias="Last-Event-ID", ge=0, le=1 << 31, description="The last one received."),
    ] = None,
) -> Response:
    """What happens to a job, as it happens."""
    job = await run_in_threadpool(found, context, id, token)
    after = last or 0
    if job.final and after:
        rest = await run_in_threadpool(jobs.follow, context.database, id, after)
        if rest is None or not rest[1]:
            return Response(status_code=204)
    check_place(context, token.id)
    return StreamingResponse(_placed(context, token.id, id, after), media_type="text/event-stream")


async def _placed(context: Context, token: str, id: str, after: int) -> AsyncIterator[bytes]:
    """The stream in its place, which is free again when it ends, however it ends."""
    with place(context, token):
        async with aclosing(events_of(context, id, after)) as pieces:
            async for piece in pieces:
                yield piece
