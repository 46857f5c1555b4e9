"""The page that explains a choice: made by a worker when somebody asks, kept in the store.

Its key is the job's key and the job's own names: a page quotes the program as it was written. It is
a folder of static files (nautile.inspector.page), served under the very policy that it declares.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from nautile.errors import RequestError
from nautile.inspector.page import POLICY as DECLARED

from . import jobs
from .context import Context
from .jobs import Asked, Job
from .results import task_of
from .runs import latest
from .tokens import Token

__all__ = ["POLICY", "asked_for", "key_of", "page"]

POLICY: Final = f"{DECLARED}; frame-ancestors 'none'"


def key_of(job: Job) -> str:
    """The page's key in the store."""
    task = task_of(job.task)
    own = hashlib.blake2b(task.text.encode(), digest_size=16)
    own.update(repr((task.program, sorted(task.dims.items()))).encode())
    return f"explain:{job.key}:{own.hexdigest()}"[:200]


def asked_for(context: Context, job: Job, token: Token) -> tuple[str, dict[str, Any] | None]:
    """The state of the page's making, which begins here where it has not, and what went wrong.

    Raises RequestError (409) for a job that has no result to explain.
    """
    if job.state != "done":
        message = f"the job is {job.state}: there is no choice to explain"
        raise RequestError(message, code="not-finished", http_status=409)
    key = key_of(job)
    if context.store.peek(key) is not None:
        return "done", None
    before = latest(context.database, key, "explain")
    if before is not None and before.state in ("failed", "dead"):
        return before.state, before.error
    asked = Asked(
        token=token.id,
        key=key,
        task=job.task,
        program=job.program,
        target=job.target,
        numerics=job.numerics,
        body_digest="",
        kind="explain",
    )
    run = jobs.also_run(
        context.database, asked, concurrency=token.concurrency, queue=context.settings.queue
    )
    return run, None


def page(context: Context, job: Job) -> Mapping[str, str] | None:
    """The digests of the files of the job's page by path; None where there is no page yet."""
    entry = context.store.peek(key_of(job)) if job.state == "done" else None
    return None if entry is None else entry.artifacts
