"""An explanation in words, readable in a minute: 100 columns, the most telling things first."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nautile.extract.candidates import NOISE
from nautile.report import quantity
from nautile.retreat import GUARD

from .wording import RESOURCES

if TYPE_CHECKING:
    from .explanation import Explanation

__all__ = ["WIDTH", "as_text", "dict_text"]

WIDTH = 100
_STEPS = 40  # steps of a derivation that are told
_RUNNERS = 3
_NAMES = 4  # kernels of another program that are named
_CHECKED = {"generated": " (checked by choosing again)", "candidates": " (of these candidates)"}
_ENGINE: Mapping[str, str] = {
    "apart": "axes that a product needs apart are taken apart",
    "cut": "definitions are written into what reads them; the program is cut into regions",
    "literals": "whole numbers among floats are written as floats",
    "fold": "arithmetic on constants",
    "store": "terms are stored as tensors between kernels",
    "widen": "operands are taken as f32",
    "narrow": "tensors between kernels take the narrow type that their readers round them to",
    "split": "a reduction is split into chunks that are merged",
    "operands": "operands are rounded to the type that the tensor cores multiply",
    "gap": "no derivation was found for this part",
}
_CODES: Mapping[str, str] = {
    "dearer": "dearer",
    "noise": "as fast within the model's noise",
    "unused": "of use to no program",
    "dominated": "dominated",
    "beyond": "beyond twice the best",
    "unpriced": "not worth their place",
    "infeasible": "that fit no tiles",
    "lowering": "that code generation refused",
}
_SOURCES: Mapping[str, str] = {
    "written": "a kernel or more for each definition: nothing else lowers, or is as fast",
    "unsaturated": "the source's own terms: nothing that rules made lowers, or is as fast",
}


def as_text(explanation: Explanation) -> str:
    """The text of an explanation."""
    return dict_text(explanation.as_dict(), tuple(a.as_text() for a in explanation.answers))


def dict_text(d: Mapping[str, Any], answers: Sequence[str] = ()) -> str:
    """The text of an explanation's JSON object; `answers` are texts of why-not answers."""
    lines = [
        f"{d['program']}  ({d['source']}, {d['target']}, numerics {d['numerics']})",
        *_head(d),
        *(line for kernel in d["chosen"]["kernels"] for line in _kernel(kernel)),
        *_derivation(d),
        *_runners(d),
        *_margins(d),
        *_candidates(d),
        *_saturation(d),
        *_measured(d),
        *_certificate(d),
        *(line for answer in answers for line in ("", *answer.splitlines())),
        *_error(d),
        *_row("again", [d["reproduce"]]),
    ]
    return "\n".join(line.rstrip() for line in lines)


def _row(name: str, texts: Iterable[str], indent: int = 2) -> Iterator[str]:
    """Lines under a name in the margin; long ones are wrapped."""
    left = " " * indent + f"{name:<10} "
    for text in texts:
        yield from textwrap.wrap(
            text,
            WIDTH,
            initial_indent=left,
            subsequent_indent=" " * (len(left) + 2),
            break_long_words=False,
            break_on_hyphens=False,
        ) or [left]
        left = " " * len(left)


def _head(d: Mapping[str, Any]) -> Iterator[str]:
    b, c = d["baseline"], d["chosen"]
    yield from _row("before", [_figures(b["kernels"], b["bytes"], b["seconds"])])
    yield from _row("chosen", [_figures(len(c["kernels"]), c["bytes"], c["seconds"])])
    entered = sum(1 for r in d["candidates"] if r["id"].startswith("c"))
    best = "no set of them is faster" if d["gap"] <= 0 else (
        f"one set is {d['gap']:.2%} faster at most, with more kernels or before storage is settled"
    )  # fmt: skip
    yield from _row("", [f"the cheapest of {_count(entered, 'candidate kernel')}: {best}"])


def _figures(kernels: float, size: float, seconds: float) -> str:
    moved = quantity(size, "B")
    return f"{_count(int(kernels), 'kernel')}, {moved} through memory, {quantity(seconds, 's')}"


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def _kernel(kernel: Mapping[str, Any]) -> Iterator[str]:
    share = kernel["bound_share"]
    bound = RESOURCES.get(kernel["bound"], kernel["bound"])
    seconds = quantity(kernel["seconds"], "s")
    yield ""
    yield from _row(
        "kernel", [f"{kernel['name']}: {seconds}, bound by {bound} ({share:.0%} of its time)"]
    )
    lines = [step for term in kernel["terms"] for step in term["steps"]]
    yield from _row("computes", lines, 4)
    if kernel["source_lines"]:
        yield from _row("from", [_ranges(kernel["source_lines"])], 4)
    yield from _row("in tiles", [_tiles(kernel)], 4)
    yield from _row("needs", [_shares(kernel["shares"])], 4)
    yield from _row("reaches", [_roofline(kernel)], 4)
    yield from _row("moves", [_moves(kernel)], 4)
    if kernel["tail"]["idle_fraction"] >= 0.05:
        yield from _row("tail", [_tail(kernel["tail"])], 4)


