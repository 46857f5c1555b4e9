"""One case on a GPU: correctness first, then all contestants in one race."""

from __future__ import annotations

import json
import math
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import date
from functools import partial
from typing import Any

import cupy
import torch
from interleaved import copy_bandwidth
from machine import STATE, smi

from nautile.errors import NautileError
from nautile.runtime import Bundle

from .case import BUNDLES, Case
from .check import Truth, draw, relative, truth_of, verdict
from .figures import ratio, summary
from .options import Options
from .ours import OURS, Way, schedule, ways
from .peers import Contestant, Work, work_of
from .peers.contestant import Outputs, Tensors
from .store import Record, failure, head
from .timing import Replay, captured, race
from .work import flops

__all__ = ["Cuda"]

MAX_SETS = 12
SAME_SIZE_COPY = "copy"
LOAD_MS = 400.0
PEER_SLACK = 5.0  # a peer may round more often than `plain` of the work does


class Cuda:
    """The GPU of this process. One that is to be measured is clocked up, and its copy bandwidth
    measured."""

    def __init__(self, measured: bool = True) -> None:
        self.seed = time.time_ns() % 2**31
        torch.manual_seed(self.seed)
        torch.backends.cuda.matmul.allow_tf32 = False
        warnings.filterwarnings("ignore", module="torch")
        self.copied = copy_bandwidth() if measured else math.nan
        self.built: Mapping[str, Any] = _built()

    def stamp(self) -> Record:
        """Machine, date and versions of what takes part."""
        found = {"torch": torch.__version__, "cupy": cupy.__version__}
        found |= {"cuda": str(torch.version.cuda), "cudnn": str(torch.backends.cudnn.version())}
        try:
            import triton

            found["triton"] = triton.__version__
        except ImportError:
            pass
        return {"gpu": smi("name")["name"], "date": date.today().isoformat(), "versions": found}

    def dead(self) -> bool:
        """Whether the CUDA context of this process is beyond use."""
        try:
            torch.cuda.synchronize()
            torch.ones(4, device="cuda").sum().item()
        except Exception:
            return True
        return False

    def clean(self) -> None:
        """Give back what the last case held."""
        if "torch._dynamo" in sys.modules:  # a run without compiled peers does not load it
            torch._dynamo.reset()
        torch.cuda.empty_cache()
        cupy.get_default_memory_pool().free_all_blocks()

    def make(self, case: Case, options: Options) -> None:
        """Compile the peers of a case, so that the caches on disk have them; what fails there is
        told when the case is measured."""
        if not case.folder.is_dir():
            return
        work = work_of(case)
        given = draw(Bundle.load(case.folder)[case.program], work, self.seed)
        for peer in work.contestants:
            if peer.compiles and options.excludes(peer, math.inf) is None:
                with suppress(Exception), torch.no_grad():
                    peer.make()(given)
                    torch.cuda.synchronize()

    def measure(
        self, case: Case, options: Options, until: float, give_up: Callable[[], Any]
    ) -> Record:
        """The record of a case; `until` is the end of the run in time.time()'s seconds."""
        row = self.built.get(case.name, {})
        if "error" in row or not case.folder.is_dir():
            reason = f"not built: {row.get('error', 'no bundle')}"
            return failure(case, reason) | {"not_run": "error" not in row}
        program, work = Bundle.load(case.folder)[case.program], work_of(case)
        sets = [draw(program, work, self.seed + n) for n in range(_sets(program))]
        truth = truth_of(work, sets[0])
        able, wrong, error = _checked(program, work, sets[0], truth, give_up)
        if OURS in wrong:
            return failure(case, f"wrong: {wrong[OURS]}")
        calls = {w.name: [program.bind(s, choices=w.choices) for s in sets] for w in able}
        replays = {n: captured([partial(_launch, c) for c in row]) for n, row in calls.items()}
        peers, skipped, errors = _peers(work, options, sets, truth, until)
        replays |= peers
        if work.copies:
            replays[SAME_SIZE_COPY] = captured(_copies(program, len(sets)))
        rounds = race(replays, options.rounds)
        for name, said in _spoiled(peers, work, truth).items():
            skipped[name] = said
            del replays[name], rounds[name], errors[name]
        versions = dict(program.bundle.manifest.versions)
        taken = {n: schedule(program.launches, row[0].choices) for n, row in calls.items()}
        made = _Made(case, program, taken, rounds, errors, replays)
        return (
            head(case)
            | {"correct": True, "relative_error": error, "naive_error": max(truth.naive)}
            | made.record(self.copied)
            | {"skipped": skipped, "wrong_variants": wrong}
            | {"smi": _under_load(replays[OURS], rounds[OURS])}
            | {"predicted_ms": row.get("predicted_ms"), "made_with": versions}
            | {"seed": self.seed}
        )


