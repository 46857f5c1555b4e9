"""What is executed: runs under leases, at least once, with results that may be written twice.

A worker claims a run and holds it by a lease that it renews; when the lease ends without a renewal
the run is claimable again, until its attempts are used up: then it is `dead`, and stays so until
somebody requeues it. A lease has a name of its own, and every change asks for it: a worker that
was given up for dead, and comes back, changes nothing.

Turns go to the token with the fewest runs at work, then to the one that waited longest for a turn;
within a token to the highest priority, then to the oldest run.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import sqlalchemy as sa

from .database import Database, now, skip_locked, written
from .tables import FINAL, STATES, events, jobs, runs, tokens

__all__ = [
    "Claim",
    "Ended",
    "add_event",
    "cancelled",
    "claim",
    "counted",
    "dead",
    "end",
    "hand_back",
    "latest",
    "prune",
    "renew",
    "requeue",
    "retry",
    "wanted",
]

Kept = Literal["held", "unwanted", "lost"]
_BACKOFF = 2.0  # seconds before the second attempt, doubled for each further one
_LONGEST_BACKOFF = 300.0


@dataclass(frozen=True, slots=True)
class Claim:
    """A run that this worker holds, by the lease of that name."""

    number: int
    key: str
    kind: str
    task: bytes
    attempt: int
    lease: str


def claim(database: Database, owner: str, *, seconds: float, attempts: int) -> Claim | None:
    """The next run for `owner`, leased for `seconds`, or None. Runs whose lease has ended are put
    back first, or declared dead after that many attempts."""
    with database.reading() as connection:
        if not connection.scalar(sa.select(sa.exists(_claimable(now(connection))))):
            return None
    return written(database, lambda c: _claim(c, owner, seconds, attempts))


def _claimable(moment: float) -> sa.Select[Any]:
    waiting = (runs.c.state == "queued") & (runs.c.not_before <= moment)
    lost = (runs.c.state == "running") & (runs.c.lease_until < moment)
    return sa.select(runs.c.number).where(waiting | lost)


def _claim(connection: sa.Connection, owner: str, seconds: float, attempts: int) -> Claim | None:
    moment = now(connection)
    _recover(connection, moment, attempts)
    row = connection.execute(_next(moment)).one_or_none()
    if row is None:
        return None
    lease = secrets.token_hex(16)
    connection.execute(
        sa.update(runs)
        .where(runs.c.number == row.number)
        .values(
            state="running",
            attempts=row.attempts + 1,
            owner=owner,
            lease=lease,
            lease_until=moment + seconds,
            started=moment,
        )
    )
    connection.execute(sa.update(tokens).where(tokens.c.id == row.token).values(served=moment))
    told = {"attempt": row.attempts + 1, "worker": owner}
    add_event(connection, row.number, "started", told)
    return Claim(row.number, row.key, row.kind, row.task, row.attempts + 1, lease)


def _next(moment: float) -> sa.Select[Any]:
    """The run whose turn it is."""
    at_work = (
        sa.select(runs.c.token, sa.func.count().label("count"))
        .where(runs.c.state == "running")
        .group_by(runs.c.token)
        .subquery()
    )
    query = (
        sa.select(runs.c.number, runs.c.key, runs.c.kind, runs.c.task, runs.c.attempts)
        .add_columns(runs.c.token)
        .join(tokens, tokens.c.id == runs.c.token)
        .outerjoin(at_work, at_work.c.token == runs.c.token)
        .where(runs.c.state == "queued", runs.c.not_before <= moment)
        .order_by(sa.func.coalesce(at_work.c.count, 0), tokens.c.served, tokens.c.id)
        .order_by(runs.c.priority.desc(), runs.c.number)
        .limit(1)
    )
    return skip_locked(query, runs)


def _recover(connection: sa.Connection, moment: float, attempts: int) -> None:
    """Put back the runs whose lease has ended."""
    query = sa.select(runs.c.number, runs.c.attempts, runs.c.unwanted).where(
        runs.c.state == "running", runs.c.lease_until < moment
    )
    for row in connection.execute(skip_locked(query, runs)).all():
        if row.unwanted:
            _close(connection, row.number, "cancelled", moment)
            continue
        error = {"code": "lease-lost", "message": "the worker gave no sign of life in time"}
        _again(connection, row.number, row.attempts, attempts, error, moment)


def renew(
    database: Database, held: Claim, *, seconds: float, told: Sequence[Mapping[str, Any]] = ()
) -> Kept:
    """Prolong the lease to `seconds` from now, and tell the stages `told`: "unwanted" when no job
    wants the run any more, "lost" when it belongs to somebody else by now, who will do it again."""

    def work(connection: sa.Connection) -> Kept:
        row = _held(connection, held)
        if row is None:
            return "lost"
        _set(connection, held.number, lease_until=now(connection) + seconds)
        for data in told:
            add_event(connection, held.number, "stage", data)
        return "unwanted" if row.unwanted else "held"

    return written(database, work)


def wanted(database: Database, held: Claim) -> Kept:
    """The same, without prolonging anything."""
    query = sa.select(runs.c.unwanted).where(
        runs.c.number == held.number, runs.c.state == "running", runs.c.lease == held.lease
    )
    with database.reading() as connection:
        row = connection.execute(query).one_or_none()
    return "lost" if row is None else "unwanted" if row.unwanted else "held"


def end(
    database: Database,
    held: Claim,
    state: Literal["done", "failed"],
    *,
    error: Mapping[str, Any] | None = None,
    record: Mapping[str, Any] | None = None,
    told: Mapping[str, Any] | None = None,
) -> bool:
    """Close the run; False when the lease was lost (then nothing is changed). `record` is kept for
    failures alone: a result is in the store before its run is done."""

    def work(connection: sa.Connection) -> bool:
        if _held(connection, held) is None:
            return False
        _close(connection, held.number, state, now(connection), error, record, told)
        return True

    return written(database, work)


def retry(database: Database, held: Claim, error: Mapping[str, Any], *, attempts: int) -> bool:
    """Queue the run again after a pause, or declare it dead after that many attempts."""

    def again(connection: sa.Connection) -> None:
        _again(connection, held.number, held.attempt, attempts, error, now(connection))

    return _given_up(database, held, again)


def hand_back(database: Database, held: Claim, reason: str = "the worker stops") -> bool:
    """Return a run that was not finished to its place; the attempt does not count."""

    def again(connection: sa.Connection) -> None:
        _wait(connection, held.number, held.attempt - 1, now(connection))
        add_event(connection, held.number, "queued", {"reason": reason})

    return _given_up(database, held, again)


def cancelled(database: Database, held: Claim) -> bool:
    """Close a run that nobody wants; if somebody asked for it meanwhile, it waits again."""
    return hand_back(database, held, "asked for again")


def _given_up(database: Database, held: Claim, again: Callable[[sa.Connection], None]) -> bool:
    """Close a run that is not finished if nobody wants it, else do `again`; False for a lost
    lease."""

    def work(connection: sa.Connection) -> bool:
        row = _held(connection, held)
        if row is None:
            return False
        if row.unwanted:
            _close(connection, held.number, "cancelled", now(connection))
        else:
            again(connection)
        return True

    return written(database, work)


def requeue(database: Database, number: int | None = None) -> int:
    """Give dead runs (that one, or all) their attempts again; returns how many. A run whose key is
    in flight meanwhile stays dead: its answer is on the way."""

    def work(connection: sa.Connection) -> int:
        other = runs.alias()
        alive = sa.exists().where(
            other.c.key == runs.c.key,
            other.c.kind == runs.c.kind,
            other.c.state.in_(("queued", "running")),
        )
        query = sa.select(sa.func.max(runs.c.number)).where(runs.c.state == "dead", ~alive)
        if number is not None:
            query = query.where(runs.c.number == number)
        found = list(connection.scalars(query.group_by(runs.c.key, runs.c.kind)))
        for one in found:
            _wait(connection, one, 0, now(connection))
            _set(connection, one, error=None, finished=None, unwanted=False)
            add_event(connection, one, "queued", {"reason": "requeued"})
        return len(found)

    return written(database, work)


def counted(database: Database) -> dict[str, int]:
    """How many runs are in each state."""
    query = sa.select(runs.c.state, sa.func.count()).group_by(runs.c.state)
    with database.reading() as connection:
        found = {row[0]: int(row[1]) for row in connection.execute(query)}
    return {state: found.get(state, 0) for state in STATES}


def dead(database: Database, most: int = 1000) -> list[dict[str, Any]]:
    """The dead runs with their errors, the oldest first."""
    query = (
        sa.select(runs.c.number, runs.c.kind, runs.c.key, runs.c.error)
        .where(runs.c.state == "dead")
        .order_by(runs.c.number)
        .limit(most)
    )
    with database.reading() as connection:
        return [dict(row._mapping) for row in connection.execute(query)]


def prune(database: Database, older: float) -> int:
    """Forget closed runs that ended more than `older` seconds ago, with their jobs and events."""

    def work(connection: sa.Connection) -> int:
        before = now(connection) - older
        old = sa.select(runs.c.number).where(runs.c.state.in_(FINAL), runs.c.finished < before)
        alone = jobs.c.run.is_(None) & (jobs.c.created < before)
        connection.execute(sa.delete(jobs).where(jobs.c.run.in_(old) | alone))
        connection.execute(sa.delete(events).where(events.c.run.in_(old)))
        ended = runs.c.state.in_(FINAL) & (runs.c.finished < before)
        return connection.execute(sa.delete(runs).where(ended)).rowcount

    return written(database, work)


@dataclass(frozen=True, slots=True)
class Ended:
    """How the latest run of a key stands, and what went wrong."""

    state: str
    error: dict[str, Any] | None


def latest(database: Database, key: str, kind: str) -> Ended | None:
    """The latest run of that key, or None where there is none."""
    query = (
        sa.select(runs.c.state, runs.c.error)
        .where(runs.c.key == key, runs.c.kind == kind)
        .order_by(runs.c.number.desc())
        .limit(1)
    )
    with database.reading() as connection:
        row = connection.execute(query).one_or_none()
    return None if row is None else Ended(row.state, row.error)


def add_event(
    connection: sa.Connection, number: int, kind: str, data: Mapping[str, Any] | None = None
) -> int:
    """Tell what happened to a run; returns the event's number within it."""
    stated = (
        sa.update(runs)
        .where(runs.c.number == number)
        .values(last_event=runs.c.last_event + 1)
        .returning(runs.c.last_event)
    )
    place = connection.execute(stated).scalar_one()
    row = {"run": number, "number": place, "kind": kind, "data": dict(data or {})}
    connection.execute(sa.insert(events).values(**row, created=now(connection)))
    return int(place)


