"""What was asked for: jobs, each answered by a run that it may share, or by the store at once.

A submission with an idempotency key that its token has used before is the same job if its body is
the same, and an error otherwise. A key that is in flight already is not executed twice: the new job
joins the run, whose priority becomes the highest of its jobs'.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from nautile.errors import RequestError

from .database import Database, now, written
from .runs import add_event
from .tables import FINAL, IN_FLIGHT, events, jobs, runs

__all__ = [
    "Asked",
    "Job",
    "Told",
    "also_run",
    "cancel",
    "find",
    "follow",
    "listed",
    "submit",
    "told",
    "versions",
]

_COLUMNS = (
    jobs.c.number,
    jobs.c.id,
    jobs.c.token,
    jobs.c.run,
    jobs.c.key,
    jobs.c.task,
    jobs.c.program,
    jobs.c.target,
    jobs.c.numerics,
    jobs.c.priority,
    jobs.c.created,
    jobs.c.cancelled,
    jobs.c.body_digest,
    jobs.c.last_event.label("stopped_at"),
    runs.c.state.label("run_state"),
    runs.c.attempts,
    runs.c.started,
    runs.c.finished,
    runs.c.error,
    runs.c.record,
    runs.c.last_event,
    runs.c.priority.label("run_priority"),
)
_QUERY = sa.select(*_COLUMNS).outerjoin(runs, runs.c.number == jobs.c.run)


@dataclass(frozen=True, slots=True)
class Asked:
    """One submission: the token, the execution's key and task, what is shown of it in lists, the
    digest of its body, and the token's own key for asking twice."""

    token: str
    key: str
    task: bytes
    program: str
    target: str
    numerics: str
    body_digest: str
    priority: int = 0
    idempotency: str | None = None
    kind: str = "optimize"


@dataclass(frozen=True, slots=True)
class Job:
    """A job and what its run says of it; `record` is that of a failure."""

    number: int
    id: str
    token: str
    run: int | None
    key: str
    task: bytes
    program: str
    target: str
    numerics: str
    priority: int
    state: str
    created: float
    started: float | None
    finished: float | None
    attempts: int
    error: dict[str, Any] | None
    record: dict[str, Any] | None
    last_event: int
    position: int | None = None

    @property
    def final(self) -> bool:
        """True when nothing more will happen to it (short of a requeue)."""
        return self.state in FINAL


@dataclass(frozen=True, slots=True)
class Told:
    """One event of a job, numbered from 1."""

    number: int
    kind: str
    data: dict[str, Any]
    created: float


def submit(
    database: Database, asked: Asked, *, known: bool, concurrency: int, queue: int
) -> tuple[Job, bool]:
    """The job of this submission, and whether it is new. `known`: the result is in the store.

    Raises RequestError: 422 `idempotency-mismatch` for a used idempotency key with another body,
    429 `too-many-jobs` when the token has that many jobs in flight, 503 `queue-full`.
    """

    def work(connection: sa.Connection) -> tuple[Job, bool]:
        before = _asked_before(connection, asked)
        if before is not None:
            return before, False
        run = None if known else _run_for(connection, asked, concurrency, queue)
        row = {
            "id": f"opt_{secrets.token_hex(12)}",
            "token": asked.token,
            "run": run,
            "key": asked.key,
            "task": asked.task,
            "program": asked.program,
            "target": asked.target,
            "numerics": asked.numerics,
            "priority": asked.priority,
            "idempotency": asked.idempotency,
            "body_digest": asked.body_digest,
            "created": now(connection),
        }
        connection.execute(sa.insert(jobs).values(**row))
        found = _one(connection, jobs.c.id == row["id"])
        assert found is not None
        return found, True

    return written(database, work)


def also_run(database: Database, asked: Asked, *, concurrency: int, queue: int) -> str:
    """The state of a run without a job of its own, in flight or new. Raises as `submit`."""

    def work(connection: sa.Connection) -> str:
        number = _run_for(connection, asked, concurrency, queue)
        state = connection.scalar(sa.select(runs.c.state).where(runs.c.number == number))
        return str(state)

    return written(database, work)


