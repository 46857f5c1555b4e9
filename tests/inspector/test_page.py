"""The page in a real browser: opened from disk, linked, stepped, sorted, read without a mouse."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import log10
from pathlib import Path
from typing import Any

import pytest

from nautile.inspector.page import POLICY, write_page

from .browser import Visit, accessibility, browser, visit
from .pages import ATTENTION, SMALL, TWO_KERNELS, built, told

__all__ = ["browser", "visit"]

Opened = Callable[..., Visit]
SECTIONS = (
    *("overview", "program", "roofline", "candidates", "runners", "derivation", "saturation"),
    *("questions", "egraph", "reproduce"),
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of an attention program."""
    folder = tmp_path_factory.mktemp("page")
    write_page(folder, told(built(ATTENTION)), built(ATTENTION))
    return folder


def _shown(found: Visit, section: str) -> None:
    found.page.click(f"#tab-{section}")
    found.page.wait_for_selector(f"#panel-{section}:not([hidden]) > :nth-child(2)")


def test_every_section_opens_without_network_or_complaint(visit: Opened, page: Path) -> None:
    """`visit` itself fails the test on a request elsewhere, a refusal or an error."""
    found = visit(page)
    for section in SECTIONS:
        _shown(found, section)
    assert found.page.locator("[role=tab]").count() == len(SECTIONS)
    assert all(r.startswith(page.as_uri()) for r in found.requests)
    assert found.page.title() == "looked_up: why this program"


def test_the_policy_refuses_what_a_page_must_not_do(visit: Opened, page: Path) -> None:
    """A page that tries is stopped, and the notes of the visit tell: they can fail."""
    assert "unsafe" not in POLICY
    assert f'content="{POLICY}"' in (page / "index.html").read_text()
    found = visit(page)
    tried = found.page.evaluate("""async () => {
        const outcome = {};
        const attempt = async (name, act) => {
            try { await act(); outcome[name] = "done" } catch (e) { outcome[name] = e.name }
        };
        await attempt("markup", () => { document.body.innerHTML = "<b>x</b>" });
        await attempt("script", () => { document.createElement("script").src = "assets/main.js" });
        await attempt("asset", () => nautile.assets.load("../evil.js"));
        await attempt("handler", () => nautile.el("p", { onclick: "alert(1)" }));
        await attempt("link", () => nautile.el("a", { href: "javascript:alert(1)" }));
        await attempt("fetch", () => fetch("https://example.org/"));
        return outcome;
    }""")
    assert "done" not in tried.values(), tried
    assert any("connect-src" in refusal for refusal in found.refused)
    found.errors.clear()
    found.requests.clear()
    found.page.evaluate("window.__refused = []")


def test_no_script_or_style_stands_in_the_frame(page: Path) -> None:
    html = (page / "index.html").read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)", html) == []
    assert re.findall(r"<style|\bstyle=|\bon\w+=", html) == []
    addresses = re.findall(r'(?:src|href)="([^"]*)"', html)
    assert addresses
    for address in addresses:
        assert address == "#main" or (page / address).is_file()


# ---- links ---------------------------------------------------------------------------------------


def _lit(found: Visit, pane: str) -> list[str]:
    rows = found.page.locator(f"#pane-{pane} .lit .text")
    return [text.strip() for text in rows.all_text_contents()]


def test_a_definition_lights_up_its_statements_and_its_cuda(visit: Opened, page: Path) -> None:
    found = visit(page, "#section=program")
    found.page.click("#pane-source .line:nth-child(5)")  # p, the softmax
    assert _lit(found, "source") == ["p[h,t,s] = softmax[s](m[h,t,s])"]
    tile = _lit(found, "tile")
    assert any("= max[s]" in line for line in tile)
    assert any("= sum[s]" in line for line in tile)
    assert not any("mma" in line or "read" in line for line in tile)
    cuda = _lit(found, "cuda")
    assert any("nt_max" in line for line in cuda)
    assert any("nt_ex2" in line for line in cuda)
    assert not any("wgmma_ss" in line or "nt_mma_" in line for line in cuda)
    for pane, first in (("tile", "r1["), ("cuda", "=")):  # scrolled to the first line that acts
        box = found.page.locator(f"#pane-{pane}").bounding_box()
        line = found.page.locator(f"#pane-{pane} .lit", has_text=first).first.bounding_box()
        assert box is not None
        assert line is not None
        assert box["y"] <= line["y"] <= box["y"] + box["height"] - line["height"]
    found.page.keyboard.press("Escape")
    assert _lit(found, "cuda") == []


