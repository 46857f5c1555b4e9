"""One process of bench/decode.py: checks and times the programs of each case on the GPU."""

from __future__ import annotations

import datetime
import json
import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import cupy
import torch
from decode import failure, line, read, write
from decode_cases import ABOUT, CHOSEN, Case
from decode_peers import PEERS, Peer
from interleaved import copy_bandwidth, first_run, race
from machine import STATE, smi

from nautile.runtime import Bundle, Program
from nautile.runtime.draw import POISONS, poison

__all__ = ["run"]

HANG_SECONDS = 20.0
MAX_SETS = 6
ROUNDS = 9
TYPES = {"bf16": torch.bfloat16, "f32": torch.float32}
FLOORS = {"bf16": 1e-4, "f32": 2e-6}  # added to twice torch's own relative error
Tensors = dict[str, torch.Tensor]
Record = dict[str, Any]


def run(cases: Sequence[Case], path: Path, until: float) -> None:
    """Run the cases that have no record in the file yet, while there is time."""
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    copied = copy_bandwidth()
    for case in cases[len(read(path)) :]:
        if time.time() > until:
            return
        record = _record(case, path, copied)
        write(path, [*read(path), record])
        print(line(record), flush=True)
        if record.get("fatal"):
            os._exit(4)
        torch.cuda.empty_cache()
        cupy.get_default_memory_pool().free_all_blocks()


def _record(case: Case, path: Path, copied: float) -> Record:
    def give_up() -> None:
        write(path, [*read(path), failure(case, f"hangs ({HANG_SECONDS} s)")])

    try:
        return _measure(case, copied, give_up)
    except Exception as error:  # one case that fails must not hide the others
        traceback.print_exc(file=sys.stderr)
        return failure(case, f"{type(error).__name__}: {error}") | {"fatal": _dead()}


def _dead() -> bool:
    """Whether the CUDA context of this process is beyond use."""
    try:
        torch.cuda.synchronize()
        torch.ones(4, device="cuda").sum().item()
    except Exception:
        return True
    return False


def _measure(case: Case, copied: float, give_up: Callable[[], Any]) -> Record:
    bundle, peer = Bundle.load(case.folder), PEERS[case.program]
    about = json.loads(ABOUT.read_text())[case.name]
    chosen = bundle[CHOSEN]
    sets = [_draw(chosen, peer, n) for n in range(_sets(chosen))]
    exact, plain = _sampled(peer, case, sets[0])
    naive = _error(plain, exact)
    errors = {p.name: _checked(p, peer, case, sets[0], exact, give_up) for p in bundle}
    bound = 2.0 * naive + FLOORS[next(iter(chosen.role("output").values())).dtype]
    right = {n: e for n, e in errors.items() if e <= bound}  # NaN is not
    contestants = {n: [_action(bundle[n], s) for s in sets] for n in errors}
    others = _warm({n: [partial(f, case.sizes, **s) for s in sets] for n, f in peer.others.items()})
    ms = race(contestants | others, rounds=ROUNDS)
    least = sum(b.nbytes for b in chosen.buffers.values() if b.role != "intermediate")
    rate = least / ms[CHOSEN] / 1e6
    return {
        "group": case.group,
        "case": case.name,
        "dtype": next(iter(chosen.buffers.values())).dtype,
        "shape": dict(case.sizes),
        "correct": len(right) == len(errors),
        "nautile": {"ms": ms[CHOSEN], "kernels": len(chosen.launches)},
        "peers": {n: {"ms": ms[n]} for n in others},
        "gpu": smi("name")["name"],
        "date": datetime.date.today().isoformat(),
        "versions": {
            "torch": torch.__version__,
            "cupy": cupy.__version__,
            "cuda": str(torch.version.cuda),
            **bundle.loaded.manifest.versions,
        },
        **_splits(about, ms),
        "relative_error": errors[CHOSEN],
        "naive_error": naive,
        "wrong": sorted(set(errors) - set(right)),
        "not_built": {n: v["error"] for n, v in about.items() if "error" in v},
        "gb_per_s": rate,
        "copy_gb_per_s": copied,
        "of_copy": rate / copied,
        "smi": smi(*STATE),
    }