def _asked_before(connection: sa.Connection, asked: Asked) -> Job | None:
    if asked.idempotency is None:
        return None
    same = (jobs.c.token == asked.token) & (jobs.c.idempotency == asked.idempotency)
    row = connection.execute(_QUERY.where(same)).one_or_none()
    if row is None:
        return None
    if row.body_digest != asked.body_digest:
        message = "this Idempotency-Key was used before, with another body"
        raise RequestError(message, code="idempotency-mismatch", http_status=422)
    return _job(row)


def _run_for(connection: sa.Connection, asked: Asked, concurrency: int, queue: int) -> int:
    """The run in flight of this key, or a new one."""
    _check_concurrency(connection, asked.token, concurrency)
    query = sa.select(runs).where(
        runs.c.key == asked.key, runs.c.kind == asked.kind, runs.c.state.in_(IN_FLIGHT)
    )
    row = connection.execute(query.with_for_update()).one_or_none()
    if row is None:
        return _new_run(connection, asked, queue)
    priority = max(row.priority, asked.priority)
    changed = sa.update(runs).where(runs.c.number == row.number)
    connection.execute(changed.values(priority=priority, unwanted=False))
    return int(row.number)


def _check_concurrency(connection: sa.Connection, token: str, most: int) -> None:
    query = (
        sa.select(sa.func.count())
        .select_from(jobs)
        .join(runs, runs.c.number == jobs.c.run)
        .where(jobs.c.token == token, jobs.c.cancelled.is_(None), runs.c.state.in_(IN_FLIGHT))
    )
    if (connection.scalar(query) or 0) >= most:
        message = f"this token has {most} jobs in flight, its limit; wait for one to end"
        raise RequestError(message, code="too-many-jobs", http_status=429, retry_after=5)


def _new_run(connection: sa.Connection, asked: Asked, queue: int) -> int:
    waiting = sa.select(sa.func.count()).select_from(runs).where(runs.c.state == "queued")
    if (connection.scalar(waiting) or 0) >= queue:
        message = f"the queue holds {queue} runs, its limit; come back later"
        raise RequestError(message, code="queue-full", http_status=503, retry_after=15)
    moment = now(connection)
    row = sa.insert(runs).values(
        key=asked.key,
        kind=asked.kind,
        task=asked.task,
        token=asked.token,
        priority=asked.priority,
        state="queued",
        attempts=0,
        not_before=moment,
        unwanted=False,
        created=moment,
        last_event=0,
    )
    number = int(connection.execute(row.returning(runs.c.number)).scalar_one())
    add_event(connection, number, "queued")
    return number


def find(database: Database, id: str, token: str | None) -> Job | None:
    """The job of that id, if it is the token's (None: anybody's), with its place in the queue."""
    with database.reading() as connection:
        where = jobs.c.id == id
        return _one(connection, where if token is None else where & (jobs.c.token == token))


def listed(
    database: Database,
    token: str | None,
    *,
    limit: int,
    before: int | None = None,
    state: str | None = None,
) -> list[Job]:
    """The token's jobs (None: everybody's), newest first, from below the number `before`."""
    query = _QUERY.order_by(jobs.c.number.desc()).limit(limit)
    if token is not None:
        query = query.where(jobs.c.token == token)
    if before is not None:
        query = query.where(jobs.c.number < before)
    if state is not None:
        query = query.where(_state() == state)
    with database.reading() as connection:
        return [_job(row) for row in connection.execute(query).all()]


def cancel(database: Database, id: str, token: str | None) -> Job | None:
    """Cancel a job; its run ends with the last job that wants it. A job that is final already stays
    as it is. None where there is no such job."""

    def work(connection: sa.Connection) -> Job | None:
        where = jobs.c.id == id
        found = _one(connection, where if token is None else where & (jobs.c.token == token))
        if found is None or found.final or found.run is None:
            return found
        run = connection.execute(
            sa.select(runs).where(runs.c.number == found.run).with_for_update()
        ).one()
        if run.state not in IN_FLIGHT:
            return _one(connection, where)
        moment = now(connection)
        stopped = {"cancelled": moment, "last_event": run.last_event}
        connection.execute(sa.update(jobs).where(jobs.c.number == found.number).values(**stopped))
        _leave(connection, run.number, run.state, moment)
        return _one(connection, where)

    return written(database, work)