def test_a_line_of_cuda_leads_back_to_the_source(visit: Opened, page: Path) -> None:
    found = visit(page, "#section=program")
    line = found.page.locator("#pane-cuda .line", has_text="nt_max(").last
    line.hover()
    assert _lit(found, "source") == ["p[h,t,s] = softmax[s](m[h,t,s])"]
    assert len(_lit(found, "tile")) == 1
    assert found.page.locator("#pane-definitions .equation.lit").count() == 1
    found.page.mouse.move(5, 5)
    assert _lit(found, "source") == []


def test_a_part_of_a_definition_lights_up_what_computes_it(visit: Opened, page: Path) -> None:
    """The row maximum inside softmax: one statement of the tile program."""
    found = visit(page, "#section=program")
    part = found.page.locator("#pane-definitions munder", has_text="max").first
    part.hover()
    (line,) = _lit(found, "tile")
    assert "= max[s](" in line


def test_a_definition_leads_to_its_class(visit: Opened, page: Path) -> None:
    found = visit(page, "#section=program")
    found.page.wait_for_selector("#pane-definitions .home")
    keys = found.page.locator("#pane-definitions .home").all_text_contents()
    assert len(set(keys)) == 4  # each its own
    found.page.click("#pane-definitions .equation:nth-child(3) .home")
    found.page.wait_for_selector("#panel-egraph:not([hidden]) h3")
    heading = found.page.locator("#panel-egraph h3", has_text="Class ").first
    assert heading.text_content() == keys[2].capitalize()


def test_colour_is_not_the_only_sign(visit: Opened, page: Path) -> None:
    """Each line of a definition carries its number, and the number of its hue."""
    found = visit(page, "#section=program")
    rows = found.page.evaluate(
        """() => [...document.querySelectorAll("#panel-program .line.hue")].map(row =>
            [row.querySelector(".badge").textContent, /hue-(\\d)/.exec(row.className)[1]])"""
    )
    assert len(rows) > 50
    assert {(int(number) - 1) % 8 == int(hue) for number, hue in rows} == {True}


def test_another_way_to_run_and_another_kernel(visit: Opened, tmp_path: Path) -> None:
    result = built(TWO_KERNELS)
    assert result.plan is not None
    names = [k.name for k in result.plan.kernels]
    assert len(names) > 1
    write_page(tmp_path, told(result), result)
    found = visit(tmp_path, f"#kernel={names[-1]}")
    found.page.wait_for_selector("#pane-tile .line")
    assert names[-1] in found.page.text_content("#pane-tile .line:first-child .text")
    before = found.page.text_content("#pane-cuda")
    found.page.select_option("#panel-program select", index=1)
    assert found.page.text_content("#pane-cuda") != before
    found.page.click(".chip:nth-child(1)")
    found.until(
        "document.querySelector('#pane-tile .line .text').textContent.includes('tile program "
        + names[0]
        + "')"
    )
    assert found.page.evaluate("location.hash") == f"#kernel={names[0]}"


# ---- steps and tables ----------------------------------------------------------------------------


