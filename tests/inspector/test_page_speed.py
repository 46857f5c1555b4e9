"""The page of a very large program: 200 definitions, 5,000 candidates, a thousand lines of CUDA.

The first paint takes less than a second, and what a person does less than 100 ms up to the frame
that shows it. On a busy machine, a piece of work whose time is known is measured beside it, and as
much more is allowed.
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


_WORK = """
    const list = document.createElement("ul");
    for (let n = 0; n < 2000; n++)
        list.append(Object.assign(document.createElement("li"), { textContent: n }));
    document.body.replaceChildren(list);
"""


@pytest.fixture
def pace(visit: Opened, tmp_path: Path) -> float:
    """How many times slower than an idle core this machine is now: on one, the empty page makes
    and shows a list of 2,000 lines in 40 ms."""
    (tmp_path / "index.html").write_text("<!doctype html><title>empty</title><body>")
    found = visit(tmp_path)
    return max(1.0, sorted(found.seconds(_WORK) for _ in range(5))[2] / 0.04)


def _best(found: Visit, action: str, allowed: float) -> float:
    """The best of up to five: what the page needs, not what else runs on the machine."""
    times: list[float] = []
    while len(times) < 5 and min(times, default=1e9) > allowed:
        times.append(found.seconds(action))
    return min(times)


def test_first_paint(visit: Opened, page: Path, pace: float) -> None:
    times: list[float] = []
    while len(times) < 4 and min(times, default=1e9) > PAINT * pace:
        times.append(visit(page).first_paint())
    assert min(times) < PAINT * pace


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


def test_every_action_is_shown_at_once(visit: Opened, page: Path, pace: float) -> None:
    found = visit(page)
    took = {}
    for name, (section, action) in ACTIONS.items():
        found.page.evaluate(f"nautile.sections.show('{section}')")
        found.page.wait_for_selector(f"#panel-{section} .line, #panel-{section} button")
        took[name] = _best(found, action, ACTION * pace)
        found.page.evaluate("document.activeElement.blur()")
    assert found.page.locator(".equation").count() == 204
    assert {name: s for name, s in took.items() if s > ACTION * pace} == {}, (took, pace)


def test_sections_open_quickly(visit: Opened, page: Path, pace: float) -> None:
    """Each is drawn when it is opened first; the longest has a thousand lines."""
    found = visit(page)
    took = {}
    for section in ("candidates", "derivation", "saturation", "roofline", "reproduce", "program"):
        took[section] = found.seconds(f"await nautile.sections.draw('{section}')")
    assert max(took.values()) < PAINT * pace, (took, pace)


@pytest.mark.slow
def test_a_transformer_block(visit: Opened, tmp_path: Path, pace: float) -> None:
    """Nine kernels, all looked at, one after the other."""
    path = next(p for p in paths() if p.stem == "transformer_block")
    (program,) = lang.parse_file(path)
    result = started(program)
    write_page(tmp_path / "page", told(result, rows=500), result)
    found = visit(tmp_path / "page", "#section=program")
    found.page.wait_for_selector("#pane-cuda .line")
    for n in range(len(result.built)):
        found.page.click(f".chip:nth-child({n + 1})")
        found.until(
            f"document.querySelectorAll('.chip')[{n}].getAttribute('aria-pressed') == 'true'"
        )
        point = "document.querySelector('#pane-tile .line.hue').click()"
        assert _best(found, point, ACTION * pace) < ACTION * pace
