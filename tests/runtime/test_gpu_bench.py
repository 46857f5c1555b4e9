"""The peer harness without a GPU: cases, counts, figures, goals, implementations."""

from __future__ import annotations

import itertools
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

from gpu import goals, groups, store
from gpu.case import Case, text_of
from gpu.figures import geometric_mean, ratio, summary
from gpu.goals import Goal, Need, judge
from gpu.groups import GROUPS, cases
from gpu.options import LEVELS, Options
from gpu.ours import ways
from gpu.work import flops, kept_pairs
from gpu_records import ROOT, record, square

from nautile import lang

CORPUS = ROOT / "tests" / "data" / "corpus"

MASKS = {
    "full": lambda t, s: True,
    "causal": lambda t, s: s <= t,
    "window": lambda t, s: 0 <= t - s < 5,
    "prefix": lambda t, s: s < 3 or s <= t,
}


# Cases


@pytest.mark.parametrize("group", GROUPS)
def test_cases_of_a_group_have_names_and_folders_of_their_own(group: str) -> None:
    found = cases([group])
    assert found
    assert len({c.folder for c in found}) == len(GROUPS[group]())
    assert {c.group for c in found} == {group}


PROGRAMS = {(c.file, c.program, c.dtype): c for c in cases(GROUPS)}


@pytest.mark.parametrize("case", list(PROGRAMS.values()), ids=lambda c: c.name)
def test_every_program_takes_its_sizes_and_type(case: Case) -> None:
    (program,) = lang.parse(text_of(case), dims=dict(case.sizes))
    assert program.name == case.program
    extents = {n for b in program.inputs for n in b.shape}
    assert {case.sizes[k] for k in ("M", "S", "D") if k in case.sizes} <= extents | {1}
    kinds = {b.dtype for b in program.inputs}
    if case.file != "corpus":
        assert case.dtype in kinds or case.file == "fp8"
        assert "bf16" not in kinds or case.dtype == "bf16"


def test_the_grid_is_the_corpus_grid() -> None:
    grid = json.loads((CORPUS / "attention.json").read_text())["nautilus"]
    wanted = {(m["H"], m["Hk"], m["D"], "causal" if m["mask"] else "full") for m in grid["models"]}
    assert set(groups.MODELS.values()) == wanted
    assert len(cases(["grouped"])) == grid["points"] == 72
    assert {c.sizes["S"] for c in cases(["grouped"])} == set(grid["sequences"])
    assert {c.sizes["B"] for c in cases(["grouped"])} == set(grid["batches"])


def test_twenty_programs_stand_as_the_corpus_has_them() -> None:
    known = json.loads((CORPUS / "subgraphs.json").read_text())["subgraphs"]
    texts = {g["name"]: "\n".join(g["program"]) for g in known}
    found = cases(["corpus"])
    assert len(found) == 20
    for case in found:
        assert text_of(case).strip() == texts[case.program].strip()


def test_an_unknown_group_is_refused() -> None:
    with pytest.raises(KeyError):
        cases(["nothing"])


# Counts


@pytest.mark.parametrize(("program", "tokens"), [*itertools.product(MASKS, (1, 2, 7, 12))])
def test_kept_pairs_are_those_that_the_mask_keeps(program: str, tokens: int) -> None:
    keep = MASKS[program]
    pairs = sum(keep(t, s) for t in range(tokens) for s in range(tokens))
    assert kept_pairs(program, {"T": tokens, "S": tokens, "W": 5, "P": 3}) == pairs


def test_a_later_chunk_of_queries_sees_all_keys_before_it() -> None:
    pairs = sum(s <= t + 6 for t in range(3) for s in range(9))
    assert kept_pairs("causal", {"T": 3, "S": 9}) == pairs


