"""The queue on SQLite and PostgreSQL: leases, turns, attempts, shared runs, and races."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from nautile.errors import RequestError
from nautile.service import jobs, runs
from nautile.service.database import Database
from nautile.service.runs import Claim

from .queueing import ask, asked, claim, expire, hasten, row, token


def test_a_run_is_claimed_once_and_ends_with_its_jobs(database: Database) -> None:
    owner = token(database)
    job = ask(database, owner, "k")
    assert (job.state, job.position) == ("queued", 1)
    held = claim(database)
    assert held is not None
    assert (held.key, held.task, held.attempt) == ("k", b"k", 1)
    assert claim(database) is None
    assert runs.end(database, held, "done")
    found = jobs.find(database, job.id, owner)
    assert found is not None
    assert (found.state, found.attempts, found.error) == ("done", 1, None)
    assert claim(database) is None


def test_jobs_of_one_key_share_a_run(database: Database) -> None:
    first, second = token(database), token(database)
    one, other = ask(database, first, "k"), ask(database, second, "k", priority=7)
    assert one.run == other.run
    assert row(database, one.run or 0)["priority"] == 7
    held = claim(database)
    assert held is not None
    runs.end(database, held, "failed", error={"code": "c", "message": "m"}, record={"a": 1})
    for job, owner in ((one, first), (other, second)):
        found = jobs.find(database, job.id, owner)
        assert found is not None
        assert (found.state, found.error, found.record) == (
            "failed",
            {"code": "c", "message": "m"},
            {"a": 1},
        )
    assert ask(database, first, "k").run != one.run  # what has ended is asked for anew


def test_somebody_elses_job_is_not_found(database: Database) -> None:
    job = ask(database, token(database), "k")
    assert jobs.find(database, job.id, token(database)) is None
    assert jobs.cancel(database, job.id, token(database)) is None
    assert jobs.find(database, job.id, None) is not None


def test_a_lost_lease_is_claimed_again_and_its_holder_changes_nothing(database: Database) -> None:
    job = ask(database, token(database), "k")
    lost = claim(database, "one")
    assert lost is not None
    expire(database, lost.number)
    assert claim(database, "other") is None  # put back, with a pause
    hasten(database)
    held = claim(database, "other")
    assert held is not None
    assert held.attempt == 2
    assert runs.renew(database, lost, seconds=60) == "lost"
    assert runs.wanted(database, lost) == "lost"
    assert not runs.end(database, lost, "failed", error={"code": "x", "message": "y"})
    assert not runs.retry(database, lost, {"code": "x", "message": "y"}, attempts=3)
    assert not runs.hand_back(database, lost)
    assert runs.renew(database, held, seconds=60) == "held"
    assert runs.end(database, held, "done")
    found = jobs.find(database, job.id, None)
    assert found is not None
    assert found.state == "done"


def test_attempts_are_counted_and_the_last_one_is_fatal(database: Database) -> None:
    job = ask(database, token(database), "k")
    for attempt in (1, 2, 3):
        held = claim(database) or _after_the_pause(database)
        assert held is not None
        assert held.attempt == attempt
        if attempt == 2:
            runs.retry(database, held, {"code": "worker-died", "message": "m"}, attempts=3)
        else:
            expire(database, held.number)
    assert (claim(database) or _after_the_pause(database)) is None
    found = jobs.find(database, job.id, None)
    assert found is not None
    assert found.state == "dead"
    assert found.error is not None
    assert found.error["code"] == "lease-lost"
    assert runs.dead(database)[0]["number"] == job.run
    assert runs.requeue(database) == 1
    held = claim(database)
    assert held is not None
    assert held.attempt == 1


def test_a_dead_run_whose_key_is_in_flight_stays_dead(database: Database) -> None:
    owner = token(database)
    ask(database, owner, "k")
    held = claim(database, attempts=1)
    assert held is not None
    runs.retry(database, held, {"code": "worker-died", "message": "m"}, attempts=1)
    ask(database, owner, "k")
    assert runs.requeue(database) == 0


def test_a_run_that_is_handed_back_keeps_its_attempts(database: Database) -> None:
    ask(database, token(database), "k")
    for _ in range(5):
        held = claim(database)
        assert held is not None
        assert held.attempt == 1
        runs.hand_back(database, held)


def test_tokens_take_turns(database: Database) -> None:
    greedy, modest = token(database, "greedy"), token(database, "modest")
    for n in range(6):
        ask(database, greedy, f"g{n}")
    for n in range(2):
        ask(database, modest, f"m{n}")
    served = []
    for _ in range(5):  # one worker: turns
        held = claim(database)
        assert held is not None
        served.append(held.key[0])
        runs.end(database, held, "done")
    assert sorted(served[:2]) == ["g", "m"]
    assert Counter(served[:4]) == {"g": 2, "m": 2}
    ask(database, modest, "m9")
    at_work = [claim(database), claim(database)]  # two workers: one for each
    assert {c.key[0] for c in at_work if c} == {"g", "m"}


def test_priority_orders_a_tokens_own_runs(database: Database) -> None:
    owner = token(database)
    for key, priority in (("a", 0), ("b", 5), ("c", 0), ("d", 9)):
        ask(database, owner, key, priority=priority)
    order = []
    while (held := claim(database)) is not None:
        order.append(held.key)
    assert order == ["d", "b", "a", "c"]


def test_the_last_job_that_is_cancelled_ends_its_run(database: Database) -> None:
    owner = token(database)
    one, other = ask(database, owner, "k"), ask(database, owner, "k")
    cancelled = jobs.cancel(database, one.id, owner)
    assert cancelled is not None
    assert cancelled.state == "cancelled"
    held = claim(database)
    assert held is not None
    assert runs.wanted(database, held) == "held"
    jobs.cancel(database, other.id, owner)
    assert runs.wanted(database, held) == "unwanted"
    assert runs.renew(database, held, seconds=60) == "unwanted"
    assert runs.cancelled(database, held)
    assert row(database, held.number)["state"] == "cancelled"
    queued = ask(database, owner, "q")
    jobs.cancel(database, queued.id, owner)
    assert claim(database) is None


def test_a_run_that_is_asked_for_again_while_it_is_ended_is_not_lost(database: Database) -> None:
    owner = token(database)
    one = ask(database, owner, "k")
    held = claim(database)
    assert held is not None
    jobs.cancel(database, one.id, owner)
    assert runs.wanted(database, held) == "unwanted"
    again = ask(database, owner, "k")
    assert again.run == one.run
    runs.cancelled(database, held)  # the worker has killed its child by now
    found = jobs.find(database, again.id, owner)
    assert found is not None
    assert found.state == "queued"
    assert claim(database) is not None


def test_an_idempotency_key_is_one_job(database: Database) -> None:
    owner, other = token(database), token(database)
    one = ask(database, owner, "k", idempotency="i")
    assert ask(database, owner, "k", idempotency="i").id == one.id
    assert ask(database, other, "k", idempotency="i").id != one.id
    with pytest.raises(RequestError) as refused:
        ask(database, owner, "k", idempotency="i", body_digest="another")
    assert (refused.value.code, refused.value.http_status) == ("idempotency-mismatch", 422)


def test_the_queue_and_a_tokens_jobs_are_bounded(database: Database) -> None:
    owner, other = token(database), token(database)

    def submit(who: str, key: str, concurrency: int, queue: int) -> None:
        jobs.submit(database, asked(who, key), known=False, concurrency=concurrency, queue=queue)

    submit(owner, "a", 2, 3)
    submit(owner, "b", 2, 3)
    with pytest.raises(RequestError) as refused:
        submit(owner, "c", 2, 3)
    assert (refused.value.code, refused.value.http_status) == ("too-many-jobs", 429)
    submit(other, "c", 2, 3)
    with pytest.raises(RequestError) as refused:
        submit(other, "d", 2, 3)
    assert (refused.value.code, refused.value.http_status) == ("queue-full", 503)
    assert refused.value.retry_after
    submit(other, "a", 2, 3)  # joins a run: nothing more waits
    known, new = jobs.submit(database, asked(owner, "z"), known=True, concurrency=0, queue=0)
    assert (known.state, known.run, new) == ("done", None, True)


def test_events_are_numbered_and_a_cancelled_job_has_its_own_end(database: Database) -> None:
    owner = token(database)
    one, other = ask(database, owner, "k"), ask(database, owner, "k")
    held = claim(database)
    assert held is not None
    runs.renew(database, held, seconds=60, told=[{"stage": "saturate"}])
    jobs.cancel(database, one.id, owner)
    runs.renew(database, held, seconds=60, told=[{"stage": "extract"}])
    runs.end(database, held, "done")

    def kinds(id: str, after: int = 0) -> list[tuple[int, str]]:
        found = jobs.follow(database, id, after)
        assert found is not None
        return [(e.number, e.kind) for e in found[1]]

    begun = [(1, "queued"), (2, "started"), (3, "stage")]
    assert kinds(one.id) == [*begun, (4, "cancelled")]
    assert kinds(one.id, 4) == []
    assert kinds(other.id) == [*begun, (4, "stage"), (5, "done")]
    assert kinds(other.id, 3) == [(4, "stage"), (5, "done")]
    known, _ = jobs.submit(database, asked(owner, "z"), known=True, concurrency=1, queue=1)
    assert kinds(known.id) == [(1, "done")]
    assert kinds(known.id, 1) == []


def test_pages_of_jobs_have_no_gaps(database: Database) -> None:
    owner = token(database)
    made = [ask(database, owner, f"k{n}").id for n in range(7)]
    ask(database, token(database), "other")
    seen: list[str] = []
    before = None
    while page := jobs.listed(database, owner, limit=3, before=before):
        seen += [job.id for job in page]
        before = page[-1].number
    assert seen == made[::-1]
    jobs.cancel(database, made[0], owner)
    found = jobs.listed(database, owner, limit=9, state="cancelled")
    assert [job.id for job in found] == made[:1]


def test_what_has_ended_long_ago_is_forgotten(database: Database) -> None:
    owner = token(database)
    old, young = ask(database, owner, "a"), ask(database, owner, "b")
    held = claim(database)
    assert held is not None
    runs.end(database, held, "done")
    assert runs.prune(database, older=3600) == 0
    assert runs.prune(database, older=-1) == 1
    assert jobs.find(database, old.id, owner) is None
    assert jobs.find(database, young.id, owner) is not None


def test_workers_that_race_share_out_all_runs_once(database: Database) -> None:
    owner = token(database)
    keys = [f"k{n}" for n in range(24)]
    for key in keys:
        ask(database, owner, key)
    got: list[str] = []

    def work(name: str) -> None:
        while (held := claim(database, name)) is not None:
            got.append(held.key)
            assert runs.end(database, held, "done")

    _together([lambda n=n: work(f"w{n}") for n in range(4)])
    while (held := claim(database)) is not None:  # one may have looked while others held the rest
        got.append(held.key)
    assert sorted(got) == sorted(keys)


def test_submissions_that_race_make_one_run_and_one_job(database: Database) -> None:
    owner = token(database)
    found = []
    _together(
        [
            lambda n=n: found.append(ask(database, owner, "k", idempotency=f"i{n % 2}"))
            for n in range(8)
        ]
    )
    assert len({job.run for job in found}) == 1
    assert len({job.id for job in found}) == 2


def _after_the_pause(database: Database) -> Claim | None:
    hasten(database)
    return claim(database)


def _together(works: list[object]) -> None:
    """Run all at once; the first error is raised here."""
    errors: list[BaseException] = []
    start = threading.Barrier(len(works))

    def run(work: object) -> None:
        try:
            start.wait(10)
            work()  # type: ignore[operator]
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if errors:
        raise errors[0]
