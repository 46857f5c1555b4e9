"""Frames on the pipes between a pool and its workers: MessagePack behind a length of four bytes.

```
pool   -> worker   Job(ticket, task)*          one at a time
worker -> pool     Ready  (Stage(ticket, name)* Result(ticket, outcome))*
```
"""

from __future__ import annotations

import msgspec

from nautile.task.model import Outcome, Task

__all__ = ["HEAD", "JOB", "REPLY", "Job", "Ready", "Reply", "Result", "Stage", "framed", "taken"]

HEAD = 4


class Job(msgspec.Struct, frozen=True):
    """A task to run."""

    ticket: int
    task: Task


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The worker has started."""


class Stage(msgspec.Struct, frozen=True, tag=True):
    """The worker has come to a stage of a task."""

    ticket: int
    name: str


class Result(msgspec.Struct, frozen=True, tag=True):
    """A task is finished."""

    ticket: int
    outcome: Outcome


Reply = Ready | Stage | Result
JOB = msgspec.msgpack.Decoder(Job)
REPLY: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)


def framed(value: msgspec.Struct) -> bytes:
    """A frame that holds the value."""
    data = msgspec.msgpack.encode(value)
    return len(data).to_bytes(HEAD, "big") + data


def taken(buffer: bytearray) -> bytes | None:
    """The first frame's content, taken off the buffer; None while it is not whole."""
    if len(buffer) < HEAD:
        return None
    size = int.from_bytes(buffer[:HEAD], "big")
    if len(buffer) < HEAD + size:
        return None
    data = bytes(buffer[HEAD : HEAD + size])
    del buffer[: HEAD + size]
    return data