def test_operations_of_products_and_attention() -> None:
    sizes = {"M": 3, "N": 5, "K": 7}
    assert flops(Case("g", "products", "gemm", sizes)) == 2 * 3 * 5 * 7
    assert flops(Case("g", "products", "swiglu", sizes)) == 4 * 3 * 5 * 7
    lora = 2 * 3 * 5 * 7 + 2 * 3 * 7 * 16 + 2 * 3 * 16 * 5
    assert flops(Case("g", "products", "lora", sizes)) == lora
    heads = {"B": 2, "H": 3, "Hk": 1, "T": 4, "S": 4, "D": 8}
    assert flops(Case("g", "attention", "causal", heads)) == 4 * 2 * 3 * 8 * 10
    assert flops(Case("g", "rows", "softmax_rows", {"M": 3, "N": 5})) == 0.0


# Figures


def test_a_ratio_is_taken_round_by_round() -> None:
    """A card that slows down moves both sides alike; medians alone would give 8 over 2."""
    found = ratio([1.0, 2.0, 9.0], [3.0, 8.0, 9.0])
    assert found == {"ratio": 3.0, "ratio_low": 1.0, "ratio_high": 4.0}
    with pytest.raises(ValueError, match=r"zip\(\) argument 2"):
        ratio([1.0], [1.0, 2.0])


def test_summary_and_mean() -> None:
    found = summary([1.0, 2.0, 3.0, 4.0, 50.0])
    assert (found["ms"], found["low"], found["high"]) == (3.0, 1.0, 50.0)
    assert found["spread"] == pytest.approx(2.0 / 3.0)  # from 2 to 4, over 3
    assert summary([2.0])["spread"] == 0.0
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert math.isnan(geometric_mean([]))


# Goals


def verdict(work: str, records: list[dict[str, Any]], place: int = 0) -> Any:
    return [j for j in judge(records) if j.goal.work == work][place]


def test_every_goal_speaks_of_cases_and_every_group_has_a_goal() -> None:
    known = cases(GROUPS)
    for goal in goals.goals():
        assert any(goal.takes(c.facts()) for c in known), goal.work
    assert {g for goal in goals.goals() for g in goal.where["group"]} == set(GROUPS)


def test_a_goal_is_reached_when_all_its_cases_are() -> None:
    work = "attention D128 full, 4k and 16k"
    short = record(square("full", 4096), {"cudnn": 1.06, "triton": 1.3})
    long = record(square("full", 16384), {"cudnn": 1.04, "flash_attention": 1.9})
    assert verdict(work, []).verdict == "not measured"
    assert verdict(work, [short]).verdict == "partly"
    both = verdict(work, [short, long])
    assert (both.verdict, both.value) == ("missed", 1.04)  # the threshold is 1.05
    assert verdict(work, [short, long], 1).verdict == "reached"  # 1.0 of the best peer
    slow = record(square("full", 4096), {"cudnn": 1.2, "triton": 0.98})
    assert verdict(work, [slow, long], 1).value == 0.98


def test_a_wrong_case_misses_its_goals_and_has_no_figure() -> None:
    work = "attention D128 full, 4k and 16k"
    good = record(square("full", 4096), {"cudnn": 2.0})
    wrong = store.failure(square("full", 16384), "wrong: O")
    found = verdict(work, [good, wrong])
    assert (found.verdict, found.wrong) == ("missed", (wrong["case"],))
    late = wrong | {"not_run": True}
    assert verdict(work, [good, late]).verdict == "partly"


def test_a_mean_and_the_worst_of_a_grid() -> None:
    grid = cases(["grouped"])
    rows = [record(c, {"cudnn": 1.2, "flash_attention": 1.1}) for c in grid]
    rows[5] = record(grid[5], {"cudnn": 0.9, "flash_attention": 1.5})
    work = "grouped-query prefill over the model grid"
    assert verdict(work, rows).value == pytest.approx((1.1**71 * 0.9) ** (1 / 72))
    assert verdict(work, rows).verdict == "reached"
    assert verdict(work, rows, 1).verdict == "missed"


