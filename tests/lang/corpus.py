"""The corpus programs and the shipped examples, as (name, text, small sizes or None)."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

_DATA = Path(__file__).parents[1] / "data" / "corpus"


def corpus() -> list[tuple[str, str, dict[str, int]]]:
    attention = json.loads((_DATA / "attention.json").read_text())["modifications"]
    subgraphs = json.loads((_DATA / "subgraphs.json").read_text())["subgraphs"]
    entries = [(m["id"], m) for m in attention] + [(m["name"], m) for m in subgraphs]
    return [(name, "\n".join(m["program"]), m["check"]["sizes"]) for name, m in entries]


def examples() -> list[tuple[str, str]]:
    folder = resources.files("nautile.examples")
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".nau")), key=lambda f: f.name)
    return [(f.name, f.read_text("utf-8")) for f in files]
