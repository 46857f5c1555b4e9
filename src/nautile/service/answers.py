"""The answers that the OpenAPI document promises beside a route's own."""

from __future__ import annotations

from typing import Any

from .problems import MEDIA_TYPE

__all__ = ["EVENTS", "EVERYWHERE", "problems", "text_of"]

_REFERENCE = {"$ref": "#/components/schemas/Problem"}
_MEANINGS = {
    400: "The body is not strict JSON.",
    401: "No valid token.",
    403: "The token lacks the scope.",
    404: "There is no such thing, or it is somebody else's.",
    408: "The body did not arrive in time.",
    409: "There is no result: not yet, or not any more.",
    410: "The store holds the result no longer.",
    413: "The body or the program passes a limit.",
    415: "Not application/json.",
    421: "Without authentication only localhost is answered.",
    422: "The request does not fit this description, or the program is malformed.",
    429: "The token's limit is reached.",
    500: "A defect of the service.",
    503: "The queue is full, or the database cannot be reached.",
}
_KINDS = ("queued", "started", "stage", "done", "failed", "cancelled", "dead")
_RETRY = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer", "minimum": 0}}}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The descriptions of these refusals."""
    return {status: _one(status) for status in sorted(statuses)}


def _one(status: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "description": _MEANINGS[status],
        "content": {MEDIA_TYPE: {"schema": _REFERENCE}},
    }
    if status in (429, 503):
        found["headers"] = _RETRY
    return found


def text_of(media_type: str, description: str) -> dict[str, Any]:
    """The description of an answer that is no JSON."""
    return {"description": description, "content": {media_type: {"schema": {"type": "string"}}}}


EVENTS: dict[str, Any] = {
    "description": "Server-sent events, until the job's end. `data` is a JSON object.",
    "content": {
        "text/event-stream": {
            "schema": {
                "type": "object",
                "required": ["id", "event", "data"],
                "properties": {
                    "id": {"type": "string", "pattern": "^[0-9]+$"},
                    "event": {
                        "type": "string",
                        "enum": list(_KINDS),
                    },
                    "data": {"type": "string", "contentMediaType": "application/json"},
                },
            }
        }
    },
}
EVERYWHERE = problems(401, 403, 421, 422, 429, 500, 503)