def test_the_derivation_steps_and_can_be_linked_to(visit: Opened, page: Path) -> None:
    found = visit(page, "#step=5")
    title = found.page.locator("#step-title")
    assert title.text_content() == "Step 5 of 12: rule_1"
    found.page.click("[data-move=Next]")
    assert title.text_content() == "Step 6 of 12: rule_2"
    assert found.page.evaluate("location.hash") == "#step=6"
    found.page.focus(".stepper")
    moves = [("ArrowLeft", 5), ("Home", 1), ("ArrowLeft", 1), ("ArrowRight", 2), ("End", 12)]
    for key, step in moves:
        found.page.keyboard.press(key)
        assert (title.text_content() or "").startswith(f"Step {step} of 12")
    assert found.page.is_disabled("[data-move=Next]")
    assert found.page.is_disabled("[data-move=Last]")
    found.page.select_option("#rule", index=2)
    assert (title.text_content() or "").startswith("Step 4 of 12: rule_0")
    found.page.evaluate("location.hash = '#step=9'")
    found.page.wait_for_selector("text=Step 9 of 12")


def test_what_a_step_changes_is_marked(visit: Opened, page: Path) -> None:
    found = visit(page, "#step=1")
    assert found.page.locator(".step del").all_text_contents() == ["/ z[t] "]
    assert found.page.locator(".step ins").all_text_contents() == [" / z[t]"]
    for tag in ("del", "ins"):
        line = f"getComputedStyle(document.querySelector('.step {tag}')).textDecorationLine"
        assert found.page.evaluate(line) != "none"


def test_marks_leave_the_common_subsequence(visit: Opened, page: Path) -> None:
    """What is not marked is the same on both sides, and nothing of either is lost."""
    texts = [
        ("", ""),
        ("a", ""),
        ("", "b"),
        ("a + b", "b + a"),
        ("f(x) * f(x)", "f(x)"),
        ("xx", "y"),
    ]
    found = visit(page)
    compare = """([before, after]) => {
        const { tokens, differences } = nautile.changes;
        const [a, b] = [tokens(before), tokens(after)];
        const [x, y] = differences(a, b);
        return [a.map((t, n) => [t, x[n]]), b.map((t, n) => [t, y[n]])];
    }"""
    for before, after in texts:
        left, right = found.page.evaluate(compare, [before, after])
        assert ["".join(t for t, _ in side) for side in (left, right)] == [before, after]
        kept = [[t for t, changed in side if not changed] for side in (left, right)]
        assert kept[0] == kept[1]


def _column(found: Visit, n: int) -> list[str]:
    cells = found.page.locator(f"#panel-candidates tbody tr:not(.detail) > :nth-child({n})")
    return [text.strip() for text in cells.all_text_contents()]


def test_candidates_sort_by_every_column(visit: Opened, page: Path) -> None:
    found = visit(page, "#section=candidates")
    heads = found.page.locator("#panel-candidates thead th")
    for n in range(heads.count()):
        head = heads.nth(n)
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == "ascending"
        upwards = _column(found, n + 1)
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == "descending"
        assert sorted(_column(found, n + 1)) == sorted(upwards)
        others = [heads.nth(k).get_attribute("aria-sort") for k in range(heads.count()) if k != n]
        assert set(others) == {"none"}
    for down in (False, True):
        heads.nth(7).locator("button").click()
        numbers = [float(t.rstrip("%")) if t != "–" else 0.0 for t in _column(found, 8)]
        assert numbers == sorted(numbers, reverse=down)
        assert {numbers[0], numbers[-1]} == {0.0, 1100.0}


def test_candidates_are_filtered_and_opened(visit: Opened, page: Path) -> None:
    found = visit(page, "#candidate=c7")
    opened = found.page.locator("#panel-candidates tr.detail")
    assert "700.00% more than the chosen one" in (opened.text_content() or "")
    found.page.fill("#panel-candidates input", "tensor_1")
    assert _column(found, 1) == ["▸ c1", "▸ c10", "▸ c11"]
    found.page.fill("#panel-candidates input", "")
    found.page.select_option("#panel-candidates select", "taken")
    assert _column(found, 1) == ["▸ c0"]
    found.page.focus("#panel-candidates .opener")
    found.page.keyboard.press("Enter")
    assert found.page.get_attribute("#panel-candidates .opener:focus", "aria-expanded") == "true"