def _tiles(kernel: Mapping[str, Any]) -> str:
    tile = " ".join(f"{a}={t}" for a, t in kernel["tile"].items())
    streams = f", streams {' '.join(kernel['streams'])}" if kernel["streams"] else ""
    split = "".join(f", {a} in {n} chunks" for a, n in kernel["split"].items())
    return tile + streams + split


def _shares(shares: Mapping[str, float]) -> str:
    order = sorted(shares.items(), key=lambda s: -s[1])
    return ", ".join(f"{name} {quantity(s, 's')}" for name, s in order if s > 0)


def _roofline(kernel: Mapping[str, Any]) -> str:
    order = sorted(kernel["roofline"].items(), key=lambda r: -r[1]["achieved_fraction"])
    told = [(name, r) for name, r in order if r["achieved_fraction"] >= 0.005][:3]
    return ", ".join(
        f"{r['achieved_fraction']:.0%} of {quantity(r['peak'], r['unit'])} ({name})"
        for name, r in told
    )


def _moves(kernel: Mapping[str, Any]) -> str:
    reads = ", ".join(f"{r['buffer']} {quantity(r['bytes'], 'B')}" for r in kernel["reads"])
    writes = ", ".join(f"{w['buffer']} {quantity(w['bytes'], 'B')}" for w in kernel["writes"])
    once = sum(r["bytes"] for r in kernel["reads"])
    again = kernel["reads_bytes"] / once if once else 1.0
    more = f" ({again:.1f} times)" if again >= 1.05 else ""
    return f"reads {reads or 'nothing'}{more}, writes {writes}"


def _tail(tail: Mapping[str, Any]) -> str:
    return (
        f"{_count(tail['blocks'], 'block')} in {_count(tail['waves'], 'wave')}: "
        f"{tail['idle_fraction']:.0%} of the multiprocessors' time is idle"
    )


def _ranges(lines: Sequence[int]) -> str:
    """`lines 6-9, 12 of the source`."""
    parts: list[list[int]] = []
    for n in lines:
        if parts and n == parts[-1][1] + 1:
            parts[-1][1] = n
        else:
            parts.append([n, n])
    told = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)
    return f"{'line' if len(lines) == 1 else 'lines'} {told} of the source"


def _derivation(d: Mapping[str, Any]) -> Iterator[str]:
    steps = d["derivation"]
    if not steps:
        return
    yield ""
    yield from _row("derived", [f"in {_count(len(steps), 'step')}, each checked numerically:"])
    for n, step in enumerate(steps[:_STEPS], 1):
        yield from _row(f"{n}", [_step(step)], 4)
    if len(steps) > _STEPS:
        yield from _row("", [f"and {len(steps) - _STEPS} more (--json)"], 4)
    if d["rules_needed"]:
        facts = {fact["rule"] for step in steps for fact in step.get("facts", ())}
        rules = ", ".join(r for r in d["rules_needed"] if r not in facts)
        known = ", ".join(r for r in d["rules_needed"] if r in facts)
        told = f"the rules {rules}" if rules else "no rule"
        yield from _row("needs", [told + (f"; with the facts {known}" if known else "")])


def _step(step: Mapping[str, Any]) -> str:
    error = step.get("max_error")
    checked = "" if error is None else f"   (error {error:.1g})"
    law = step.get("law") or _ENGINE.get(step["rule"], step.get("note", ""))
    return f"{step['rule']}   {law}{checked}"


def _runners(d: Mapping[str, Any]) -> Iterator[str]:
    yield ""
    if not d["runners_up"]:
        yield from _row("next best", ["no other set of candidates within twice its time"])
    for runner in d["runners_up"][:_RUNNERS]:
        yield from _row("next best" if runner["id"] == "r1" else "", [_runner(runner)])


