"""The page of a very large program: 200 definitions, 5,000 candidates, a thousand lines of CUDA.

The first paint takes less than a second, and what a person does less than 100 ms up to the frame
that shows it. On a busy machine, an empty page is measured beside it, and as much more is allowed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nautile import lang
from nautile.examples import paths
from nautile.inspector.page import write_page
from nautile.stages import Optimization

from .browser import Visit, browser, visit
from .pages import ATTENTION, built, started, told

__all__ = ["browser", "visit"]

Opened = Callable[..., Visit]
PAINT, ACTION = 1.0, 0.1  # seconds
NOISE = 6  # times what an empty page takes here


def _large() -> Optimization:
    """Attention with two hundred definitions more, of all kinds of terms."""
    few = built(ATTENTION)
    lines = few.program.source.splitlines()
    head, body = lines[:2], lines[2:-1]
    more = [
        f"    w{k}[t,e] = where(t < {k}, sum[s](exp(x[0,t,s] / {k + 1}) * V[1,s,e]), O[2,t,e]**2)"
        for k in range(200)
    ]
    text = "\n".join([*head, *body, *more, "    return O"])
    (program,) = lang.parse(text)
    return replace(few, program=program, apart=None)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("large")
    result = _large()
    write_page(folder, told(result, rows=5_000), result)
    return folder


@pytest.fixture
def baseline(visit: Opened, tmp_path: Path) -> tuple[float, float]:
    """The first paint of an empty page, and the time to the second frame after doing nothing."""
    (tmp_path / "index.html").write_text("<!doctype html><title>empty</title><p>empty")
    found = visit(tmp_path)
    return found.first_paint(), min(found.seconds("0") for _ in range(5))


def _best(found: Visit, action: str, undo: str = "0") -> float:
    """The best of three: what the page needs, not what else runs on the machine."""
    times = []
    for _ in range(3):
        times.append(found.seconds(action))
        found.page.evaluate(f"() => {{ {undo} }}")
    return min(times)


def test_first_paint(visit: Opened, page: Path, baseline: tuple[float, float]) -> None:
    took = min(visit(page).first_paint() for _ in range(3))
    assert took < max(PAINT, NOISE * baseline[0])


ACTIONS = {
    "overview": ("candidates", "document.getElementById('tab-overview').click()"),
    "step": ("derivation", "document.querySelector('[data-move=Next]').click()"),
    "jump": ("derivation", "document.querySelector('[data-move=Last]').click()"),
    "sort": ("candidates", "document.querySelectorAll('#panel-candidates .sorter')[7].click()"),
    "filter": (
        "candidates",
        """const field = document.querySelector('#panel-candidates input');
        field.value = 'tensor_1'; field.dispatchEvent(new Event('input', { bubbles: true }))""",
    ),
    "open": ("candidates", "document.querySelector('#panel-candidates .opener').click()"),
    "theme": ("candidates", "document.getElementById('theme').click()"),
    "point": (
        "program",
        """document.querySelector('#pane-source .line:nth-child(5)')
            .dispatchEvent(new MouseEvent('mouseover', { bubbles: true }))""",
    ),
    "keep": ("program", "document.querySelector('#pane-source .line:nth-child(5)').click()"),
    "point at CUDA": (
        "program",
        """document.querySelector('#pane-cuda .line.hue')
            .dispatchEvent(new MouseEvent('mouseover', { bubbles: true }))""",
    ),
    "point at a term": (
        "program",
        """document.querySelector('#pane-definitions .term .term')
            .dispatchEvent(new MouseEvent('mouseover', { bubbles: true }))""",
    ),
    "theme of all lines": ("program", "document.getElementById('theme').click()"),
}


def test_every_action_is_shown_at_once(
    visit: Opened, page: Path, baseline: tuple[float, float]
) -> None:
    found = visit(page)
    allowed = max(ACTION, NOISE * baseline[1])
    took = {}
    for name, (section, action) in ACTIONS.items():
        found.page.evaluate(f"nautile.sections.show('{section}')")
        found.page.wait_for_selector(f"#panel-{section}:not([hidden]) button, .line")
        took[name] = _best(found, action)
        found.page.evaluate("document.activeElement.blur()")
    assert found.page.locator(".equation").count() == 204
    assert {name: s for name, s in took.items() if s > allowed} == {}, (took, baseline)


def test_sections_open_quickly(visit: Opened, page: Path, baseline: tuple[float, float]) -> None:
    """Each is drawn when it is opened first; the longest has a thousand lines."""
    found = visit(page)
    took = {}
    for section in ("candidates", "derivation", "saturation", "roofline", "reproduce", "program"):
        took[section] = found.seconds(f"await nautile.sections.draw('{section}')")
    assert max(took.values()) < max(PAINT, 4 * NOISE * baseline[1]), (took, baseline)


@pytest.mark.slow
def test_a_transformer_block(visit: Opened, tmp_path: Path, baseline: tuple[float, float]) -> None:
    """Nine kernels, all looked at, one after the other."""
    path = next(p for p in paths() if p.stem == "transformer_block")
    (program,) = lang.parse_file(path)
    result = started(program)
    write_page(tmp_path / "page", told(result, rows=500), result)
    found = visit(tmp_path / "page", "#section=program")
    found.page.wait_for_selector("#pane-cuda .line")
    for n in range(len(result.built)):
        found.page.click(f".chip:nth-child({n + 1})")
        found.page.wait_for_function(
            f"document.querySelectorAll('.chip')[{n}].getAttribute('aria-pressed') == 'true'"
        )
        point = "document.querySelector('#pane-tile .line.hue').click()"
        assert _best(found, point) < max(ACTION, NOISE * baseline[1])
