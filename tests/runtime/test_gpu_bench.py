"""The peer harness without a GPU: cases, counts, figures, goals, records, children that die."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from nautile import lang

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench"
CORPUS = ROOT / "tests" / "data" / "corpus"
sys.path.insert(0, str(BENCH))

from gpu import goals, groups, plot, store, table  # noqa: E402
from gpu.case import Case, text_of  # noqa: E402
from gpu.figures import geometric_mean, ratio, summary  # noqa: E402
from gpu.goals import Goal, Need, judge  # noqa: E402
from gpu.groups import GROUPS, cases  # noqa: E402
from gpu.options import LEVELS, Options  # noqa: E402
from gpu.ours import ways  # noqa: E402
from gpu.session import run, supervise  # noqa: E402
from gpu.work import flops, kept_pairs  # noqa: E402

MASKS = {
    "full": lambda t, s: True,
    "causal": lambda t, s: s <= t,
    "window": lambda t, s: 0 <= t - s < 5,
    "prefix": lambda t, s: s < 3 or s <= t,
}


def record(case: Case, peers: dict[str, float], **changes: Any) -> dict[str, Any]:
    """A record whose ratios are given."""
    timed = {"ms": 1.0, "low": 1.0, "high": 1.0, "spread": 0.0}
    found = {n: timed | {"ratio": r, "ratio_low": r, "ratio_high": r} for n, r in peers.items()}
    return store.head(case) | {
        "correct": True, "nautile": timed | {"kernels": 1}, "variants": {}, "peers": found,
        "skipped": {}, "relative_error": 1e-3, "naive_error": 2e-3, "tflops": 500.0,
        "of_copy": 0.9, "gpu": "G", "date": "2026-01-02", "versions": {"torch": "2"}, **changes,
    }  # fmt: skip


def square(program: str, tokens: int, group: str = "attention", width: int = 128) -> Case:
    """The case of a group at some length."""
    found = [c for c in cases([group]) if c.program == program and c.sizes["S"] == tokens]
    (case,) = [c for c in found if c.sizes["D"] == width]
    return case


# Cases


@pytest.mark.parametrize("group", GROUPS)
def test_cases_of_a_group_have_names_and_folders_of_their_own(group: str) -> None:
    found = cases([group])
    assert found
    assert len({c.folder for c in found}) == len(GROUPS[group]())
    assert {c.group for c in found} == {group}


@pytest.mark.parametrize("case", {(c.file, c.program, c.dtype): c for c in cases(GROUPS)}.values())
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


@pytest.mark.parametrize(("program", "tokens"), itertools.product(MASKS, (1, 2, 7, 12)))
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
    """A card that slows down to a half moves both sides alike."""
    found = ratio([1.0, 2.0, 1.0], [3.0, 6.0, 2.0])
    assert found == {"ratio": 3.0, "ratio_low": 2.0, "ratio_high": 3.0}
    with pytest.raises(ValueError, match="shorter|longer"):
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
    plain = record(square("full", 4096), {}, tflops=600.0)
    capped = record(square("softcap", 4096, "variants"), {"flex_attention": 2.5}, tflops=480.0)
    found = verdict("softcap, 4k and 16k", [plain, capped], 1)
    assert list(found.figures.values()) == [pytest.approx(0.8)]
    sizes = {"M": 4096, "N": 4096, "K": 4096}
    wide = record(Case("gemm", "products", "gemm", sizes), {})
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


# Records


class Machine:
    """Measures by a function of the case; its context breaks where that raises."""

    def __init__(self, measure: Any) -> None:
        self.measure_case, self.broken = measure, False

    def stamp(self) -> dict[str, Any]:
        return {"gpu": "G", "date": "2026-01-02", "versions": {"torch": "2"}}

    def dead(self) -> bool:
        return self.broken

    def clean(self) -> None:
        return None

    def measure(self, case: Case, options: Options, until: float, give_up: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.measure_case(case)
        return found


def test_a_case_that_fails_costs_its_own_record(tmp_path: Path) -> None:
    wanted, path = cases(["gemm"]), tmp_path / "gpu.json"

    def measure(case: Case) -> dict[str, Any]:
        if case is wanted[1]:
            raise RuntimeError("no memory")
        return record(case, {"cublas": 1.0}) | {"made_with": {"nvrtc": "13"}}

    run(Machine(measure), wanted, path, Options(), time.time() + 60)
    found = store.read(path)
    assert [r["case"] for r in found] == [c.name for c in wanted]
    assert [r["correct"] for r in found] == [True, False, True, True]
    assert found[1]["error"] == "RuntimeError: no memory"
    assert found[1]["nautile"] is None
    assert found[0]["versions"] == {"torch": "2", "nvrtc": "13"}


def test_a_child_that_dies_costs_one_case(tmp_path: Path) -> None:
    """Children write two records each and then die in the midst of the next case."""
    wanted, path = cases(["attention"])[:7], tmp_path / "gpu.json"

    def child(until: float) -> str | None:
        done = store.read(path)
        more = [record(c, {}) for c in wanted[len(done) :][:2]]
        store.write(path, [*done, *more])
        return "the process ended with status -11"

    found = supervise(wanted, path, time.time() + 60, child)
    assert [r["case"] for r in found] == [c.name for c in wanted]
    assert [r["correct"] for r in found] == [True, True, False, True, True, False, True]
    assert "status -11" in found[2]["error"]
    assert store.read(path) == found


def test_a_child_that_wrote_why_it_ended_is_followed_by_another(tmp_path: Path) -> None:
    wanted, path = cases(["gemm"]), tmp_path / "gpu.json"

    def child(until: float) -> str | None:
        done = store.read(path)
        store.write(path, [*done, store.failure(wanted[len(done)], "its kernels do not end")])
        return None

    found = supervise(wanted, path, time.time() + 60, child)
    assert [r["error"] for r in found] == ["its kernels do not end"] * 4


def test_what_there_was_no_time_for_is_said(tmp_path: Path) -> None:
    wanted = cases(["gemm"])
    found = supervise(wanted, tmp_path / "gpu.json", time.time() - 1, lambda until: None)
    assert {r["error"] for r in found} == {"not run: the time was over"}
    assert all(r["not_run"] for r in found)


def test_later_runs_stand_unless_they_did_not_run() -> None:
    first, second = cases(["gemm"])[:2]
    old = [record(first, {"cublas": 1.0}), record(second, {"cublas": 1.0})]
    new = [record(first, {"cublas": 2.0}), store.failure(second, "late") | {"not_run": True}]
    kept = store.merged([old, new])
    assert [r["peers"]["cublas"]["ratio"] for r in kept] == [2.0, 1.0]
    wrong = store.merged([old, [store.failure(first, "wrong: C")]])
    assert [r["correct"] for r in wrong] == [False, True]


# Pages


def rows() -> list[dict[str, Any]]:
    return [
        record(square("full", 4096), {"cudnn": 1.25}, skipped={"fa4": "not installed"}),
        store.failure(square("causal", 4096), "wrong: O | bad"),
        record(cases(["rows"])[0], {"eager": 3.0}, tflops=None),
    ]


def test_the_page_shows_goals_cases_and_failures() -> None:
    lines = table.page(rows()).splitlines()
    name = square("full", 4096).name
    assert f"| {name} | 1.0e-03 (2.0e-03) | 1 | 1.0000 | 500 TFLOP/s | 1.25 ± 0.00 |" in lines
    wanted = "| attention D128 full, 4k and 16k | 1.05 x cudnn | 1.25 (1.25 to 1.25) | 1 of 2 |"
    assert any(line.startswith(wanted) and "**partly**" in line for line in lines)
    assert any("wrong: O \\| bad" in line for line in lines)
    assert any("90% of copy" in line and "3.00 ± 0.00" in line for line in lines)
    assert "- fa4: not installed (1 cases)" in lines
    assert "G, 2026-01-02; torch 2." in lines


def test_the_figure_is_an_image_of_every_measured_goal() -> None:
    image = ElementTree.fromstring(plot.figure(rows(), "a < b"))
    space = "{http://www.w3.org/2000/svg}"
    dots = image.findall(f"{space}circle")
    measured = [j for j in judge(rows()) if j.figures]
    assert len(dots) == len(measured) >= 4
    assert any(t.text == "a < b" for t in image.findall(f"{space}text"))


def test_the_readme_section_stays_between_its_markers() -> None:
    text = f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n"
    assert table.between(text, "new") == f"before\n{table.BEGIN}\nnew\n{table.END}\nafter\n"
    with pytest.raises(ValueError, match="no markers"):
        table.between("before", "new")
    table.between((ROOT / "README.md").read_text(), "new")  # the README has them


def test_the_readme_shows_the_kept_results() -> None:
    path = BENCH / "results" / "gpu.json"
    readme = (ROOT / "README.md").read_text()
    shown = table.goal_table(json.loads(path.read_text())) if path.exists() else ""
    assert shown in readme


# The command


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, str(BENCH / "gpu.py"), *arguments]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=120)


def test_a_dry_run_goes_through_every_case_and_is_never_kept(tmp_path: Path) -> None:
    path, kept = tmp_path / "dry.json", tmp_path / "kept.json"
    done = command("gemm", "skinny", "--dry", "--only", "M4096", "-o", str(path))
    assert done.returncode == 0, done.stderr
    found = store.read(path)
    assert [r["case"] for r in found] == [c.name for c in cases(["gemm", "skinny"], "M4096")]
    assert {r["gpu"] for r in found} == {"dry run"}
    assert all(r["peers"]["cublas"]["ratio"] > 0 for r in found)
    assert command("--merge", str(path), "-o", str(kept)).returncode == 2
    assert not kept.exists()


def test_results_of_several_runs_are_joined(tmp_path: Path) -> None:
    first, second, kept = (tmp_path / n for n in ("a.json", "b.json", "kept.json"))
    store.write(first, [record(cases(["gemm"])[0], {})])
    store.write(second, [record(cases(["gemm"])[1], {})])
    assert command("--merge", str(first), str(second), "-o", str(kept)).returncode == 0
    assert [r["case"] for r in store.read(kept)] == [c.name for c in cases(["gemm"])[:2]]


def test_an_unknown_group_is_a_usage_error() -> None:
    done = command("nothing")
    assert done.returncode == 2
    assert "gemm" in done.stderr
