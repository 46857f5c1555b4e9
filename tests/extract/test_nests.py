"""A product inside another one is done again for every tile of its columns: the bodies that read it
instead are priced with tiles, however many bodies are cheaper without."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nautile import lang

from .build import baseline, plan

CORPUS = Path(__file__).parents[1] / "data" / "corpus"
ATTENTION = json.loads((CORPUS / "attention.json").read_text())["modifications"]
SUBGRAPHS = json.loads((CORPUS / "subgraphs.json").read_text())["subgraphs"]
TEXTS = {
    made.name: text
    for text in ("\n".join(e["program"]) for e in (*ATTENTION, *SUBGRAPHS))
    for made in lang.parse(text)
}
QUICK = ("mla_rope_score", "deepseek_mla_decode")


def slow(name: str) -> Any:
    return pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)


@pytest.mark.parametrize("name", [slow(name) for name in TEXTS])
def test_no_choice_is_slower_than_the_source_program(name: str) -> None:
    (made,) = lang.parse(TEXTS[name])
    assert plan(made).seconds <= baseline(made)["seconds"] * 1.001
