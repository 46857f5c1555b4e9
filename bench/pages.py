"""Pages of measurements without GPU peers: emission, counters, the sanitizer, batches and so on."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pages_operation as operation

__all__ = ["PAGES", "counters", "emission", "sanitizer", "written"]

Row = dict[str, Any]
SHOWN = ("tensor_cycles", "special_pipe", "issue_active", "sm", "l2", "l2_hits", "warps_active")
STALLS = 3  # reasons shown
_COUNTED = """\
Rendered from `profiles/*.json` by `bench/render.py`; `bench/counters.py` measures. Percent of the
peak, of active cycles for pipes and issue slots; stalls are shares of a warp's time."""
_LOOKED_AT = """\
Rendered from `sanitizer.json` by `bench/render.py`. `bench/sanitize.py` looks at all the
implementations that the bundles of `bench/build_odd.py` hold."""


def emission(found: Row) -> str:
    """What a kernel takes from the plan to machine code; `many` schedules of one below."""
    lines = [
        "# Emission and compilation",
        "Rendered from `emission.json` by `bench/render.py`; `bench/emission.py` measures. One"
        " kernel, without the cache of machine code: seconds of processor, and by the clock while"
        " the machine did other work as well.",
        f"{found['date']}; {found['cores']} x {found['processor']}, load {found['load']}; NVRTC"
        f" {found['nvrtc']}, Python {found['python']}.",
        operation.table(
            ("kernel", "schedule", "lines", "emit", "compile", "both", "by the clock"),
            (_kernel(k) for k in found["kernels"]),
        ),
    ]
    for row in found["schedules"]:
        whole, threads, compiled = row["whole"], row["threads"], row["compile"]["cpu_s"]
        lines.append(
            f"{row['schedules']} schedules of {row['kind']}, {threads} threads: emitted in"
            f" {row['emit']['cpu_s']:.1f} s of processor, compiled in {compiled:.1f},"
            f" {whole['wall_s']:.1f} s by the clock; {row['refused']} of {row['kernels']} kernels"
            " were refused by the gate."
        )
    return "\n\n".join(lines) + "\n"


def _kernel(k: Row) -> Sequence[str]:
    steps = k["compile"]
    return (
        k["kind"],
        k["schedule"],
        str(sum(s["lines"] for s in steps)),
        f"{k['emit']['cpu_s']:.2f}",
        f"{sum(s['cpu_s'] for s in steps):.2f}",
        f"{k['whole']['cpu_s']:.2f}",
        f"{k['whole']['wall_s']:.2f}",
    )


def counters(profiles: Sequence[Row]) -> str:
    """Kernel by kernel, in percent of what the card can do, and why warps waited."""
    rows = (_counted(p, k) for p in profiles for k in p["kernels"])
    head = ("case", "kernel", "whose", "ms", *SHOWN, "GB/s", "registers", "stalls")
    cards = ", ".join(dict.fromkeys(f"{p['gpu']}, {p['date']}, ncu {p['ncu']}" for p in profiles))
    return (
        "\n\n".join(
            (
                "# Hardware counters",
                _COUNTED,
                f"{cards}.",
                operation.table(head, rows),
            )
        )
        + "\n"
    )


def _counted(profile: Row, k: Row) -> Sequence[str]:
    stalls = ", ".join(f"{n} {x:.0%}" for n, x in list(k["stalls"].items())[:STALLS])
    facts = (f"{k[f]:.0f}" if f in k else "" for f in SHOWN)
    moved = sum(k.get(f"dram_{way}_bytes", 0.0) for way in ("read", "written")) / k["ms"] / 1e6
    numbers = (f"{moved:.0f}" if moved else "", f"{k.get('registers', 0):.0f}")
    return (
        profile["case"], k["name"][:40], k["whose"], f"{k['ms']:.4f}", *facts, *numbers, stalls
    )  # fmt: skip


def sanitizer(rows: Sequence[Row]) -> str:
    """A line for each bundle, a column for each tool."""
    tools = list(dict.fromkeys(r["tool"] for r in rows))
    said = {(r["bundle"], r["tool"]): r for r in rows}
    bundles = dict.fromkeys(r["bundle"] for r in rows)
    return (
        "\n\n".join(
            (
                "# compute-sanitizer",
                _LOOKED_AT,
                ", ".join(dict.fromkeys(f"{r['gpu']}, {r['date']}" for r in rows)) + ".",
                operation.table(
                    ("bundle", *tools),
                    ((b, *(_verdict(said.get((b, t))) for t in tools)) for b in bundles),
                ),
            )
        )
        + "\n"
    )


def _verdict(row: Row | None) -> str:
    if row is None:
        return ""
    text: str = row["said"] if row["verdict"] == "dirty" else row["verdict"]
    return text[:120]


PAGES: Mapping[str, Callable[[Any], str]] = {
    "batch": operation.batch,
    "emission": emission,
    "kills": operation.kills,
    "sanitizer": sanitizer,
    "scale": operation.scale,
    "service": operation.service,
    "store": operation.store,
}


def written(folder: Path) -> list[Path]:
    """Write the pages for which there are results."""
    made = {n: json.loads(p.read_text()) for n in PAGES if (p := folder / f"{n}.json").exists()}
    pages = {name: PAGES[name](found) for name, found in made.items()}
    profiles = [json.loads(p.read_text()) for p in sorted((folder / "profiles").glob("*.json"))]
    pages |= {"profiles": counters(profiles)} if profiles else {}
    for name, text in pages.items():
        (folder / f"{name}.md").write_text(text)
    return [folder / f"{name}.md" for name in pages]
