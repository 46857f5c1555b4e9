"""What runs on the nodes of a Ray cluster: optimizers on processors, one measurer a GPU.

An optimizer holds a pool of one worker process, so that limits of time and memory hold on every
node as they do on one machine. A measurer holds a GPU alone (`num_gpus=1`) and times a bundle in a
process of its own: a kernel that hangs or crashes costs that process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from nautile.executor.pool import Pool
from nautile.provenance import code_version
from nautile.task.model import Outcome, Task

__all__ = ["Measurer", "Optimizer", "decoded", "encoded"]

_TUNED = "tuned.json"
_TAIL = 2000  # characters of what a failed measurement has said
_OUTCOME = msgspec.msgpack.Decoder(Outcome)
_TASK = msgspec.msgpack.Decoder(Task)


def encoded(value: Task | Outcome) -> bytes:
    """A task or an outcome as it travels."""
    return msgspec.msgpack.encode(value)


def decoded(data: bytes) -> Outcome:
    """The outcome that travelled."""
    return _OUTCOME.decode(data)


class Optimizer:
    """Runs tasks one after the other in a process of this node."""

    def __init__(self) -> None:
        self._pool = Pool(1)

    def ready(self) -> str:
        """The release of the actor's node, once it has started."""
        return code_version()

    def run(self, task: bytes) -> tuple[bytes, float]:
        """The outcome of a task, and the seconds that it took."""
        self._pool.submit(_TASK.decode(task))
        done = self._pool.next()
        assert done is not None
        return encoded(done.outcome), done.seconds


class Measurer:
    """Times bundles on the GPU that Ray gave to this actor, one after the other."""

    def ready(self) -> str:
        """The release of the actor's node, once it has started."""
        return code_version()

    def measure(
        self, artifacts: Mapping[str, bytes], seconds: float
    ) -> tuple[dict[str, Any], dict[str, bytes]]:
        """The report of `nautile bench` for a bundle's files, and the record of the fastest
        implementations; {"error": {"code", "message"}} where it could not be measured."""
        with tempfile.TemporaryDirectory(prefix="nautile-measure-") as folder:
            for name, data in artifacts.items():
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            report = _bench(folder, seconds)
            tuned = Path(folder, _TUNED)
            if not tuned.is_file():
                return report, {}
            return {**report, "recorded": _TUNED}, {_TUNED: tuned.read_bytes()}


def _bench(folder: str, seconds: float) -> dict[str, Any]:
    command = [sys.executable, "-P", "-m", "nautile.runtime", "bench", folder, "--json"]
    try:
        ended = subprocess.run(command, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return _refused("time-limit", f"measuring took longer than {seconds:g} s")
    if ended.returncode not in (0, 3):
        said = ended.stderr.decode(errors="replace").strip()[-_TAIL:]
        return _refused("not-measured", said or f"it ended with status {ended.returncode}")
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def _refused(code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}
