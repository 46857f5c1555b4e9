"""What came of a job: the record, the bundle's files, and the page that explains the choice."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from starlette.responses import JSONResponse

from nautile.errors import RequestError

from . import explanations, jobs
from .access import Reads, Service, Submits
from .answers import EVERYWHERE, problems
from .context import Context
from .explanations import POLICY
from .gate import API_POLICY
from .models import Artifact, Artifacts, Explanation, Fault, moment
from .optimizations import Id, found
from .results import bundle_of, record_of
from .tickets import opened, sealed

__all__ = ["public", "router"]

router = APIRouter(prefix="/v1/optimizations/{id}", tags=["results"])
public = APIRouter(tags=["results"])

_TYPES = {
    "cu": "text/plain; charset=utf-8",
    "json": "application/json",
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "txt": "text/plain; charset=utf-8",
    "md": "text/plain; charset=utf-8",
}
FilePath = Annotated[str, Path(min_length=1, max_length=1000, description="As listed.")]
_TEXT: dict[str, Any] = {"schema": {"type": "string"}}
_BYTES: dict[str, Any] = {
    "description": "The file.",
    "content": {
        "application/octet-stream": _TEXT,
        "text/plain": _TEXT,
        "application/json": {"schema": {}},
    },
}
_PAGE: dict[str, Any] = {
    "description": "A file of the page.",
    "content": {media.partition(";")[0]: _TEXT for media in _TYPES.values()} | _BYTES["content"],
}


@router.get(
    "/result",
    operation_id="result",
    responses={
        200: {
            "description": "One object, as `nautile optimize --json` prints it.",
            "content": {"application/json": {"schema": {"type": "object"}}},
        },
        **EVERYWHERE,
        **problems(404, 409, 410),
    },
    response_class=JSONResponse,
)
def result(id: Id, context: Service, token: Reads) -> Response:
    """The record: of a failure, too."""
    return JSONResponse(record_of(context.store, found(context, id, token)))


@router.get(
    "/artifacts",
    operation_id="artifacts",
    response_model=Artifacts,
    responses={**EVERYWHERE, **problems(404, 409, 410)},
)
def artifacts(id: Id, context: Service, token: Reads) -> Artifacts:
    """The bundle's files."""
    bundle = bundle_of(context.store, found(context, id, token))
    home = f"/v1/optimizations/{id}/artifacts"
    files = [Artifact(path=p, bytes=n, href=f"{home}/{p}") for p, n in bundle.listed()]
    return Artifacts(artifacts=files)


@router.get(
    "/artifacts/{path:path}",
    operation_id="artifact",
    response_class=Response,
    responses={200: _BYTES, **EVERYWHERE, **problems(404, 409, 410)},
)
def artifact(id: Id, path: FilePath, context: Service, token: Reads) -> Response:
    """One of the bundle's files. A path is looked up among those that are listed, and never on a
    disk."""
    data = bundle_of(context.store, found(context, id, token)).read(path)
    if data is None:
        raise RequestError("the bundle has no such file", code="not-found", http_status=404)
    kind = _TYPES.get(path.rpartition(".")[2], "application/octet-stream")
    kept = (
        kind if kind.startswith(("text/plain", "application/json")) else "application/octet-stream"
    )
    return Response(data, media_type=kept, headers={"Content-Security-Policy": API_POLICY})


@router.post(
    "/explanation",
    operation_id="explain",
    status_code=202,
    response_model=Explanation,
    responses={
        200: {"model": Explanation, "description": "The page is there."},
        **EVERYWHERE,
        **problems(404, 409, 410),
    },
)
def explain(id: Id, response: Response, context: Service, token: Submits) -> Explanation:
    """Have the page made that explains the choice, or a link to it, which works without a token for
    a while. Ask again until `state` is final."""
    job = found(context, id, token)
    state, error = explanations.asked_for(context, job, token)
    if state != "done":
        fault = Fault(**error) if error else None
        return Explanation(state=state, href=None, expires=None, error=fault)  # type: ignore[arg-type]
    until = int(time.time() + context.settings.ticket_seconds)
    href = f"/explanations/{sealed(context.ticket_key, id, until)}/"
    response.status_code = 200
    return Explanation(state="done", href=href, expires=moment(until))


@router.get(
    "/explanation/",
    operation_id="explanation",
    response_class=Response,
    responses={200: _PAGE, **EVERYWHERE, **problems(404, 409, 410)},
)
def page(id: Id, context: Service, token: Reads) -> Response:
    """The page, once it was made."""
    found(context, id, token)
    return _file(context, id, "index.html")


@router.get(
    "/explanation/{path:path}",
    operation_id="explanation-file",
    response_class=Response,
    responses={200: _PAGE, **EVERYWHERE, **problems(404, 409, 410)},
)
def page_file(id: Id, path: FilePath, context: Service, token: Reads) -> Response:
    """A file of the page."""
    found(context, id, token)
    return _file(context, id, path)


@public.get("/explanations/{ticket}/", include_in_schema=False)
def ticket_page(ticket: str, context: Service) -> Response:
    """The page, for whoever has the link."""
    return _file(context, _job_of(context, ticket), "index.html")


@public.get("/explanations/{ticket}/{path:path}", include_in_schema=False)
def ticket_file(ticket: str, path: str, context: Service) -> Response:
    """A file of the page, for whoever has the link."""
    return _file(context, _job_of(context, ticket), path)


def _job_of(context: Context, ticket: str) -> str:
    id = opened(context.ticket_key, ticket)
    if id is None:
        message = "this link works no longer: ask for the explanation again"
        raise RequestError(message, code="not-found", http_status=404)
    return id


def _file(context: Context, id: str, path: str) -> Response:
    job = jobs.find(context.database, id, None)
    page = None if job is None else explanations.page(context, job)
    if page is None:
        message = "there is no page yet: POST to `explanation`, and wait until it is done"
        raise RequestError(message, code="not-finished", http_status=409, retry_after=1)
    data = context.store.read(page[path]) if path in page else None
    if data is None:
        raise RequestError("the page has no such file", code="not-found", http_status=404)
    kind = _TYPES.get(path.rpartition(".")[2], "application/octet-stream")
    headers = {"Content-Security-Policy": POLICY, "X-Frame-Options": "DENY"}
    return Response(data, media_type=kind, headers=headers)
