"""Folders that hold the explorer alone, under the page's security policy."""

from __future__ import annotations

import json
import time
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nautile.inspector.page import POLICY
from nautile.inspector.page.explorer import SCRIPTS, STYLES, explorer_data

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["explorer_folder", "until"]

_BODY = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Explorer</title>
<meta http-equiv="Content-Security-Policy" content="{policy}">
{styles}
{scripts}
</head><body><main><h1>Explorer</h1><h2>E-graph</h2><div id="explorer"></div></main></body></html>
"""
_START = """"use strict";
const began = performance.now();
const explorer = nautileExplorer.mount(document.getElementById("explorer"), JSON.parse(egraphText));
const mounted = performance.now() - began;
"""
_PLAIN = (
    "body { background: var(--surface, #fff); margin: 1rem; font: 15px system-ui, sans-serif; }\n"
)
_THEMES = """:root[data-theme="dark"] { color-scheme: dark; background: #12161e; color: #e7eaf1; }
:root[data-theme="dark"] body { background: #12161e; }
"""


def explorer_folder(folder: Path, source: Any, *, data: dict[str, Any] | None = None) -> Path:
    """The explorer of a result or snapshot in `folder`; its page has the global `explorer`."""
    assets = resources.files("nautile.inspector.page.explorer")
    for name in (*SCRIPTS, *STYLES):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((assets / name).read_bytes())
    text = json.dumps(data or explorer_data(source), separators=(",", ":"))
    (folder / "data.js").write_text(f"const egraphText = {json.dumps(text)};\n", encoding="ascii")
    (folder / "start.js").write_text(_START)
    (folder / "plain.css").write_text(_PLAIN + _THEMES)
    policy = POLICY.split("; require-trusted-types")[0]
    scripts = "\n".join(
        f'<script defer src="{s}"></script>' for s in ("data.js", *SCRIPTS, "start.js")
    )
    styles = "\n".join(f'<link rel="stylesheet" href="{s}">' for s in ("plain.css", *STYLES))
    page = _BODY.format(policy=policy, styles=styles, scripts=scripts)
    (folder / "index.html").write_text(page)
    return folder


def until(page: Page, condition: str, seconds: float = 30) -> None:
    """Wait until a JavaScript expression is true. (Playwright's own wait evaluates text in the page
    later, which the page's policy refuses.)"""
    end = time.monotonic() + seconds
    while not page.evaluate(f"Boolean({condition})"):
        assert time.monotonic() < end, condition
        time.sleep(0.02)
