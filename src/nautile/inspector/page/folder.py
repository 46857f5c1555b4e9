"""The page as a folder: index.html and assets, opened from disk or served, with no network.

```
index.html            the frame, the same for every program
assets/*.js, *.css    drawn by hand; assets/explorer/ is the e-graph explorer's
assets/data/*.js      explanation, its long lists, program, kernel-N, egraph, assets:
                      one call each, `nautile.put(name, text)`
```

Nothing of a program enters HTML, CSS or code: data are JSON inside a string literal of ASCII.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nautile.errors import InputError

if TYPE_CHECKING:
    from nautile.stages import Optimization

__all__ = ["POLICY", "write_page"]

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "worker-src blob:",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types nautile",
    )
)
_SCRIPTS = (  # in this order: each adds its part to what is there
    *("base", "text", "loading", "theme", "link", "sections", "table", "notation"),
    *("overview", "program", "roofline", "candidates", "changes", "derivation", "saturation"),
    *("questions", "egraph", "reproduce", "main"),
)


def write_page(folder: Path, explanation: Any, result: Optimization | None) -> None:
    """Write the page of an explanation (an object with `as_dict()`, or that dictionary) and of the
    result that it explains into `folder`, which is made where it is not there. A result that ended
    early, or none, gives a page of what is known. Raises InputError (code "output-folder") where
    the folder cannot be written."""
    told = explanation if isinstance(explanation, dict) else explanation.as_dict()
    try:
        for old in (folder / "assets" / "data").glob("kernel-*.js"):
            old.unlink()  # of a program that had more of them
        for path, content in _files(told, result):
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"cannot write {folder}: {reason}", code="output-folder") from error


Files = Iterator[tuple[str, bytes]]


def _files(told: dict[str, Any], result: Optimization | None) -> Files:
    assets = resources.files("nautile.inspector.page") / "assets"
    for file in sorted((f for f in assets.iterdir() if f.is_file()), key=lambda f: f.name):
        if file.name != "index.html":
            yield f"assets/{file.name}", file.read_bytes()
    yield from _told(told)
    yield from _sources(result)
    yield from _explorer(result)
    yield "index.html", _frame(assets / "index.html")


def _frame(template: Traversable) -> bytes:
    names = [f"{name}.js" for name in _SCRIPTS]
    names[-1:-1] = ["data/explanation.js"]  # what the head shows is there when the page is drawn
    scripts = "\n".join(f'<script defer src="assets/{name}"></script>' for name in names)
    text = template.read_text(encoding="utf-8")
    return text.replace("{{policy}}", POLICY).replace("{{scripts}}", scripts).encode()


_APART = ("candidates", "derivation", "margins", "runners_up")  # each may be long


def _told(told: dict[str, Any]) -> Files:
    """The explanation without its long lists, which wait in files of their own until their section
    is opened: the head of the page is there at once."""
    saturation = told.get("saturation") or {}
    short = {k: v for k, v in told.items() if k not in _APART}
    short["saturation"] = {k: v for k, v in saturation.items() if k != "course"} or None
    yield _data("explanation", short)
    yield _data("course", saturation.get("course"))
    for name in _APART:
        yield _data(name, told.get(name))


def _sources(result: Optimization | None) -> Files:
    from nautile.inspector.page.program import kernel_data, program_data, sources

    if result is None:
        yield _data("program", None)
        return
    found = sources(result)
    yield _data("program", program_data(result, found))
    for number in range(len(result.built)):
        yield _data(f"kernel-{number}", kernel_data(result, number, found))


def _explorer(result: Optimization | None) -> Files:
    """The e-graph explorer's files and data, and what the page loads of it, in order."""
    parts = None
    if result is not None and result.snapshots:
        from nautile.inspector.page import explorer

        parts = {
            "scripts": [f"assets/explorer/{name}" for name in explorer.SCRIPTS],
            "styles": [f"assets/explorer/{name}" for name in explorer.STYLES],
        }
        for path, content in _tree(resources.files(explorer), ""):
            if not path.endswith((".py", ".pyc")):
                yield f"assets/explorer/{path}", content
        yield _data("egraph", explorer.explorer_data(result))
    yield _data("assets", {"explorer": parts})


def _tree(folder: Traversable, prefix: str) -> Files:
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        path = f"{prefix}{entry.name}"
        if entry.is_dir() and not entry.name.startswith("__"):
            yield from _tree(entry, f"{path}/")
        elif entry.is_file():
            yield path, entry.read_bytes()


def _data(name: str, value: Any) -> tuple[str, bytes]:
    """JSON as a string literal: a parser of JSON reads it, with no names that mean something."""
    literal = json.dumps(json.dumps(_finite(value), separators=(",", ":"), allow_nan=False))
    text = f"nautile.put({json.dumps(name)}, {literal});\n"
    return f"assets/data/{name}.js", text.encode("ascii")


def _finite(value: Any) -> Any:
    """JSON knows no infinities and no NaN: they become text."""
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return {str(k): _finite(v) for k, v in value.items()}
        case list() | tuple():
            return [_finite(v) for v in value]
    return value
