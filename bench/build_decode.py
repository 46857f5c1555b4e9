"""Build the bundles that bench/decode.py measures. Needs no GPU.

    python bench/build_decode.py [--target h200] [--only TEXT] [--counts 1,64]

Each case becomes one bundle: the program as the cost model chose it, and the same program with its
long reduction forced to each count of chunks. bench/bundles/decode.json tells, for each of them,
the chunks and the predicted seconds; what does not build is listed there with its error, and the
exit status is 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from decode_cases import ABOUT, CHOSEN, Case, cases, tiled, variant

from nautile import extract, lang
from nautile.bundle import Entry, variants_of, write_entries
from nautile.errors import NautileError
from nautile.extract import candidates
from nautile.extract.chunks import Divided, divided
from nautile.extract.kernel import Plan
from nautile.extract.priced import Priced
from nautile.extract.split import Outputs, Split
from nautile.stages import Optimization, Options, build, compile_all, saturate
from nautile.worker import Worker

HERE = Path(__file__).resolve().parent
About = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="h200")
    parser.add_argument("--only", default="", help="build the cases whose name has this text")
    parser.add_argument("--counts", default="", help="force only these counts of chunks")
    options = parser.parse_args()
    counts = {int(n) for n in options.counts.split(",") if n}
    about: About = json.loads(ABOUT.read_text()) if ABOUT.exists() else {}
    worker = Worker()
    for case in [c for c in cases() if options.only in c.name]:
        start = time.perf_counter()
        chosen = tuple(n for n in case.counts if n in counts or not counts)
        about[case.name] = build_case(replace(case, counts=chosen), options.target, worker)
        ABOUT.parent.mkdir(exist_ok=True)
        ABOUT.write_text(json.dumps(about, indent=1) + "\n")
        print(f"{case.name}: {time.perf_counter() - start:.1f} s", flush=True)
    worker.close()
    failed = [v for row in about.values() for v in row.values() if "error" in v]
    print(*(v["error"] for v in failed), sep="\n", file=sys.stderr)
    return 1 if failed else 0


def build_case(case: Case, target: str, worker: Worker) -> dict[str, About]:
    """Write the bundle of one case; what each of its programs is."""
    found = {p.name: p for p in lang.parse_file(HERE / "decode.nau", dims=dict(case.sizes))}
    base = Optimization(found[case.program], Options(target=target, compile=True))
    entries, about = [], {}
    try:
        saturate(base, worker)
    except NautileError as error:
        return {CHOSEN: {"error": f"{case.name}: {error}"}}
    for name, plan in _plans(base, case):
        try:
            entry, about[name] = _built(base, name, plan())
            entries.append(entry)
        except Exception as error:  # one variant that fails must not hide the others
            about[name] = {"error": f"{case.name} {name}: {type(error).__name__}: {error}"[:500]}
    if entries:
        write_entries(case.folder, entries, target=target)
    return about


def _plans(base: Optimization, case: Case) -> Iterator[tuple[str, Callable[[], Plan]]]:
    """The names of the case's programs, and how to plan each."""
    chosen = cache(partial(_plan, base, case.axis, None))
    yield CHOSEN, chosen
    for count in case.counts:
        yield variant(count), partial(_plan, base, case.axis, count)
    for tile in case.tiles:
        yield tiled(tile), partial(_retiled, chosen, case.axis, tile)


def _built(base: Optimization, name: str, plan: Plan) -> tuple[Entry, About]:
    """The plan compiled, under a name of its own."""
    result = Optimization(base.program, base.options)
    result.plan = plan
    build(result)
    compile_all(result)
    entry = Entry(
        name=name,
        key=f"{result.key}-{name}",
        inputs=result.program.inputs,
        outputs=tuple(o.buffer for o in result.program.outputs),
        intermediates=plan.intermediates,
        kernels=tuple((b.cuda, b.compiled) for b in result.built),
        variants=tuple(variants_of(b, result.program) for b in result.built),
    )
    chunks = {str(a): n for k in plan.kernels for a, n in k.split.items()}
    tiles = [[{str(a): t for a, t in p.tiles.items()} for p in k.parts] for k in plan.kernels]
    seconds = [k.prediction.seconds for k in plan.kernels]
    about = {"chunks": chunks, "seconds": plan.seconds, "kernels": seconds, "tiles": tiles}
    return entry, about


def _plan(base: Optimization, axis: str, count: int | None) -> Plan:
    """The plan that is chosen freely, or forced to a count of chunks of the axis."""
    o, pairs = base.options, list(zip(base.regions, base.snapshots, strict=True))
    device = extract.device(o.target)
    more = {} if count is None else {"runners": 0}
    with _forced(axis, count):
        return extract.choose(pairs, base.program, device, numerics=o.numerics, **more)


def _retiled(chosen: Callable[[], Plan], axis: str, tile: int) -> Plan:
    """The chosen plan with another tile of the axis in its first kernel."""
    plan = chosen()
    first, *rest = plan.kernels
    part, *results = first.parts
    long = next(a for a in part.tiles if a.family == axis)
    streams = tuple(dict.fromkeys((*part.streams, long)))
    changed = replace(part, tiles={**part.tiles, long: tile}, streams=streams)
    return replace(plan, kernels=(replace(first, parts=(changed, *results)), *rest))


class _Wanted(Divided):
    """A division that always seems to pay, the more so the fewer launches it has."""

    @property
    def seconds(self) -> float:
        return 1e-8 * len(self.schedules) + 1e-6 * sum(p.seconds for _, p in self.schedules)


@contextmanager
def _forced(axis: str, count: int | None) -> Iterator[None]:
    """Splits of the axis to a count of chunks instead of those that pay; none is forced where the
    count is None."""
    own = candidates.best_split
    if count is not None:
        candidates.best_split = _splitter(axis, count)  # type: ignore[assignment]
    try:
        yield
    finally:
        candidates.best_split = own


def _splitter(axis: str, count: int) -> Callable[..., Divided | None]:
    def split(outputs: Outputs, whole: Priced, **options: Any) -> Divided | None:
        long = [a for a in whole.body.reduced if a.family == axis]
        if not long or not len(whole.seconds):
            return None
        length = -(-long[0].extent // count)
        numerics = options.get("numerics", "real")
        made = divided(outputs, Split(long[0], length), whole.device, numerics=numerics)
        return None if made is None else _Wanted(made.split, made.schedules)

    return split


if __name__ == "__main__":
    sys.exit(main())