def _splits(about: Mapping[str, Any], ms: Mapping[str, float]) -> Record:
    """The chosen count of chunks beside the forced ones."""
    counts = {n: int(n.removeprefix("split_")) for n in about if n[:6] == "split_" and n in ms}
    split = math.prod(about[CHOSEN]["chunks"].values())
    times = {str(c): ms[n] for n, c in counts.items()}
    predicted = {str(c): about[n]["seconds"] * 1e3 for n, c in counts.items()}
    best = min(times, key=lambda c: times[c], default=None)
    return {
        "split": split,
        "best_split": None if best is None else int(best),
        "ratio_to_best": None if best is None else ms[CHOSEN] / times[best],
        "split_ms": times,
        "tile_ms": {n.removeprefix("tile_"): ms[n] for n in about if n[:5] == "tile_" and n in ms},
        "predicted_ms": predicted | {CHOSEN: about[CHOSEN]["seconds"] * 1e3},
    }


def _draw(program: Program, peer: Peer, seed: int) -> Tensors:
    """Fresh inputs on the device, by the names of the program's parameters."""
    generator = torch.Generator("cuda").manual_seed(1000 + seed)
    made = {}
    for name, b in program.role("input").items():
        tensor = torch.empty(b.shape, dtype=TYPES[b.dtype], device="cuda")
        for part in tensor.view(-1).split(1 << 28):  # bounds what the generator needs besides
            part.uniform_(generator=generator) if peer.positive else part.normal_(
                generator=generator
            )
        made[name] = tensor
    return made


def _sets(program: Program) -> int:
    """How many sets of arrays pass three times the L2 cache together."""
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    one = sum(b.nbytes for b in program.buffers.values() if b.role != "intermediate")
    return max(1, min(MAX_SETS, math.ceil(3 * cache / one)))


def _sampled(peer: Peer, case: Case, given: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
    """Sampled results in float64, and those of torch in the program's own types."""
    exact = peer.exact(case.sizes, **given)
    plain = peer.sample(case.sizes, peer.plain(case.sizes, **given))
    torch.cuda.synchronize()
    return exact, plain


def _checked(
    program: Program,
    peer: Peer,
    case: Case,
    given: Tensors,
    exact: torch.Tensor,
    give_up: Callable[[], Any],
) -> float:
    """The error of one program's sampled results; NaN where any element was not written. Outputs
    and states are poisoned before."""
    (name, b), *_ = program.role("output").items()
    out = torch.full(b.shape, math.nan, dtype=TYPES[b.dtype], device="cuda")
    call = program.bind(given, out={name: out})
    for array in call.written(program):
        if array is not out:
            poison(array, POISONS[0])
    torch.cuda.synchronize()
    first_run(partial(call.launch, torch.cuda.current_stream()), HANG_SECONDS, give_up)
    torch.cuda.synchronize()
    if not bool(torch.isfinite(out).all()):
        return math.nan
    return _error(peer.sample(case.sizes, out), exact)


def _error(got: torch.Tensor, true: torch.Tensor) -> float:
    return float(torch.linalg.norm(got.double() - true) / torch.linalg.norm(true))


def _action(program: Program, given: Tensors) -> Callable[[], Any]:
    call = program.bind(given)
    return lambda: call.launch(torch.cuda.current_stream())


def _warm(contestants: Mapping[str, Any]) -> dict[str, Any]:
    """The contestants that run here."""
    able = {}
    for name, actions in contestants.items():
        try:
            actions[0]()
            torch.cuda.synchronize()
            able[name] = actions
        except Exception as error:
            print(f"{name} does not run: {str(error)[:200]}", file=sys.stderr)
    return able