def _leave(connection: sa.Connection, run: int, state: str, moment: float) -> None:
    """One job less wants this run."""
    wanting = (jobs.c.run == run) & jobs.c.cancelled.is_(None)
    if connection.scalar(sa.select(sa.exists().where(wanting))):
        return
    change = sa.update(runs).where(runs.c.number == run)
    if state == "queued":
        add_event(connection, run, "cancelled")
        connection.execute(change.values(state="cancelled", finished=moment))
    else:
        connection.execute(change.values(unwanted=True))


def told(connection: sa.Connection, job: Job, after: int) -> list[Told]:
    """The job's events with numbers above `after`: its run's, up to its own end."""
    query = (
        sa.select(events)
        .where(events.c.run == job.run, events.c.number > after)
        .where(events.c.number <= job.last_event)
        .order_by(events.c.number)
    )
    rows = connection.execute(query).all() if job.run is not None else []
    found = [Told(row.number, row.kind, row.data, row.created) for row in rows]
    own = job.run is None or job.state == "cancelled"  # not told by the run, or not to this job
    if own and after <= job.last_event:
        found.append(Told(job.last_event + 1, job.state, {}, job.finished or job.created))
    return found


def follow(database: Database, id: str, after: int) -> tuple[Job, list[Told]] | None:
    """The job and its events above `after`, as one state of the database has them."""
    with database.reading() as connection:
        job = _one(connection, jobs.c.id == id)
        return None if job is None else (job, told(connection, job, after))


def versions(database: Database, ids: Collection[str]) -> dict[str, tuple[bool, int]]:
    """Of each job, whether it was cancelled, and its run's last event: what changes with news."""
    query = (
        sa.select(jobs.c.id, jobs.c.cancelled, sa.func.coalesce(runs.c.last_event, 0))
        .outerjoin(runs, runs.c.number == jobs.c.run)
        .where(jobs.c.id.in_(ids))
    )
    with database.reading() as connection:
        rows = connection.execute(query).all()
    return {id: (cancelled is not None, last) for id, cancelled, last in rows}


def _state() -> sa.ColumnElement[str]:
    answered = sa.case((jobs.c.run.is_(None), "done"), else_=runs.c.state)
    return sa.case((jobs.c.cancelled.is_not(None), "cancelled"), else_=answered)


def _one(connection: sa.Connection, where: sa.ColumnElement[bool]) -> Job | None:
    row = connection.execute(_QUERY.where(where)).one_or_none()
    if row is None:
        return None
    job = _job(row)
    return replace(job, position=_position(connection, row)) if job.state == "queued" else job


def _job(row: Any) -> Job:
    gone = row.cancelled is not None
    state = "cancelled" if gone else row.run_state or "done"
    return Job(
        number=row.number,
        id=row.id,
        token=row.token,
        run=row.run,
        key=row.key,
        task=bytes(row.task),
        program=row.program,
        target=row.target,
        numerics=row.numerics,
        priority=row.priority,
        state=state,
        created=row.created,
        started=row.started,
        finished=row.cancelled if gone else row.finished if row.run else row.created,
        attempts=row.attempts or 0,
        error=None if gone else row.error,
        record=None if gone else row.record,
        last_event=row.stopped_at if gone else row.last_event or 0,
    )


def _position(connection: sa.Connection, row: Any) -> int:
    """How many queued runs are ahead by priority and age, plus one; turns between tokens may make
    it sooner or later."""
    ahead = (runs.c.priority > row.run_priority) | (
        (runs.c.priority == row.run_priority) & (runs.c.number < row.run)
    )
    query = sa.select(sa.func.count()).select_from(runs).where(runs.c.state == "queued", ahead)
    return 1 + (connection.scalar(query) or 0)
