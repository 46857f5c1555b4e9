"""Pages of batches, the store, the service, kills, and the calculation for many hosts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["batch", "kills", "scale", "service", "store", "table"]

Row = dict[str, Any]


def batch(rows: Sequence[Row]) -> str:
    """Throughput, hits, the second run, memory; then how the cases compare."""
    runs = [r for r in rows if r["case"] != "scaling"]
    head = (
        *("files", "case", "correct", "seconds", "files/s", "computed", "shared", "failed"),
        *("nodes lost", "second run, s", "times as fast", "memory, first half", "second half"),
    )
    parts = [
        "# Batches",
        "Rendered from `batch.json` by `bench/render.py`; `bench/batch.py` measures. `jobsN`: the"
        " pool with N workers; `rayN`: a Ray cluster of N nodes of one processor, on one machine;"
        " `deaths`: nodes are killed on the way. Correct: all cases and both runs agree in keys,"
        " states, kernels and predicted times. Memory is that of the batch and its children, the"
        " mean of each minute's peak.",
        _stamp(runs[0]),
        table(head, map(_run, runs)),
    ]
    for row in runs:
        if row["errors"]:
            said = ", ".join(f"{n} x {code}" for code, n in row["errors"].items())
            parts.append(f"{row['case']}, {row['files']} files: {said} (the next run does them).")
    for row in rows:
        if row["case"] == "scaling":
            said = ", ".join(f"{name} {times:.2f}" for name, times in row["times"].items())
            parts.append(f"{row['files']} files, times as fast as {row['base']}: {said}.")
    return _page(parts)


def _run(r: Row) -> Iterable[str]:
    memory = r["memory"]
    yield from (str(r["files"]), r["case"], _yes(r["correct"]), f"{r['seconds']:.1f}")
    yield from (f"{r['files_per_second']:.2f}", str(r["computed"]), str(r["cached"]))
    yield from (str(r["failed"]), str(r["deaths"]), f"{r['second']['wall_seconds']:.1f}")
    yield f"{r['second']['times']:.0f}"
    yield from (_mib(memory["first_half"]), _mib(memory["second_half"]))


def store(rows: Sequence[Row]) -> str:
    """Operations a second."""
    lines = (
        (
            r["case"],
            str(r["count"]),
            _yes(r["correct"]),
            f"{r['nautile']['seconds']:.2f}",
            f"{r['nautile']['per_second']:.0f}",
            ", ".join(f"{n}: {p['per_second']:.0f}" for n, p in r["peers"].items()),
        )
        for r in rows
    )
    return _page([
        "# The store",
        "Rendered from `store.json` by `bench/render.py`; `bench/store.py` measures: SQLite, every"
        " put synced. The peer commits one row a record, without artifacts.",
        _stamp(rows[0]),
        table(("what", "entries", "correct", "seconds", "a second", "peer, a second"), lines),
    ])  # fmt: skip


def service(found: Row) -> str:
    """Latencies under load, and what a full queue answers."""
    lines = (
        (name, *(str(times[n]) for n in ("count", "p50", "p90", "p99", "max")))
        for name, times in found["milliseconds"].items()
    )
    refused = ", ".join(f"{n} x {what}" for what, n in found["overfull"].items())
    errors = ", ".join(f"{n} x {what}" for what, n in found["errors"].items()) or "none"
    return _page([
        "# The service under load",
        "Rendered from `service.json` by `bench/render.py`; `bench/service.py` measures, over"
        f" loopback, clients on the same cores: {found['clients']} clients without a pause,"
        f" {found['streams']} event streams open throughout.",
        _stamp(found),
        table(("milliseconds", "count", "p50", "p90", "p99", "max"), lines),
        f"{found['requests_per_second']} requests a second; errors: {errors}; memory of the server"
        f" {_mib(found['server_memory_bytes'])}. Submissions to a small queue: {refused}.",
    ])  # fmt: skip


def kills(rows: Sequence[Row]) -> str:
    """What was killed, and what became of it."""
    lines = (
        (
            r["case"],
            r["database"],
            str(r["kills"]),
            ", ".join(f"{what} {n}" for what, n in sorted(r["killed"].items())),
            ", ".join(f"{what} {n}" for what, n in r["facts"].items()),
            "; ".join(r["problems"])[:300] or "none",
        )
        for r in rows
    )
    return _page([
        "# Kills",
        "Rendered from `kills.json` by `bench/render.py`; `bench/kills.py` runs the harnesses of"
        " `tests/batch/kill.py` and `tests/service/kills.py`. A problem would be a job or record"
        " that is lost or doubled, a result other than the undisturbed one, a damaged artifact, a"
        " process that is left.",
        _stamp(rows[0]),
        table(("what", "database", "kills", "of which", "facts", "problems"), lines),
    ])  # fmt: skip


def scale(found: Row) -> str:
    """Costs that were measured, and runs that were simulated with them."""
    costs = ((name, f"{1000 * seconds:.2f}") for name, seconds in found["costs"].items())
    return _page([
        "# A million files",
        "Rendered from `scale.json` by `bench/render.py`. `bench/scale.py` measures the costs (its"
        " docstring says what each is) and simulates runs with them; the first lines are runs that"
        " were measured as well.",
        _stamp(found),
        table(("cost", "milliseconds"), costs),
        f"A program takes its worker {found['optimizing']['mean']:.2f} s on average.",
        table(
            ("run", "files", "workers", "simulated", "measured", "files/s", "batch process busy",
             "workers busy", "store busy", "bottleneck"),
            map(_layout, found["layouts"]),
        ),
    ])  # fmt: skip


def _layout(r: Row) -> Iterable[str]:
    yield from (r["name"], f"{r['files']:,}", f"{r['workers']:,}", _time(r["seconds"]))
    yield _time(r["measured_seconds"]) if "measured_seconds" in r else ""
    yield f"{r['files_per_second']:.1f}"
    yield from (f"{r['busy'][n]:.0%}" for n in ("driver", "workers", "store"))
    yield r["bottleneck"]


def _time(seconds: float) -> str:
    return f"{seconds / 3600:.2f} h" if seconds >= 3600 else f"{seconds:.0f} s"


def _mib(size: float) -> str:
    return f"{size / 2**20:.0f} MiB"


def _yes(good: bool) -> str:
    return "yes" if good else "**no**"


def _stamp(row: Row) -> str:
    """Machine, date and versions."""
    machine = ", ".join(str(v) if k != "cores" else f"{v} cores" for k, v in row["machine"].items())
    versions = ", ".join(f"{name} {version}" for name, version in row["versions"].items())
    return f"{machine}; {row['date'][:10]}; {versions}."


def table(head: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of Markdown."""
    lines = (head, ["---"] * len(head), *rows)
    return "\n".join(
        "| " + " | ".join(c.replace("|", "\\|") for c in line) + " |" for line in lines
    )


def _page(parts: Iterable[str]) -> str:
    return "\n\n".join(parts) + "\n"
