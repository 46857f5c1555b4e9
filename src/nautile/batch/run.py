"""The run of a batch: programs to records, each computed once.

```
program --resumed?--> its record stays
        --store has its key?--> the stored result, under the program's own names
        --its key in flight?--> waits for that one
        --else--> a worker; a certified result goes to the store
```
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from nautile.batch import bundles
from nautile.batch.inputs import WHOLE, files
from nautile.batch.known import Known, Read, default_path
from nautile.batch.plan import Asked
from nautile.batch.reading import Reader, Text
from nautile.batch.results import Before, Results
from nautile.batch.summary import Summary
from nautile.bundle.manifest import MANIFEST
from nautile.errors import InputError
from nautile.executor import Done, Executor
from nautile.provenance import key_of
from nautile.task import Names, Outcome, Task, renamed, renamed_files
from nautile.task.make import ingredients_of

if TYPE_CHECKING:
    from nautile.store import Entry, Store

__all__ = ["Batch", "Item", "Stopped"]

LASTING = frozenset({"extraction", "lowering", "gate"})
"""Codes of errors that a program has by itself, whatever the machine: they are kept, too."""

_REMEMBERED = 10_000  # failures of this run that programs of the same key share
_LOOK = 0.5  # seconds between looks at whether to stop
_AHEAD = 2  # tasks that wait, for each worker


class Stopped(Exception):
    """The batch was asked to stop: by `fail_fast`, or by a signal."""


@dataclass(frozen=True, slots=True)
class Item:
    """One input program, without its text."""

    index: int
    path: str
    label: str
    digest: str
    names: Names
    key: str

    @property
    def program(self) -> str:
        return self.names.program


class Batch:
    """One run of a batch over a store and an executor. `stop` may be called from a signal handler:
    nothing new is begun, and what runs is finished; `tell` hears of every record."""

    def __init__(
        self,
        asked: Asked,
        store: Store,
        executor: Executor,
        workers: int,
        *,
        tell: Callable[[Mapping[str, Any], Summary], None] = lambda record, summary: None,
    ) -> None:
        self.asked, self.store, self.executor = asked, store, executor
        self.summary = Summary()
        self._tell, self._most = tell, workers * (1 + _AHEAD)
        self._identity = asked.identity
        self._tickets: dict[int, Item] = {}
        self._waiting: dict[str, list[Item]] = {}
        self._failed: OrderedDict[str, tuple[Item, dict[str, Any]]] = OrderedDict()
        self.draining = False

    def stop(self) -> None:
        """Begin nothing new."""
        self.draining = True

    def run(self) -> Summary:
        """Every input to its record. Raises InputError where nothing can be read or written,
        Stopped (after what ran has its record) where the batch was to stop before its end."""
        started = time.monotonic()
        asked = self.asked
        with Known(default_path()) as known, Results(asked.output, resume=asked.resume) as results:
            try:
                self._all(Reader(known, asked.dims), results)
                results.settle()
                self.summary.complete = True
            finally:
                self.summary.seconds = time.monotonic() - started
        return self.summary

    # ---- inputs --------------------------------------------------------------------------------

    def _all(self, reader: Reader, results: Results) -> None:
        index = 0
        part = self.asked.shard
        for file in files(self.asked.inputs, self.asked.output, part):
            text = reader.read(file)
            self.summary.files += 1
            if text.error is not None:
                self._malformed(text, index, results)
                index += 1
            for read in text.programs:
                self._offer(text, read, index, results)
                index += 1
        if not index and part == WHOLE:
            raise InputError("there are no expression files (.nau) here", code="no-inputs")
        if reader.unused and part == WHOLE:
            named = ", ".join(sorted(reader.unused))
            raise InputError(f"--dims: no program has the size {named}", code="unknown-name")
        while self._tickets:
            self._heed(results)
            self._collect(_LOOK, results)

    def _malformed(self, text: Text, index: int, results: Results) -> None:
        from nautile.report import failure

        assert text.error is not None
        shown, state = text.file.shown, text.digest + self._identity
        before = results.done(shown, "", state, index, self._is_whole)
        if before is not None:
            self.summary.resume(before)
            return
        row = failure(None, shown, text.error)
        row["input"] = {"path": shown, "program": None, "digest": text.digest}
        self._add({**row, "index": index}, results)

    def _offer(self, text: Text, read: Read, index: int, results: Results) -> None:
        """Bring one program on its way, once there is room for it."""
        self._heed(results)
        file, ingredients = text.file, ingredients_of(read.term, self.asked.settings)
        item = Item(index, file.shown, file.label, text.digest, read.names, key_of(ingredients))
        state = item.digest + self._identity
        before = results.done(item.path, item.program, state, index, self._is_whole)
        if before is not None:
            self.summary.resume(before)
        elif item.key in self._waiting:
            self._waiting[item.key].append(item)
        elif not self._from_store(item, results):
            self._submit(item, text, ingredients, results)

    def _is_whole(self, before: Before) -> bool:
        """Whether the bundle that a record names is there."""
        place = before.bundle
        return place is None or (self.asked.output / place / MANIFEST).is_file()

    def _submit(
        self, item: Item, text: Text, ingredients: dict[str, str], results: Results
    ) -> None:
        while len(self._tickets) >= self._most:
            self._heed(results)
            self._collect(_LOOK, results)
        task = Task(
            text=text.text,
            program=item.program,
            filename=item.path,
            key=item.key,
            names=item.names,
            ingredients=ingredients,
            dims=text.dims,
            settings=self.asked.settings,
            limits=self.asked.limits,
        )
        self._waiting[item.key] = []
        self._tickets[self.executor.submit(task)] = item
        while self._collect(0.0, results):
            pass

    def _heed(self, results: Results) -> None:
        """Where the batch is to stop: finish what runs, and go no further."""
        if not self.draining:
            return
        for ticket in self._tickets:
            self.executor.cancel(ticket, running=False)
        while self._tickets:
            self._collect(_LOOK, results)
        raise Stopped

    # ---- outcomes ------------------------------------------------------------------------------

    def _from_store(self, item: Item, results: Results) -> bool:
        """Whether the store, or an earlier program of this run, had the result."""
        known = self._failed.get(item.key)
        if known is not None:
            self._fail(item, known[1], known[0], results)
            return True
        entry = self.store.get(item.key)
        if entry is not None and self.asked.measure and not _was_timed(entry.record):
            return False
        if entry is not None:
            return self._stored(item, entry, results)
        lost = self.store.get(_failure_key(item.key))
        if lost is not None:
            self._fail(item, lost.record, None, results)
        return lost is not None

    def _collect(self, timeout: float | None, results: Results) -> bool:
        """Take one outcome, with those that waited for it; whether there was one."""
        done = self.executor.next(timeout)
        if done is None:
            return False
        item = self._tickets.pop(done.ticket)
        followers = self._waiting.pop(item.key)
        self._record(item, done, results)
        for follower in followers:
            if done.outcome.ok:
                self._give(follower, done.outcome, item, results)
            elif not _was_cancelled(done.outcome):
                self._fail(follower, done.outcome.record, item, results)
        return True

    def _record(self, item: Item, done: Done, results: Results) -> None:
        """The record of a program that a worker has done."""
        outcome = done.outcome
        if _was_cancelled(outcome):
            return
        self.summary.computed += 1
        took = {"cached": False, "worker_seconds": round(done.seconds, 3)}
        if not outcome.ok:
            self._remember(item, outcome)
            self._add(self._row(item, outcome.record, None, took), results)
            return
        if outcome.lasting:
            self._keep(outcome)
        place = self._bundle(item, outcome.artifacts, outcome)
        self._add(self._row(item, outcome.record, place, took), results)

    def _remember(self, item: Item, outcome: Outcome) -> None:
        self._failed[item.key] = (item, outcome.record)
        if len(self._failed) > _REMEMBERED:
            self._failed.popitem(last=False)
        if outcome.record["error"]["code"] in LASTING:
            self.store.put(_failure_key(item.key), outcome.record, ingredients=outcome.ingredients)

    def _keep(self, outcome: Outcome) -> None:
        names = msgspec.to_builtins(outcome.names)
        ingredients = {**outcome.ingredients, "names": names}
        self.store.put(
            outcome.key,
            outcome.record,
            outcome.artifacts,
            ingredients=ingredients,
            replace=_was_timed(outcome.record),
        )

    def _stored(self, item: Item, entry: Entry, results: Results) -> bool:
        """Whether a stored result could be given to the program: not, where an artifact is damaged
        by now, or where the entry is none of ours."""
        found: dict[str, bytes] = {}
        for path, digest in entry.artifacts.items():
            content = self.store.read(digest)
            if content is None:
                return False
            found[path] = content
        try:
            names = msgspec.convert(entry.ingredients.get("names"), Names)
        except msgspec.ValidationError:
            return False
        outcome = Outcome(item.key, dict(entry.ingredients), names, entry.record, found)
        self._give(item, outcome, None, results)
        return True

    def _give(self, item: Item, outcome: Outcome, source: Item | None, results: Results) -> None:
        """The record of a program whose result was made for another one."""
        record = renamed(outcome.record, outcome.names, item.names, item.path)
        place = self._bundle(item, outcome.artifacts, outcome)
        row = self._row(item, record, place, {"cached": True, "worker_seconds": 0.0})
        self._add(row | _same_as(source), results)

    def _fail(
        self, item: Item, record: Mapping[str, Any], source: Item | None, results: Results
    ) -> None:
        """The record of a program that fails as another one of the same key has."""
        own = {**record, "program": item.program, "source": item.path}
        row = self._row(item, own, None, {"cached": True, "worker_seconds": 0.0})
        self._add(row | _same_as(source), results)

    def _bundle(self, item: Item, artifacts: Mapping[str, bytes], outcome: Outcome) -> str | None:
        if not artifacts:
            return None
        changed, gone = renamed_files(
            artifacts.__getitem__, outcome.record, outcome.names, item.names
        )
        contents = {n: d for n, d in artifacts.items() if n not in gone} | changed
        place = bundles.place_of(item.label, item.program)
        bundles.write(
            self.asked.output / place, {n: partial(bytes, d) for n, d in contents.items()}
        )
        return place

    def _row(
        self, item: Item, record: Mapping[str, Any], place: str | None, more: Mapping[str, Any]
    ) -> dict[str, Any]:
        given = {"path": item.path, "program": item.program, "digest": item.digest}
        return {**record, "index": item.index, "input": given, "bundle": place, **more}

    def _add(self, record: dict[str, Any], results: Results) -> None:
        row = {"cached": False, "bundle": None, "worker_seconds": 0.0, **record}
        row["input"] = {**record["input"], "settings": self._identity}
        results.add(row)
        failed = self.summary.add(row)
        self._tell(row, self.summary)
        if failed and self.asked.fail_fast:
            self._abandon()
            raise Stopped

    def _abandon(self) -> None:
        for ticket in self._tickets:
            self.executor.cancel(ticket)


def _same_as(source: Item | None) -> dict[str, Any]:
    return {"same_as": {"path": source.path, "program": source.program}} if source else {}


def _was_cancelled(outcome: Outcome) -> bool:
    return not outcome.ok and outcome.record["error"]["code"] == "cancelled"


def _was_timed(record: Mapping[str, Any]) -> bool:
    measurement = record.get("measurement")
    return measurement is not None and "error" not in measurement


def _failure_key(key: str) -> str:
    return f"{key}.failed"
