"""OUT/report.html: what the batch came to, as one page that loads nothing. It is whole without its
script, which sorts tables by a column and shows the rows that hold a text."""

from __future__ import annotations

import base64
import hashlib
import html
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nautile import __version__
from nautile.batch.results import records, status_of
from nautile.batch.summary import Summary

__all__ = ["NAME", "write"]

NAME = "report.html"
_MOST = 10_000  # rows of the table; the rest is in results.jsonl
_STYLE = """
:root { color-scheme: light dark; --line: #8886; --bad: #b3261e; --good: #1a6e34; }
@media (prefers-color-scheme: dark) { :root { --bad: #ffb4ab; --good: #8fdba2; } }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding: .4rem 0; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid var(--line); }
td.number { text-align: right; }
th button { font: inherit; color: inherit; background: none; border: 0; padding: 0; }
th[aria-sort=ascending] button::after { content: " \\2191"; }
th[aria-sort=descending] button::after { content: " \\2193"; }
input { font: inherit; width: 24rem; max-width: 100%; }
.bad { color: var(--bad); } .good { color: var(--good); }
code { font: 13px/1.4 ui-monospace, monospace; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content auto; gap: .2rem 1.2rem; }
dd { margin: 0; }
"""
_SCRIPT = """
const value = (row, column) => {
  const cell = row.cells[column];
  return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value);
};
const compare = (a, b) => typeof a === "number" && typeof b === "number"
  ? a - b : String(a).localeCompare(String(b), undefined, {numeric: true});
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const way = head.ariaSort === "ascending" ? -1 : 1;
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", way === 1 ? "ascending" : "descending");
      const rows = [...body.rows].map(row => [value(row, column), row]);
      rows.sort((a, b) => way * compare(a[0], b[0]));
      body.append(...rows.map(pair => pair[1]));
    });
  });
  const label = document.createElement("label"), input = document.createElement("input");
  input.type = "search";
  label.append("Rows that hold ", input);
  input.addEventListener("input", () => {
    const wanted = input.value.toLowerCase();
    for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  });
  table.before(label);
}
"""


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


_POLICY = (
    f"default-src 'none'; style-src {_hash(_STYLE)}; script-src {_hash(_SCRIPT)}; "
    "base-uri 'none'; form-action 'none'"
)


def write(folder: Path, results: Path, summary: Summary) -> None:
    """Write the page, whole or not at all. Raises OSError."""
    aside = folder / f".{NAME}.{os.getpid()}"
    with aside.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in _page(results, summary))
    os.replace(aside, folder / NAME)


def _page(results: Path, summary: Summary) -> Iterator[str]:
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>Nautile batch: {summary.ok} of {summary.inputs}</title>"
    yield f"<style>{_STYLE}</style></head><body><main>"
    yield f"<h1>{summary.ok} of {summary.inputs} programs optimized and certified</h1>"
    yield from _figures(summary)
    if summary.failed:
        failures = (r for r in records(results) if status_of(r) != "ok")
        yield from _table("What failed", ("Program", "Code", "Message"), map(_failure, failures))
    rows = (_row(r) for r in records(results) if status_of(r) == "ok")
    heads = (
        *("Program", "Kernels", "Baseline", "Predicted", "Speed-up", "Measured"),
        *("Worker", "Bundle"),
    )
    yield from _table("What was found", heads, rows)
    yield f"<p>Nautile {html.escape(__version__)}. All records: <code>results.jsonl</code>.</p>"
    yield f"</main><script>{_SCRIPT}</script></body></html>"


def _figures(summary: Summary) -> Iterator[str]:
    yield "<dl>"
    for line in summary.as_text().splitlines():
        name, _, value = line.partition(" ")
        yield f"<dt>{html.escape(name)}</dt><dd>{html.escape(value.strip())}</dd>"
    if not summary.complete:
        yield "<dt>state</dt><dd class='bad'>stopped before its end; go on with --resume</dd>"
    yield "</dl>"


def _table(caption: str, heads: Iterable[str], rows: Iterable[str]) -> Iterator[str]:
    yield f"<h2>{caption}</h2><table><thead><tr>"
    yield "".join(f'<th scope="col">{head}</th>' for head in heads)
    yield "</tr></thead><tbody>"
    left = 0
    for number, row in enumerate(rows):
        if number < _MOST:
            yield row
        else:
            left += 1
    yield "</tbody></table>"
    if left:
        yield f"<p>And {left} more in <code>results.jsonl</code>.</p>"


def _failure(record: Mapping[str, Any]) -> str:
    error = record.get("error") or {"code": "certificate", "message": _wrong(record)}
    cells = (_named(record), f"<code>{_text(error['code'])}</code>", _text(error["message"]))
    return _line(map(_cell, cells), "bad")


def _wrong(record: Mapping[str, Any]) -> str:
    """The checks of a certificate that failed."""
    checks = record["certificate"]["checks"]
    return "; ".join(f"{c['name']}: {c['detail']}" for c in checks if not c["passed"])


def _row(record: Mapping[str, Any]) -> str:
    chosen, baseline = record["chosen"], record["baseline"]
    ratio = baseline["seconds"] / chosen["seconds"] if chosen["seconds"] else 0.0
    measured = (record.get("measurement") or {}).get("ms")
    worker = 0.0 if record["cached"] else record["worker_seconds"]
    bundle = record["bundle"]
    link = f'<a href="{html.escape(_address(bundle))}">files</a>' if bundle else ""
    cells = (
        _cell(_named(record)),
        _number(len(chosen["kernels"]), str(len(chosen["kernels"]))),
        _number(baseline["seconds"], f"{baseline['seconds'] * 1e6:.1f} µs"),
        _number(chosen["seconds"], f"{chosen['seconds'] * 1e6:.1f} µs"),
        _number(ratio, f"{ratio:.2f}"),
        _cell("") if measured is None else _number(measured, f"{measured * 1e3:.1f} µs"),
        _number(worker, "shared" if record["cached"] else f"{worker:.1f} s"),
        _cell(link),
    )
    return _line(cells, "")


def _cell(inside: str) -> str:
    return f"<td>{inside}</td>"


def _number(value: float, text: str) -> str:
    """A number as people read it, and as it sorts."""
    return f'<td class="number" data-value="{value!r}">{text}</td>'


def _line(cells: Iterable[str], kind: str) -> str:
    head = f'<tr class="{kind}">' if kind else "<tr>"
    return f"{head}{''.join(cells)}</tr>"


def _named(record: Mapping[str, Any]) -> str:
    program = record["program"]
    return f"<code>{_text(record['source'])}</code>{f' {_text(program)}' if program else ''}"


def _address(place: str) -> str:
    from urllib.parse import quote

    return quote(place) + "/"


def _text(value: object) -> str:
    """Text for the page, cut where it is very long; lone surrogates are spelled out."""
    plain = str(value)[:2000].encode("utf-8", "backslashreplace").decode()
    return html.escape(plain)
