"""What is read of Nsight Compute's tables. The tool is a program that prints one."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import counters

STALLS = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
COLUMNS = {
    "ID": ("", "0", "1"),
    "Kernel Name": ("", "k_O", "void flash::run<Kernel<1>>(Params)"),
    "gpu__time_duration.sum": ("us", "1,250.5", "900"),
    "dram__bytes_read.sum": ("Mbyte", "64.5", "64"),
    "sm__cycles_elapsed.avg.per_second": ("Ghz", "1.7", "1.6"),
    "launch__registers_per_thread": ("register/thread", "168", "240"),
    "lts__t_sector_hit_rate.pct": ("%", "87.5", "n/a"),
    STALLS.format("barrier"): ("inst", "3.0", "0"),
    STALLS.format("long_scoreboard"): ("inst", "6.9", "1"),
    STALLS.format("branch_resolving"): ("inst", "0.1", "0"),
}


def table() -> str:
    rows = [list(COLUMNS), *([v[n] for v in COLUMNS.values()] for n in range(3))]
    return "\n".join(",".join(f'"{x}"' for x in row) for row in rows)


def test_figures_have_their_units_and_their_kernels() -> None:
    rows = counters.kernels(f"==PROF== Connected\n{table()}\n")
    (ours, theirs), rest = counters.split(rows, ["k_O"], peers=True)
    assert not rest
    assert ours == {
        "name": "k_O", "whose": "nautile", "ms": 1.2505,
        "stalls": {"long_scoreboard": 0.69, "barrier": 0.3},
        "dram_read_bytes": 64.5e6, "sm_ghz": 1.7, "registers": 168.0, "l2_hits": 87.5,
    }  # fmt: skip
    assert (theirs["name"], theirs["whose"]) == ("void flash::run<Kernel<1>>", "peers")
    assert "l2_hits" not in theirs
    assert theirs["stalls"] == {"long_scoreboard": 1.0}


def test_cases_of_one_process_are_told_apart_by_their_order() -> None:
    rows = [{"name": n} for n in ("a", "b", "a")]
    first, rest = counters.split(rows, ["a", "b"], peers=False)
    second, rest = counters.split(rest, ["a"], peers=False)
    assert [[r["name"] for r in x] for x in (first, second)] == [["a", "b"], ["a"]]
    assert not rest
    with pytest.raises(ValueError, match="counted b, a and not a"):
        counters.split(rows[1:], ["a"], peers=False)


def test_no_table_no_kernels() -> None:
    assert counters.kernels("==ERROR== no kernels were profiled\n") == []


TOOL = """#!{python}
import sys
if "--import" in sys.argv:
    print('''==PROF==\\n{table}''')
elif "--version" in sys.argv:
    print("NVIDIA (R) Nsight Compute\\nVersion 2025.3")
else:
    assert sys.argv[-2] == "--child" and "--clock-control" in sys.argv
    name = sys.argv[-1].partition("=")[0]
    print(f"==PROF== Connected\\ngpu: Card\\n{{name}}: k_O")
"""


def test_a_profile_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tool = tmp_path / "ncu"
    tool.write_text(TOOL.format(python=sys.executable, table=table()))
    tool.chmod(0o755)
    case = "products-gemm-M4096-N4096-K4096"
    monkeypatch.setattr(
        sys, "argv", ["x", f"{case}=cublas", "--ncu", str(tool), "-o", str(tmp_path / "p")]
    )
    assert counters.main() == 0
    assert capsys.readouterr().out.startswith(f"{case}: k_O 1.2505 ms")
    found = json.loads((tmp_path / "p" / f"{case}.json").read_text())
    assert (found["gpu"], found["ncu"], found["case"]) == ("Card", "2025.3", case)
    assert [k["whose"] for k in found["kernels"]] == ["nautile", "peers"]


def test_an_unknown_case_and_a_tool_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["x", "nothing", "-o", str(tmp_path)])
    assert counters.main() == 2
    case = "products-gemm-M4096-N4096-K4096"
    monkeypatch.setattr(sys, "argv", ["x", case, "--ncu", "/bin/false", "-o", str(tmp_path)])
    assert counters.main() == 1
    assert "failed" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