def _held(connection: sa.Connection, held: Claim) -> sa.Row[Any] | None:
    """The run's row, locked, if the lease is still its lease."""
    query = sa.select(runs.c.unwanted).where(
        runs.c.number == held.number, runs.c.state == "running", runs.c.lease == held.lease
    )
    return connection.execute(query.with_for_update()).one_or_none()


def _again(
    connection: sa.Connection,
    number: int,
    tried: int,
    attempts: int,
    error: Mapping[str, Any],
    moment: float,
) -> None:
    if tried >= attempts:
        _close(connection, number, "dead", moment, error)
        return
    pause = min(_BACKOFF * 2 ** (tried - 1), _LONGEST_BACKOFF)
    _wait(connection, number, tried, moment + pause)
    told = {"reason": "tried again", "error": dict(error), "pause": pause}
    add_event(connection, number, "queued", told)


def _wait(connection: sa.Connection, number: int, tried: int, not_before: float) -> None:
    free = {"owner": None, "lease": None, "lease_until": None}
    _set(connection, number, state="queued", attempts=tried, not_before=not_before, **free)


def _close(
    connection: sa.Connection,
    number: int,
    state: str,
    moment: float,
    error: Mapping[str, Any] | None = None,
    record: Mapping[str, Any] | None = None,
    told: Mapping[str, Any] | None = None,
) -> None:
    shown = dict(told or {}) | ({"error": dict(error)} if error else {})
    add_event(connection, number, state, shown)
    _set(
        connection,
        number,
        state=state,
        finished=moment,
        error=dict(error) if error else None,
        record=dict(record) if record else None,
        owner=None,
        lease=None,
        lease_until=None,
    )


def _set(connection: sa.Connection, number: int, **values: Any) -> None:
    connection.execute(sa.update(runs).where(runs.c.number == number).values(**values))