def _runner(runner: Mapping[str, Any]) -> str:
    names = ", ".join(k["name"] for k in runner["kernels"])
    slower = runner["slower_by"]
    by = f"{slower:.1%} slower" if slower >= 0 else f"{-slower:.1%} faster, within the noise"
    more = runner["dearer_in"]
    why = ""
    if more is not None and slower > 0:
        why = f"; {RESOURCES[more]} +{quantity(runner['more'][more], 's')}"
    count = _count(len(runner["kernels"]), "kernel")
    seconds = quantity(runner["seconds"], "s")
    return f"{runner['id']}: {seconds}, {by}: {count} ({names}){why}"


def _margins(d: Mapping[str, Any]) -> Iterator[str]:
    own = [m for m in d["margins"] if m["kind"] == "choice"]
    if not own:
        return
    flips = [m for m in own if m["factor"] is not None and m["kernel"] is None]
    order = sorted(flips, key=lambda m: max(m["factor"], 1 / m["factor"]))
    texts = [m["text"] + _winner(m) + _CHECKED.get(m["how"], "") * m["checked"] for m in order]
    never = [RESOURCES[m["resource"]] for m in own if m["factor"] is None and not m["kernel"]]
    if never:
        texts.append(f"would not flip for {', '.join(never)} (1000x either way)")
    kernels = [m for m in own if m["kernel"] and m["factor"] is not None]
    close = [m["kernel"] for m in kernels if m["factor"] <= 1 + NOISE]
    if close:
        texts.append(f"within the model's noise something else does as well as {', '.join(close)}")
    far = [m for m in kernels if m["factor"] > 1 + NOISE]
    if far:
        texts.append(min(far, key=lambda m: m["factor"])["text"])
    yield from _row("margin", texts)


def _winner(margin: Mapping[str, Any]) -> str:
    """The program that would win: `, to 2 kernels (S, O in 4 chunks of s)`."""
    if not margin["kernels"]:
        return ""
    names = [
        k["name"] + "".join(f" in {n} chunks of {a}" for a, n in k["split"].items())
        for k in margin["kernels"]
    ]
    shown = ", ".join(names[:_NAMES]) + (", ..." if len(names) > _NAMES else "")
    return f", to {_count(len(names), 'kernel')} ({shown})"


def _candidates(d: Mapping[str, Any]) -> Iterator[str]:
    count = Counter(r["reason"]["code"] for r in d["candidates"] if not r["taken"])
    if count:
        told = [f"{n} {_CODES.get(code, code)}" for code, n in count.most_common()]
        yield from _row("not taken", [", ".join(told) + " (all of them: --json or --html)"])
    if d["pruned"].get("beam"):
        text = f"the beam left out {d['pruned']['beam']} bodies: the bound holds for what it kept"
        yield from _row("pruned", [text])
    source = next((s for s in _SOURCES if s in d["pruned"]), None)
    if source is not None:
        yield from _row("fallback", [_SOURCES[source]])
    if "guarded" in d["pruned"]:
        yield from _row("guarded", [GUARD])


def _saturation(d: Mapping[str, Any]) -> Iterator[str]:
    s = d["saturation"]
    if "stop" not in s:
        return
    total: Counter[str] = Counter()
    for step in s["course"]:
        total.update(step["matches"])
    busy = ", ".join(f"{name} {n}" for name, n in total.most_common(4))
    regions = len({step["region"] for step in s["course"]})
    yield from _row(
        "e-graph",
        [
            f"{s['stop']} after {_count(s['iterations'], 'iteration')}, {s['rows']} rows, "
            f"{quantity(s['seconds'], 's')}, {_count(regions, 'region')}; most matches: {busy}"
        ],
    )


def _measured(d: Mapping[str, Any]) -> Iterator[str]:
    rows = [m for m in d["measured"] if m["ratio"] is not None]
    texts = [
        f"{m['kernel'] or 'all'}: {quantity(m['measured'], 's')} on {m['gpu']} {m['date']}, "
        f"{m['ratio']:.2f} of the prediction {m['schedule']}"
        for m in rows
    ]
    yield from _row("measured", texts)


def _certificate(d: Mapping[str, Any]) -> Iterator[str]:
    c = d["certificate"]
    if c is None:
        return
    failed = [x for x in c["checks"] if not x["passed"]]
    passed = len(c["checks"]) - len(failed)
    texts = [f"{c['verdict']}: {passed} of {len(c['checks'])} checks, {c['samples']} samples"]
    texts += [f"failed: {x['name']}: {x['detail']}" for x in failed[:5]]
    yield from _row("certified", texts)


def _error(d: Mapping[str, Any]) -> Iterator[str]:
    if d["error"] is not None:
        yield from _row("error", [f"{d['error']['code']}: {d['error']['message']}"])
