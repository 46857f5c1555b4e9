"""What an optimization found, as the JSON object that scripts read and as text for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from html import escape
from typing import Any

from nautile.errors import NautileError
from nautile.extract.kernel import Kernel, Plan
from nautile.retreat import GUARD
from nautile.stages import Implementation, Optimization
from nautile.terms import Program

__all__ = ["as_dict", "as_html", "as_text", "failure", "kernel_dict", "quantity"]


def as_dict(result: Optimization) -> dict[str, Any]:
    """One program's result; the schema is part of the command line's contract."""
    return {
        "program": result.program.name,
        "source": result.program.filename,
        "key": result.key,
        "target": result.options.target,
        "numerics": result.options.numerics,
        "status": "ok",
        "error": None,
        "saturation": _saturation(result),
        "baseline": dict(result.baseline),
        "chosen": None if result.plan is None else _chosen(result, result.plan),
        "certificate": None if result.certificate is None else result.certificate.as_dict(),
        "timings": {k: round(v, 4) for k, v in result.timings.items()},
    }


def failure(program: Program | None, source: str, error: NautileError) -> dict[str, Any]:
    """The object of an input that could not be optimized."""
    name = program.name if program else None
    return {
        "program": name,
        "source": source,
        "key": None,
        "target": None,
        "numerics": None,
        "status": "error",
        "error": error.as_dict(),
        "saturation": None,
        "baseline": None,
        "chosen": None,
        "certificate": None,
        "timings": {},
    }


def _chosen(result: Optimization, plan: Plan) -> dict[str, Any]:
    """The plan, and for each kernel the ways to run it: the best first."""
    chosen = plan_dict(plan)
    for row, built in zip(chosen["kernels"], result.built, strict=False):
        row["implementations"] = [implementation_dict(w) for w in built.implementations]
    return chosen


def implementation_dict(way: Implementation) -> dict[str, Any]:
    """One way to run a kernel: what it needs, its schedule, and what it was compiled for."""
    return {
        "architecture": way.architecture,
        "schedule": way.schedule,
        "seconds": way.kernel.prediction.seconds,
        "kernels": [s.cuda.name for s in way.steps],
        "compiled": sorted({c.architecture for s in way.steps for c in s.compiled.values()}),
    }


def plan_dict(plan: Plan) -> dict[str, Any]:
    """Kernels with their figures, the bytes and seconds of all, the bound and the gap."""
    kernels = [kernel_dict(k) for k in plan.kernels]
    return {
        "kernels": kernels,
        "bytes": sum(k["reads_bytes"] + k["writes_bytes"] for k in kernels),
        "seconds": plan.seconds,
        "bound": plan.bound,
        "gap": plan.gap,
    }


def kernel_dict(kernel: Kernel) -> dict[str, Any]:
    """One kernel's figures: predicted work and traffic, tiles by axis, streamed axes, chunks of the
    axes that are split over blocks, rules."""
    p = kernel.prediction
    tiles = {a.name: t for part in kernel.leading for a, t in part.tiles.items()}
    streams = dict.fromkeys(a.name for part in kernel.parts for a in part.streams)
    return {
        "name": kernel.name,
        "outputs": [o.buffer.name for o in kernel.outputs],
        "reads_bytes": p.reads_bytes,
        "writes_bytes": p.writes_bytes,
        "tensor_flops": p.tensor_flops,
        "vector_flops": p.vector_flops,
        "special_ops": p.special_ops,
        "tile": tiles,
        "streams": list(streams),
        "rules": list(kernel.rules),
        "seconds": p.seconds,
        "split": {a.name: n for a, n in kernel.split.items()},
    }


def _saturation(result: Optimization) -> dict[str, Any] | None:
    reports = [s.report for s in result.snapshots]
    if not reports:
        return None
    order = ("memory", "time", "rows", "iterations", "saturated")
    return {
        "stop": min((r.stop for r in reports), key=order.index),
        "rows": sum(r.rows for r in reports),
        "iterations": max(r.iterations for r in reports),
        "seconds": round(sum(r.seconds for r in reports), 6),
        "growth": _growth(result),
    }


def _growth(result: Optimization) -> dict[str, int]:
    """Of regions that a budget stopped: the rules that put terms into most classes."""
    count: Counter[str] = Counter()
    for snapshot in result.snapshots:
        if snapshot.report.stop != "saturated":
            count.update(name for names in snapshot.made.values() for name in names)
    return dict(count.most_common(3))


def as_text(result: Optimization) -> str:
    """A summary for people: before and after, each kernel, the certificate."""
    assert result.plan is not None
    d = plan_dict(result.plan)
    b = result.baseline
    head = f"{result.program.name}  ({result.program.filename}, {result.options.target}, "
    lines = [
        head + f"numerics {result.options.numerics})",
        f"  kernels    {b['kernels']:.0f} -> {len(d['kernels'])}",
        f"  memory     {quantity(b['bytes'], 'B')} -> {quantity(d['bytes'], 'B')}",
        f"  predicted  {quantity(b['seconds'], 's')} -> {quantity(d['seconds'], 's')}"
        f"  (bound {quantity(d['bound'], 's')}, gap {d['gap']:.2%})",
        *_saturation_lines(result),
        *(line for k, ways in _with_ways(result, result.plan) for line in _kernel_lines(k, ways)),
        *_certificate_lines(result),
    ]
    if "guarded" in result.plan.pruned:
        lines.append(f"  guarded    {GUARD}")
    return "\n".join(lines)


def _saturation_lines(result: Optimization) -> Iterable[str]:
    s = _saturation(result)
    if s:
        yield (
            f"  saturation {s['stop']} after {s['iterations']} iterations, {s['rows']} rows, "
            f"{quantity(s['seconds'], 's')}, {len(result.regions)} region(s)"
        )
        if s["growth"]:
            names = ", ".join(f"{name} ({n})" for name, n in s["growth"].items())
            yield f"  stopped by {s['stop']}; most terms came from {names}"


Ways = tuple[Implementation, ...]
_WAYS = 8  # implementations that the text names


def _with_ways(result: Optimization, plan: Plan) -> Iterable[tuple[Kernel, Ways]]:
    """Each kernel with its implementations; none before it was built."""
    ways: list[Ways] = [b.implementations for b in result.built] or [()] * len(plan.kernels)
    return zip(plan.kernels, ways, strict=True)


def _kernel_lines(kernel: Kernel, ways: Ways) -> Iterable[str]:
    d, p = kernel_dict(kernel), kernel.prediction
    tile = " ".join(f"{a}={t}" for a, t in d["tile"].items())
    streams = f", streams {' '.join(d['streams'])}" if d["streams"] else ""
    streams += "".join(f", {a} in {n} chunks" for a, n in d["split"].items())
    yield f"  kernel {d['name']} -> {', '.join(d['outputs'])}"
    yield f"    tiles {tile}{streams}"
    yield (
        f"    reads {quantity(p.reads_bytes, 'B')}, writes {quantity(p.writes_bytes, 'B')}, "
        f"{quantity(p.tensor_flops, 'flop')} on tensor cores, {quantity(p.seconds, 's')}, "
        f"bound by {p.bound}"
    )
    if len(ways) > 1:
        yield from (f"    {'runs' if w is ways[0] else 'else'} {w.schedule}" for w in ways[:_WAYS])
    if len(ways) > _WAYS:
        yield f"    and {len(ways) - _WAYS} more"


def _certificate_lines(result: Optimization) -> Iterable[str]:
    if result.certificate is None:
        return
    c = result.certificate.as_dict()
    passed = sum(1 for check in c["checks"] if check["passed"])
    yield (
        f"  certificate {c['verdict']}: {passed} of {len(c['checks'])} checks, {c['samples']} "
        f"samples, largest relative error {c['max_relative_error']:.2g}"
    )
    for rule in c["accepted_rules"]:
        yield f"  accepted   rule {rule['rule']}, which is {rule['verdict']} to the checker"


def as_html(result: Optimization) -> str:
    """A small table of the kernels for notebooks; what has not been done yet is left out. Whatever
    the program holds is text there."""
    program = escape(result.program.name)
    about = escape(f"{result.program.filename}, {result.options.target}")
    head = f"<p><b>{program}</b> ({about}, numerics {escape(result.options.numerics)})</p>"
    if result.plan is None:
        return head + "<p>No program has been chosen yet.</p>"
    columns = ("kernel", "stores", "tiles", "reads", "writes", "predicted", "bound by")
    rows = [_cells("th", columns), *(_cells("td", _row(k)) for k in result.plan.kernels)]
    table = f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"
    return head + _before_and_after(result, result.plan) + table


def _row(kernel: Kernel) -> tuple[str, ...]:
    d, p = kernel_dict(kernel), kernel.prediction
    tile = " ".join(f"{a}={t}" for a, t in d["tile"].items())
    moved = (quantity(p.reads_bytes, "B"), quantity(p.writes_bytes, "B"))
    return kernel.name, ", ".join(d["outputs"]), tile, *moved, quantity(p.seconds, "s"), p.bound


def _cells(tag: str, texts: Iterable[str]) -> str:
    return "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts)


def _before_and_after(result: Optimization, plan: Plan) -> str:
    b, d = result.baseline, plan_dict(plan)
    texts = [
        f"{b['kernels']:.0f} kernels &rarr; {len(plan.kernels)}",
        f"{quantity(b['bytes'], 'B')} &rarr; {quantity(d['bytes'], 'B')}",
        f"{quantity(b['seconds'], 's')} &rarr; {quantity(plan.seconds, 's')} predicted",
    ]
    verdict = "" if result.certificate is None else f", certificate {result.certificate.verdict}"
    return f"<p>{', '.join(texts)}{verdict}</p>"


def quantity(value: float, unit: str) -> str:
    """A number with a metric prefix: 1.5 ms, 67.1 MB."""
    if value == 0:
        return f"0 {unit}"
    steps = [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1, "")]
    small = [(1e-3, "m"), (1e-6, "µ"), (1e-9, "n")]
    for factor, prefix in steps + (small if unit == "s" else []):
        if abs(value) >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"
