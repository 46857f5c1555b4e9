"""The layout of the repository: links, import street, and what a wheel contains."""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "nautile"
FOLDERS = ("rules", "extract", "codegen")

# Each stage may import itself and what stands to the left of it. Stages on one row are peers that
# must not import each other unless listed.
STREET: tuple[tuple[str, ...], ...] = (
    ("errors", "operations", "interrupts", "orphans"),
    ("dtypes",),
    ("terms",),
    ("snapshot", "types", "inline", "samples", "judge", "source"),
    ("lang", "examples"),
    ("oracle",),
    ("rules",),
    ("egraph", "worker"),
    ("extract",),
    ("codegen",),
    ("certificate",),
    ("bundle", "runtime", "built", "options"),
    ("building", "provenance", "retreat"),
    ("stages", "report", "cli_options", "rules_cli"),
    ("workbench",),
    ("inspector",),
    ("store", "task"),
    ("executor",),
    ("batch",),
    ("service",),
    ("cli",),
)
RANK = {name: i for i, row in enumerate(STREET) for name in row}


def modules() -> list[Path]:
    return sorted(p for p in PACKAGE.glob("**/*.py")) + sorted(
        p for f in FOLDERS for p in (PACKAGE / f).glob("**/*.py")
    )


def stage(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            parts = node.module.split(".")
            if parts == ["nautile"]:
                found |= {a.name for a in node.names}
            elif parts[0] == "nautile":
                found.add(parts[1])
        if isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("nautile.")}
    return found


@pytest.mark.parametrize("name", FOLDERS)
def test_links_resolve_to_the_top_level_folders(name: str) -> None:
    link = PACKAGE / name
    assert link.is_symlink()
    assert not link.readlink().is_absolute()
    assert link.resolve() == ROOT / name


def test_every_module_has_a_place_on_the_street() -> None:
    assert {stage(p) for p in modules()} - {"__init__", "__main__"} <= set(RANK)


def test_imports_run_one_way() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports nautile.{name}"
        for path in modules()
        if stage(path) in RANK
        for name in imported(path)
        if name in RANK and RANK[name] > RANK[stage(path)]
    ]
    assert wrong == []


@pytest.mark.parametrize("heavy", ["egglog", "highspy", "cupy", "cuda", "torch", "numpy"])
def test_heavy_packages_load_only_where_they_run(heavy: str) -> None:
    code = f"import sys, nautile.cli; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def shipped() -> set[str]:
    """All files of the package but what is for readers of the repository."""
    tops = (PACKAGE, *(PACKAGE / f for f in FOLDERS))
    found = (p for top in tops for p in top.glob("**/*") if p.is_file())
    return {
        p.relative_to(PACKAGE.parent).as_posix() for p in found if p.suffix not in (".md", ".pyc")
    }


def test_wheel_has_one_top_level_name_and_its_data(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "-q", "-w", str(tmp_path)]
    subprocess.run([*command, "--no-build-isolation", str(ROOT)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {n.split("/")[0] for n in names if ".dist-info/" not in n} == {"nautile"}
    for needed in ("lang/prelude.nau", "examples/attention.nau", "extract/devices/h200.json"):
        assert f"nautile/{needed}" in names
    for needed in ("store/migrations/env.py", "service/nautile.service",
                   "service/static/index.html", "inspector/page/assets/index.html",
                   "inspector/page/explorer/assets/explorer.js"):  # fmt: skip
        assert f"nautile/{needed}" in names
    assert shipped() - set(names) == set()
    assert any(n.endswith(".cuh") for n in names)
    assert any(n.startswith("nautile/rules/") and n.endswith(".nau") for n in names)