def test_the_roofline_has_a_dot_and_a_row_for_each_kernel(visit: Opened, page: Path) -> None:
    """Dots stand where the table says, between the ceilings; read back from the drawing."""
    found = visit(page, "#section=roofline")
    chosen = told(built(ATTENTION))["chosen"]["kernels"]
    assert found.page.locator(".chart circle").count() == len(chosen)
    assert found.page.locator(".chart path.measured").count() == 1
    (kernel,) = chosen
    work = kernel["tensor_flops"] + kernel["vector_flops"] + kernel["special_ops"]
    circle = found.page.locator(".chart circle").first
    ticks = found.page.evaluate(
        """() => [...document.querySelectorAll(".chart text[text-anchor=end]:not(.roofname)")]
            .map(t => [t.textContent, Number(t.getAttribute("y")) - 4])"""
    )
    scale = {"T": 1e12, "P": 1e15}
    (low, y0), (high, y1) = ticks[0], ticks[-1]
    low, high = (float(t.split()[0]) * scale[t.split()[1]] for t in (low, high))
    share = (float(circle.get_attribute("cy") or 0) - y0) / (y1 - y0)
    rate = 10 ** (log10(low) + share * (log10(high) - log10(low)))
    assert rate == pytest.approx(work / kernel["seconds"], rel=1e-6)


# ---- people --------------------------------------------------------------------------------------


def test_accessible_in_both_themes(visit: Opened, tmp_path: Path) -> None:
    """A small program, everything open: every kind of element is there."""
    write_page(tmp_path, told(built(SMALL), rows=3), built(SMALL))
    found = visit(tmp_path, color_scheme="dark")
    for section in SECTIONS:
        _shown(found, section)
    found.page.click("#tab-program")
    found.page.wait_for_selector("#pane-cuda .line")
    found.page.click("#pane-source .line:nth-child(2)")
    found.page.click("#tab-candidates")
    found.page.click("#panel-candidates .opener")
    found.page.evaluate(
        "document.querySelectorAll('[role=tabpanel]').forEach(panel => { panel.hidden = false })"
    )
    background = "getComputedStyle(document.body).backgroundColor"
    assert found.page.evaluate(background) == "rgb(18, 22, 30)"
    assert accessibility(found.page) == []
    found.page.emulate_media(color_scheme="light")
    found.until(f"{background} == 'rgb(255, 255, 255)'")
    assert accessibility(found.page, only=["color-contrast"]) == []


def test_the_theme_is_switched_and_kept(visit: Opened, page: Path) -> None:
    found = visit(page, color_scheme="light")
    found.page.click("#theme")
    assert found.page.get_attribute("html", "data-theme") == "dark"
    found.page.reload()
    assert found.page.get_attribute("html", "data-theme") == "dark"


def _focused(found: Visit) -> str:
    return str(found.page.evaluate("document.activeElement.id || document.activeElement.className"))


def test_the_page_is_walked_by_keyboard_alone(visit: Opened, page: Path) -> None:
    found = visit(page)
    keys = found.page.keyboard
    keys.press("Tab")
    assert _focused(found) == "skip"
    assert (found.page.locator(".skip").bounding_box() or {"x": -1})["x"] >= 0
    keys.press("Tab")
    assert _focused(found) == "theme"
    keys.press("Tab")
    assert _focused(found) == "tab-overview"
    keys.press("ArrowRight")
    assert _focused(found) == "tab-program"
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert found.page.evaluate(outline) == "solid"
    found.page.wait_for_selector("#pane-cuda .line")
    keys.press("End")
    assert _focused(found) == "tab-reproduce"
    keys.press("ArrowRight")
    assert _focused(found) == "tab-overview"
    keys.press("ArrowRight")
    seen = []
    for _ in range(40):
        keys.press("Tab")
        seen.append(_focused(found))
        if seen[-1] == "pane-cuda":
            break
    panes = [name.removeprefix("pane-") for name in seen if name.startswith("pane-")]
    assert panes == ["source", "definitions", "tile", "cuda"]
    found.page.focus("#pane-source")
    for _ in range(4):
        keys.press("ArrowDown")
    keys.press("Enter")
    assert _lit(found, "source") == ["p[h,t,s] = softmax[s](m[h,t,s])"]
    active = found.page.get_attribute("#pane-source", "aria-activedescendant")
    assert active == "source-4"
    assert "statements" in (found.page.text_content("#live") or "")
    found.page.focus("#pane-definitions button >> nth=2")
    keys.press("ArrowRight")
    keys.press("ArrowRight")
    assert "statements compute it" in (found.page.text_content("#live") or "")


