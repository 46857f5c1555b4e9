"""A real headless Chromium for the tests of pages, and what a page did while it was looked at.

`visit(where)` opens a folder's index.html from disk, or an address of this machine, in a fresh
profile with nothing else reachable: whatever the page asks for beyond its own place is refused and
noted. A page that breaks a promise fails the test that opened it, unless the test takes the notes
away: a console error, an exception, a refusal by the page's own security policy, a request.
Without Chromium the tests are skipped; with NAUTILE_BROWSER=required they fail.
"""

from __future__ import annotations

import importlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

__all__ = ["Visit", "accessibility", "browser", "visit"]

_FLAGS = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
    "--no-sandbox",
]
_NOTE_VIOLATIONS = """
window.__refused = [];
document.addEventListener("securitypolicyviolation", e =>
    window.__refused.push(`${e.violatedDirective} ${e.blockedURI} ${e.sample}`));
"""


@dataclass(slots=True)
class Visit:
    """An open page with the addresses that it asked for and what went wrong in it."""

    page: Page
    own: str
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def foreign(self) -> list[str]:
        """Requests that left the page's own place; what the page made itself is no request."""
        return [r for r in self.requests if not r.startswith((self.own, "blob:", "data:"))]

    @property
    def refused(self) -> list[str]:
        """What the page's security policy refused."""
        return list(self.page.evaluate("window.__refused"))

    @property
    def problems(self) -> list[str]:
        """All that a page must not do."""
        return [
            *self.errors,
            *(f"asked for {r}" for r in self.foreign),
            *(f"refused: {r}" for r in self.refused),
        ]

    def seconds(self, action: str) -> float:
        """From the start of an action (JavaScript) to the second frame after it: its work, the
        layout and the paint that it causes."""
        timed = f"""async () => {{
            const start = performance.now();
            {action};
            await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
            return performance.now() - start;
        }}"""
        return float(self.page.evaluate(timed)) / 1000

    def first_paint(self) -> float:
        """Seconds from the navigation to the first contentful paint."""
        entry = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
        self.until(f"{entry} > 0")
        return float(self.page.evaluate(entry)) / 1000

    def until(self, condition: str, seconds: float = 20.0) -> None:
        """Waits until a condition (JavaScript) holds. Playwright's own way to wait for one needs
        `eval` in the page, which the page's policy refuses."""
        end = time.monotonic() + seconds
        while not self.page.evaluate(condition):
            assert time.monotonic() < end, f"never came: {condition}"
            self.page.wait_for_timeout(20)


def chromium() -> str:
    """The browser's path; skips, or fails where a browser is required."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        _missing("chromium")
    return str(found)


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        _missing(name)


def _missing(what: str) -> None:
    if os.environ.get("NAUTILE_BROWSER") == "required":
        pytest.fail(f"{what} is not installed")
    pytest.skip(f"{what} is not installed")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for a module's tests: playwright's loop must not outlive it, for tests that
    follow may run loops of their own."""
    path = chromium()
    api = _module("playwright.sync_api")
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, headless=True, args=_FLAGS)
        yield started
        started.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Visit]]:
    """`visit(folder or address, fragment="", width=1280, height=800, **context options)`."""
    contexts, visits = [], []

    def opened(where: Path | str, fragment: str = "", *, width: int = 1280, height: int = 800,
               **options: Any) -> Visit:  # fmt: skip
        url = f"{where.resolve().as_uri()}/index.html" if isinstance(where, Path) else where
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        found = Visit(page, url.rpartition("/")[0] + "/")
        visits.append(found)
        _noting(found)
        context.route("**/*", lambda route: _answered(found, route))
        page.goto(url + fragment)
        return found

    yield opened
    problems = [p for v in visits for p in v.problems]
    for context in contexts:
        context.close()
    assert problems == [], "\n".join(problems)


def _noting(found: Visit) -> None:
    page = found.page
    page.add_init_script(_NOTE_VIOLATIONS)
    page.on("request", lambda r: found.requests.append(r.url))
    page.on("pageerror", lambda e: found.errors.append(f"exception: {e}"))
    page.on("console", lambda m: found.errors.append(m.text) if m.type == "error" else None)


def _answered(found: Visit, route: Route) -> None:
    if route.request.url.startswith(found.own):
        route.continue_()
    else:
        route.abort()


def accessibility(page: Page, only: Sequence[str] = ()) -> list[str]:
    """What axe finds wrong on the page as it stands: one line a rule and place; by the rules
    `only`, if any are given. Nothing is fetched for it: the page's security policy refuses that."""
    axe = _module("axe_playwright_python.sync_playwright").Axe()
    options: dict[str, Any] = {"resultTypes": ["violations"], "preload": False}
    if only:
        options["runOnly"] = list(only)
    found = axe.run(page, options=options)
    return [
        f"{violation['id']}: {node['target']} {node['failureSummary']}"
        for violation in found.response["violations"]
        for node in violation["nodes"]
    ]
