"""Names that are markup, code, or thousands of characters long are text on the page."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nautile import lang
from nautile.errors import InputError
from nautile.inspector.page import write_page
from nautile.stages import Optimization
from nautile.terms import Buffer, Load, Output, Program, Term, transform

from .browser import Visit, browser, visit
from .pages import SMALL, TWO_KERNELS, built, started, told

__all__ = ["browser", "visit"]

MARKUP = "</script><img src=x onerror=\"window.hacked=1\"><svg onload='window.hacked=1'>"
NAMES = {
    "X": MARKUP,
    "a": "\u202egnp.exe\u2066 \u05d0\u05d1\u05d2 javascript:window.hacked=1",
    "Y": "__proto__",
    "small": "`${window.hacked=1}`\u2028'+window.hacked+'" + "n" * 10_000,
}


def _renamed(program: Program, names: dict[str, str]) -> Program:
    def buffer(old: Buffer) -> Buffer:
        return replace(old, name=names.get(old.name, old.name))

    def term(old: Term) -> Term:
        return transform(
            old, lambda t: Load(buffer(t.buffer), t.coordinates) if isinstance(t, Load) else t
        )

    return replace(
        program,
        name=names[program.name],
        filename=f"{MARKUP}.nau",
        inputs=tuple(buffer(b) for b in program.inputs),
        definitions=tuple(
            replace(d, name=names.get(d.name, d.name), body=term(d.body))
            for d in program.definitions
        ),
        outputs=tuple(Output(buffer(o.buffer), o.axes, term(o.term)) for o in program.outputs),
        source=f"# {MARKUP}\n{program.source}  # \u202e{MARKUP}",
    )


def _hostile(value: Any) -> Any:
    """Every text and key of an explanation with markup in it; figures far out of range."""
    match value:
        case str():
            return value + MARKUP
        case dict():
            return {k: _hostile(v) for k, v in value.items()} | {MARKUP: MARKUP, "__proto__": 1}
        case list():
            return [_hostile(v) for v in value]
        case float():
            return value * 1e300
    return value


@pytest.fixture(scope="module")
def result() -> Optimization:
    """A program with such names, through the whole pipeline to CUDA."""
    (program,) = lang.parse(SMALL)
    return started(_renamed(program, NAMES))


def _walked(found: Visit) -> None:
    """Opens all there is to open; nothing that was a text may have become an element."""
    for tab in found.page.locator("[role=tab]").all():
        tab.click()
        found.page.wait_for_timeout(30)
        for opener in found.page.locator(".opener:visible").all()[:3]:
            opener.click()
    counted = found.page.evaluate(
        """() => ({
            hacked: window.hacked ?? null,
            images: document.querySelectorAll("main img, main iframe, main svg:not(.chart)").length,
            scripts: document.querySelectorAll("body script").length,
            polluted: ({}).x1 ?? Object.prototype.hasOwnProperty("onerror"),
        })"""
    )
    assert counted == {"hacked": None, "images": 0, "scripts": 0, "polluted": False}
    assert found.page.locator("[role=alert]").count() == 0


def test_hostile_names_all_the_way_to_cuda(
    visit: Callable[..., Visit], result: Optimization, tmp_path: Path
) -> None:
    write_page(tmp_path, told(result), result)
    found = visit(tmp_path, "#section=program")
    found.page.wait_for_selector("#pane-cuda .line")
    _walked(found)
    for pane in ("source", "definitions", "tile", "cuda"):
        assert MARKUP in (found.page.text_content(f"#pane-{pane}") or ""), pane
    assert found.page.evaluate("document.documentElement.scrollWidth") <= 1280
    # writing from right to left stays inside its line: what follows it is where it was
    rows = found.page.locator("#pane-source .line .text")
    assert {r.evaluate("e => getComputedStyle(e).unicodeBidi") for r in rows.all()} == {"plaintext"}


def test_every_text_of_the_explanation_hostile(
    visit: Callable[..., Visit], result: Optimization, tmp_path: Path
) -> None:
    explanation = {k: _hostile(v) for k, v in told(result).items()}
    explanation["chosen"]["seconds"] = float("nan")  # JSON knows neither of them
    explanation["chosen"]["kernels"][0]["reads_bytes"] = float("inf")
    explanation["candidates"][0]["seconds"] = 10**400
    write_page(tmp_path, explanation, result)
    found = visit(tmp_path)
    _walked(found)
    for section in ("overview", "candidates", "runners", "derivation", "questions", "reproduce"):
        assert MARKUP in (found.page.text_content(f"#panel-{section}") or ""), section


def test_data_files_are_one_call_on_a_string_of_ascii(result: Optimization, tmp_path: Path) -> None:
    """Nothing of a program is code: each data file is read back as it went in."""
    explanation = told(result)
    write_page(tmp_path, explanation, result)
    read = {}
    for file in (tmp_path / "assets" / "data").iterdir():
        text = file.read_bytes().decode("ascii")
        match = re.fullmatch(r'nautile\.put\(("[a-z0-9_-]+"), ("(?:[^"\\\n]|\\.)*")\);\n', text)
        assert match, file.name
        assert json.loads(match[1]) == file.stem
        read[file.stem] = json.loads(json.loads(match[2]))
    course = {"saturation": read["explanation"]["saturation"] | {"course": read["course"]}}
    lists = {k: read[k] for k in ("candidates", "derivation", "margins", "runners_up")}
    assert read["explanation"] | course | lists == explanation
    assert MARKUP not in (tmp_path / "index.html").read_text()


def test_a_folder_that_cannot_be_written_is_the_user_s_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError) as caught:
        write_page(tmp_path / "file" / "page", told(built(SMALL)), built(SMALL))
    assert caught.value.code == "output-folder"


def test_a_page_replaces_the_one_before_it(tmp_path: Path) -> None:
    """Kernels of an earlier page do not stay behind."""
    write_page(tmp_path, told(built(TWO_KERNELS)), built(TWO_KERNELS))
    mine = tmp_path / "notes.txt"
    mine.write_text("keep")
    write_page(tmp_path, told(built(SMALL)), built(SMALL))
    kernels = sorted(p.name for p in (tmp_path / "assets" / "data").glob("kernel-*"))
    assert kernels == ["kernel-0.js"]
    assert mine.read_text() == "keep"