def test_back_and_forward_go_through_the_sections(visit: Opened, page: Path) -> None:
    found = visit(page)
    _shown(found, "candidates")
    _shown(found, "derivation")
    found.page.go_back()
    found.page.wait_for_selector("#panel-candidates:not([hidden])")
    found.page.go_forward()
    found.page.wait_for_selector("#panel-derivation:not([hidden])")


def test_nothing_runs_out_of_a_screen(visit: Opened, page: Path) -> None:
    """Wide content scrolls in its own box; the page itself never sideways."""
    found = visit(page)
    for section in SECTIONS:
        _shown(found, section)
        for width in (320, 400, 1280):
            found.page.set_viewport_size({"width": width, "height": 700})
            wide = found.page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, section


def test_motion_is_left_out_where_it_is_not_wanted(visit: Opened, page: Path) -> None:
    found = visit(page, "#section=program", reduced_motion="reduce")
    found.page.wait_for_selector(".chip")
    lasts = "getComputedStyle(document.querySelector('.chip')).transitionDuration"
    assert found.page.evaluate(lasts) == "0s"
    found.page.emulate_media(reduced_motion="no-preference")
    assert found.page.evaluate(lasts) != "0s"


def test_paper_has_every_section(visit: Opened, page: Path) -> None:
    found = visit(page)
    found.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    found.page.emulate_media(media="print")
    found.page.wait_for_selector("#panel-candidates tbody tr")
    visible = found.page.locator("[role=tabpanel]:visible").count()
    assert visible >= len(SECTIONS) - 1
    assert found.page.locator("#tabs:visible").count() == 0


def test_the_command_is_copied(visit: Opened, page: Path) -> None:
    found = visit(page, "#section=reproduce")
    assert found.page.text_content("#command") == "nautile explain attention.nau --target h200"
    found.page.click(".command button")
    found.until("document.querySelector('.command button').textContent != 'Copy'")


def test_broken_links_open_the_page_all_the_same(visit: Opened, page: Path) -> None:
    found = visit(page)
    wrong = [
        "",
        "step=x",
        "step=-3",
        "step=99999",
        "kernel=none",
        "=&&%ff=%zz",
        "section=__proto__",
    ]
    for fragment in (*wrong, "nothing=1", "candidate=%00", "class=x"):
        found.page.goto("about:blank")
        found.page.goto(f"{found.own}index.html#{fragment}")
        assert found.page.locator("[role=tabpanel]:visible").count() == 1, fragment


def test_an_explanation_with_an_error_and_no_result(visit: Opened, tmp_path: Path) -> None:
    told_: dict[str, Any] = {
        "program": None,
        "source": "x.nau",
        "key": None,
        "target": None,
        "numerics": None,
        "status": "error",
        "error": {"code": "syntax", "message": "x.nau:1:1: no program"},
        "chosen": None,
        "certificate": None,
        "saturation": None,
    }
    write_page(tmp_path, told_, None)
    found = visit(tmp_path)
    assert "x.nau:1:1: no program" in (found.page.text_content("#panel-overview") or "")
    for section in SECTIONS:
        _shown(found, section)
