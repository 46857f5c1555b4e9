"""The front page in a real browser: ask, follow, see, explain; no refusal of its policy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from inspector.browser import accessibility, browser

from nautile.inspector.page import POLICY
from nautile.service import tokens
from nautile.store import Store

from .running import Server, program, serving

__all__ = ["browser"]


@pytest.fixture(scope="module")
def token(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("front")
    with Store.open(folder / "store") as store:
        return folder, tokens.create(store.database, "browser", rate=1000, burst=1000)


@pytest.fixture(scope="module")
def server(token: tuple[Path, str]) -> Iterator[Server]:
    with serving(str(token[0] / "store"), token[0], token=token[1], claim_seconds=0.1) as running:
        yield running


@pytest.fixture
def page(browser: Any, server: Server) -> Iterator[Any]:
    """A tab; errors of scripts, and refusals of the policy, fail the test that made them."""
    context = browser.new_context(color_scheme="light")
    tab = context.new_page()
    wrong: list[str] = []
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("console", lambda m: wrong.append(m.text) if m.type == "error" else None)
    foreign: list[str] = []
    tab.on("request", lambda r: foreign.append(r.url))
    tab.goto(server.url)
    yield tab
    context.close()
    refusals = [text for text in wrong if "status of 4" not in text]  # of the API: asked for
    assert refusals == []
    assert [url for url in foreign if not url.startswith(server.url)] == []


def enter(page: Any, token: str) -> None:
    """Give the token, as a person would."""
    page.wait_for_selector("#token", state="visible")
    page.fill("#token", token)
    page.click("#key-form button[type=submit]")
    page.wait_for_selector("#target option[value=h200]", state="attached")


def test_a_program_is_asked_for_followed_and_shown(
    page: Any, server: Server, token: tuple[Path, str]
) -> None:
    enter(page, token[1])
    assert page.evaluate("localStorage.length") == 0
    page.fill("#text", program(1, "asked"))
    page.click("#submit")
    page.wait_for_selector("#outcome", state="visible", timeout=90_000)
    assert page.text_content("#state").startswith("done")
    events = page.locator("#events li").all_text_contents()
    assert [e.split()[-1] for e in events[:1]] == ["queued"]
    assert any("saturate" in e for e in events)
    assert "pass" in page.text_content("#facts")
    assert page.locator("#kernels tr").count() >= 1
    page.click("#files button:has-text('.cu')")
    page.wait_for_selector("#file", state="visible")
    assert "__global__" in page.text_content("#file")
    assert "asked" in page.locator("#jobs").text_content()
    page.reload()  # the job is in the address, the token in the tab
    page.wait_for_selector("#outcome", state="visible", timeout=20_000)


def test_a_choice_is_explained_behind_a_link(
    page: Any, server: Server, token: tuple[Path, str]
) -> None:
    enter(page, token[1])
    page.fill("#text", program(1, "asked"))
    page.click("#submit")
    page.wait_for_selector("#explain", state="visible", timeout=90_000)
    page.click("#explain")
    page.wait_for_selector("#page", state="visible", timeout=180_000)
    href = page.get_attribute("#page", "href")
    with page.expect_popup() as opened:
        page.click("#page")
    told = opened.value
    wrong: list[str] = []
    told.on("console", lambda m: wrong.append(m.text) if m.type == "error" else None)
    told.wait_for_load_state()
    told.reload()
    told.wait_for_selector("h1")
    assert "asked" in told.title() + told.text_content("body")
    told.wait_for_load_state("networkidle")
    assert wrong == []
    # The link needs no token, the rest does; a link that was tampered with is none.
    with httpx.Client(base_url=server.url, trust_env=False) as plain:
        answer = plain.get(href)
        assert answer.status_code == 200
        assert answer.headers["content-security-policy"].startswith(POLICY)
        job = page.url.partition("job=")[2]
        assert plain.get(f"/v1/optimizations/{job}/explanation/").status_code == 401
        with_token = {"Authorization": f"Bearer {token[1]}"}
        same = plain.get(f"/v1/optimizations/{job}/explanation/", headers=with_token)
        assert same.content == answer.content
        forged = href.replace("opt_", "opt_0", 1)[:-2] + "/"
        later = re.sub(r"\.(\d+)\.", lambda m: f".{int(m[1]) + 1}.", href)
        for wrong_href in (forged, later, href + "../../livez/x", href + "assets/../../../x"):
            assert plain.get(wrong_href).status_code == 404, wrong_href
    assert href.split("/")[2] not in server.log.read_text()


def test_a_mistake_is_shown_at_its_place(page: Any, token: tuple[Path, str]) -> None:
    enter(page, token[1])
    page.fill("#text", program(1).replace("x[n,m]", "<img src=x onerror=alert(1)>"))
    page.click("#submit")
    page.wait_for_selector("#problem", state="visible")
    assert re.match(r"line 2, column \d+: ", page.text_content("#problem"))
    assert "<img" in page.text_content("#problem")
    assert page.locator("main img").count() == 0


def test_the_keyboard_suffices(page: Any, token: tuple[Path, str]) -> None:
    page.wait_for_selector("#token", state="visible")
    assert page.evaluate("document.activeElement.id") == "token"
    page.keyboard.type(token[1])
    page.keyboard.press("Enter")
    page.wait_for_selector("#target option[value=h200]", state="attached")
    page.focus(".skip")
    page.keyboard.press("Enter")
    reached = []
    for _ in range(9):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id"))
    wanted = ["example", "text", "target", "numerics", "program", "dims", "compile", "submit"]
    assert reached[:8] == wanted


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible(page: Any, token: tuple[Path, str], scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    enter(page, token[1])
    assert accessibility(page) == []
    page.set_viewport_size({"width": 400, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