def _built() -> Mapping[str, Any]:
    path = BUNDLES / "built.json"
    found: Mapping[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def _checked(
    program: Any, work: Work, given: Tensors, truth: Truth, give_up: Callable[[], Any]
) -> tuple[list[Way], dict[str, str], float]:
    """The implementations that are right, what is wrong with the others, and our own error."""
    able, wrong, own = [], {}, math.nan
    for way in ways(program):
        try:
            said, error = verdict(program, way, work, given, truth, give_up)
        except NautileError as problem:  # it does not load here, say; the others may
            said, error = str(problem), math.inf
        own = error if way.name == OURS else own
        if said:
            wrong[way.name] = said
        else:
            able.append(way)
    return able, wrong, own


def _launch(call: Any) -> None:
    call.launch(torch.cuda.current_stream())


def _sets(program: Any) -> int:
    """How many sets of arrays pass three times the L2 cache together."""
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    return max(1, min(MAX_SETS, math.ceil(3 * float(cache) / _least(program))))


def _peers(
    work: Work, options: Options, sets: Sequence[Tensors], truth: Truth, until: float
) -> tuple[dict[str, Replay], dict[str, str], dict[str, float]]:
    """The peers that take part, why others do not, and the error of those that do."""
    replays: dict[str, Replay] = {}
    skipped: dict[str, str] = {}
    errors: dict[str, float] = {}
    for peer in work.contestants:
        reason = options.excludes(peer, until - time.time())
        if reason is None:
            try:
                replays[peer.name], errors[peer.name] = _peer(peer, work, sets, truth)
            except Exception as error:  # a peer that fails must not hide the others
                reason = f"{type(error).__name__}: {str(error).strip()[:160]}"
                print(f"  {peer.name}: {reason}", file=sys.stderr, flush=True)
        if reason is not None:
            skipped[peer.name] = reason
    return replays, skipped, errors


def _peer(
    peer: Contestant, work: Work, sets: Sequence[Tensors], truth: Truth
) -> tuple[Replay, float]:
    """A peer that computes the same thing. ValueError where its result is another."""
    function = peer.make()
    with torch.no_grad():
        error = _error(work, function(sets[0]), truth)
        torch.cuda.synchronize()
        if not _bearable(error, truth):
            raise ValueError(f"its relative error is {error:.1e}")
        return captured([partial(function, s) for s in sets]), error


def _spoiled(peers: Mapping[str, Replay], work: Work, truth: Truth) -> dict[str, str]:
    """The peers whose graphs gave other results in the race than when they were checked."""
    found = {}
    for name, replay in peers.items():
        for result in replay.results[:1]:
            error = _error(work, result, truth)
            if not _bearable(error, truth):
                found[name] = f"in the race its relative error was {error:.1e}"
    return found


def _error(work: Work, result: Outputs, truth: Truth) -> float:
    got = work.sample(result)
    return max(relative(g, e) for g, e in zip(got, truth.exact, strict=True))


def _bearable(error: float, truth: Truth) -> bool:
    return error <= PEER_SLACK * max(truth.naive) + 1e-4


def _under_load(replay: Replay, rounds: Sequence[float]) -> dict[str, str]:
    """Clocks, power and temperature while our own kernel runs again and again."""
    repetitions = max(1, round(LOAD_MS / (min(rounds) * replay.count)))
    for _ in range(repetitions):
        replay.run()
    found = smi(*STATE, "temperature.gpu")
    torch.cuda.synchronize()
    return found


def _copies(program: Any, sets: int) -> list[Callable[[], Any]]:
    """Copies that move as many bytes as the program must."""
    pairs = [
        torch.randint(0, 99, (2, _least(program) // 2), dtype=torch.uint8, device="cuda")
        for _ in range(sets)
    ]
    return [partial(p[0].copy_, p[1]) for p in pairs]


def _least(program: Any) -> int:
    """Bytes that any implementation moves: each input read once, each output written once."""
    return int(sum(b.nbytes for b in program.buffers.values() if b.role != "intermediate"))


class _Made:
    """The figures of one race."""

    def __init__(
        self, case: Case, program: Any, able: Mapping[str, str], rounds: Mapping[str, list[float]],
        errors: Mapping[str, float], replays: Mapping[str, Replay],
    ) -> None:  # fmt: skip
        self.case, self.program, self.able = case, program, able
        self.rounds, self.errors, self.replays = rounds, errors, replays

    def record(self, copied: float) -> Record:
        rate = _least(self.program) / self.timed(OURS)["ms"] / 1e6
        others = {n: self.beside(n) for n in self.rounds if n != OURS}
        work = flops(self.case)
        return {
            "nautile": self.timed(OURS) | {"kernels": len(self.program.launches)},
            "variants": {n: p for n, p in others.items() if n in self.able},
            "peers": {n: p for n, p in others.items() if n in self.errors},
            "same_size_copy": others.get(SAME_SIZE_COPY),
            "tflops": work / self.timed(OURS)["ms"] / 1e9 if work else None,
            "gb_per_s": rate,
            "copy_gb_per_s": copied,
            "of_copy": rate / copied,
        }

    def timed(self, name: str) -> Record:
        found = summary(self.rounds[name]) | {"in_graph": self.replays[name].in_graph}
        if name in self.able:
            found["schedule"] = self.able[name]
        if name in self.errors:
            found["relative_error"] = self.errors[name]
        return found

    def beside(self, name: str) -> Record:
        return self.timed(name) | ratio(self.rounds[OURS], self.rounds[name])