def test_rates_and_times_of_other_programs() -> None:
    plain = record(square("full", 4096, "variants"), {}, tflops=600.0)
    capped = record(square("softcap", 4096, "variants"), {"flex_attention": 2.5}, tflops=480.0)
    longer = record(square("full", 16384, "variants"), {}, tflops=100.0)
    elsewhere = record(square("full", 4096), {}, tflops=200.0)
    found = verdict("softcap, 4k and 16k", [longer, elsewhere, plain, capped], 1)
    assert list(found.figures.values()) == [pytest.approx(0.8)]
    sizes = {"M": 4096, "N": 4096, "K": 4096}
    wide = record(Case("fp8", "products", "gemm", sizes), {})
    small = record(Case("fp8", "fp8", "gemm8", sizes), {})
    small["nautile"] = small["nautile"] | {"ms": 0.5}
    assert verdict("fp8 matrix products", [wide, small]).value == 2.0
    assert verdict("fp8 matrix products", [small]).verdict == "not measured"


def test_the_share_of_programs_that_are_faster() -> None:
    rows = [record(c, {"compile": 1.5}) for c in cases(["corpus"])]
    work = "twenty programs nobody tuned for"
    assert verdict(work, rows).verdict == "reached"
    rows[3]["peers"]["compile"]["ratio"] = 0.9
    assert (verdict(work, rows).value, verdict(work, rows).verdict) == (0.95, "missed")


def test_needs_say_what_they_compare() -> None:
    texts = [Need(1.05, over=["a", "b"]), Need(1.0, over="best"), Need(0.9, measure="of_copy")]
    assert [n.text() for n in texts] == [
        "1.05 x a / b", "1 of the best peer", "0.9 of copy bandwidth",
    ]  # fmt: skip
    assert Goal("w", {"D": [64]}, ()).takes({"D": 64, "S": 1})
    assert not Goal("w", {"D": [64]}, ()).takes({"S": 1})


# Peers and implementations


@dataclass
class Peer:
    name: str
    kind: str
    seconds: float = 1.0
    there: bool = True

    def missing(self) -> bool:
        return not self.there


def test_which_peers_take_part() -> None:
    fast = Options(LEVELS["fast"])
    assert fast.excludes(Peer("cudnn", "library"), 100.0) is None
    assert fast.excludes(Peer("flex", "compiled"), 100.0) == "not asked for"
    assert Options(["flex"]).excludes(Peer("flex", "compiled"), 100.0) is None
    assert fast.excludes(Peer("quack", "wheel", there=False), 100.0) == "not installed"
    assert "30 s are left" in (fast.excludes(Peer("triton", "triton", 20.0), 30.0) or "")
    assert Options(LEVELS["none"]).excludes(Peer("cudnn", "library"), 100.0) == "not asked for"


def launch(*architectures: str) -> Any:
    """A launch with one implementation for each architecture."""
    made = [
        SimpleNamespace(schedule=a, kernels=[SimpleNamespace(architecture=a)])
        for a in architectures
    ]
    return SimpleNamespace(implementations=made)


def test_implementations_beside_the_launchers_own() -> None:
    both = SimpleNamespace(launches=[launch("sm_90a", "sm_80"), launch("sm_80")])
    assert [(w.name, w.choices) for w in ways(both)] == [
        ("nautile", {}), ("nautile-portable", {0: 1, 1: 0}),
    ]  # fmt: skip
    assert [w.name for w in ways(SimpleNamespace(launches=[launch("sm_80")]))] == ["nautile"]
    four = SimpleNamespace(launches=[launch("sm_90a", "sm_90a", "sm_80", "sm_80")])
    assert [(w.name, w.choices.get(0)) for w in ways(four)] == [
        ("nautile", None), ("nautile-portable", 2), ("nautile-2", 1), ("nautile-4", 3),
    ]  # fmt: skip
