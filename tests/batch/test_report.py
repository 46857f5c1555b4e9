"""The report of a batch in a real browser: it sorts, it finds, everybody can read it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.batch.doubles import batch, source
from tests.inspector.browser import Visit, accessibility, browser, visit

from nautile.batch.report import write

__all__ = ["browser", "visit"]

NAMES = ["b<i>", "a", "c"]


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The report on three programs, one of them known from another, and a malformed file."""
    monkeypatch.setenv("NAUTILE_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "in"
    folder.mkdir()
    for number, name in enumerate(NAMES):
        (folder / f"{name}.nau").write_text(source(number % 2 + 1, f"p{number}"))
    (folder / "bad.nau").write_text("def broken(")
    out = tmp_path / "out"
    summary, _ = batch(folder, out)
    write(out, out / "results.jsonl", summary)
    return out / "report.html"


def column(visit: Visit, number: int) -> list[str]:
    rows = "[...document.querySelectorAll('table')].at(-1).tBodies[0].rows"
    found = visit.page.evaluate(
        f"[...{rows}].filter(r => !r.hidden).map(r => r.cells[{number}].textContent)"
    )
    return list(found)


def head(visit: Visit, name: str) -> None:
    visit.page.locator("table").last.get_by_role("button", name=name).click()


def test_a_column_sorts_both_ways(report: Path, visit: Callable[..., Visit]) -> None:
    seen = visit(report.as_uri())
    head(seen, "Program")
    names = column(seen, 0)
    assert [n.rsplit("/")[-1].split()[0] for n in names] == ["a.nau", "b<i>.nau", "c.nau"]
    head(seen, "Program")
    assert column(seen, 0) == names[::-1]
    head(seen, "Worker")
    assert column(seen, 6)[0] == "shared"
    assert seen.page.locator("th[aria-sort=ascending]").inner_text() == "Worker"
    assert not seen.problems


def test_rows_that_hold_a_text_are_shown(report: Path, visit: Callable[..., Visit]) -> None:
    seen = visit(report.as_uri())
    seen.page.get_by_label("Rows that hold").last.fill("B<I>")
    assert [n.rsplit("/")[-1] for n in column(seen, 0)] == ["b<i>.nau p0"]
    seen.page.get_by_label("Rows that hold").last.fill("")
    assert len(column(seen, 0)) == 3


def test_it_can_be_read_by_everybody(report: Path, visit: Callable[..., Visit]) -> None:
    assert not accessibility(visit(report.as_uri()).page)
