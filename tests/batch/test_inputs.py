"""Which files a batch reads, and where their bundles go."""

from __future__ import annotations

import io
import os
import string
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nautile.batch.inputs import Shard, files
from nautile.errors import InputError


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("b.nau", "a.nau", "sub/c.nau", "sub/deep/d.nau", "z/e.nau", "notes.txt", "x.NAU"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_text("")
    return tmp_path / "in"


def found(*arguments: str, skip: Path | None = None) -> list[str]:
    return [file.shown for file in files(arguments, skip)]


def test_a_folder_is_read_in_a_fixed_order(tree: Path) -> None:
    names = ["a.nau", "b.nau", "sub/c.nau", "sub/deep/d.nau", "z/e.nau"]
    assert found("in") == [f"in/{name}" for name in names]
    assert [f.label for f in files(("in",))] == names


def test_loops_and_folders_that_are_reached_twice_end(tree: Path) -> None:
    os.symlink(tree, tree / "sub" / "loop")
    os.symlink(tree / "z", tree / "sub" / "again")
    assert len(found("in")) == 5


def test_links_to_files_are_read_and_broken_ones_are_inputs(tree: Path) -> None:
    os.symlink(tree / "a.nau", tree / "link.nau")
    os.symlink(tree / "nowhere", tree / "broken.nau")
    assert {"in/link.nau", "in/broken.nau"} <= set(found("in"))


def test_the_output_is_not_an_input(tree: Path) -> None:
    (tree / "out" / "bundles").mkdir(parents=True)
    (tree / "out" / "bundles" / "f.nau").write_text("")
    assert len(found("in", skip=tree / "out")) == 5


def test_globs_match_files_and_folders(tree: Path) -> None:
    assert found("in/*.nau") == ["in/a.nau", "in/b.nau"]
    assert found("in/s*") == ["in/sub/c.nau", "in/sub/deep/d.nau"]
    assert found("in/**/*.nau") == found("in")
    with pytest.raises(InputError) as caught:
        found("in/*.missing")
    assert caught.value.code == "no-inputs"


def test_lists_name_files_and_folders(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "# chosen\nin/b.nau\n\nin/sub\nin/gone.nau\r\n"
    (tree / "list.txt").write_text(text)
    wanted = ["in/b.nau", "in/sub/c.nau", "in/sub/deep/d.nau", "in/gone.nau"]
    assert found("in/list.txt") == wanted
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert found("-") == wanted


def test_a_list_of_something_else_is_refused(tree: Path) -> None:
    (tree / "list.bin").write_bytes(b"\0" * 10)
    with pytest.raises(InputError) as caught:
        found("in/list.bin")
    assert caught.value.code == "not-text"


def test_a_file_is_taken_once(tree: Path) -> None:
    assert found("in/a.nau", "in/./a.nau", "in", "in/*.nau").count("in/a.nau") == 1


def test_a_file_that_is_not_there_is_an_input(tree: Path) -> None:
    assert found("in/gone.nau") == ["in/gone.nau"]


def test_a_folder_that_cannot_be_looked_into_is_an_input_with_its_error(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.scandir

    def closed(path: str) -> object:
        if path.endswith("sub"):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", closed)
    by_path = {file.shown: file.error for file in files(("in",))}
    assert by_path.keys() == {"in/a.nau", "in/b.nau", "in/sub", "in/z/e.nau"}
    error = by_path["in/sub"]
    assert error is not None
    assert error.code == "unreadable-folder"


def test_names_that_are_no_text_are_shown_and_labelled_in_plain(tree: Path) -> None:
    (tree / os.fsdecode(b"caf\xe9.nau")).write_text("")
    (tree / "line\nbreak.nau").write_text("")
    (tree / ".hidden.nau").write_text("")
    odd = [
        f for f in files(("in",)) if f.shown[3:] not in {"a.nau", "b.nau"} and "/" not in f.label
    ]
    assert {f.shown for f in odd} == {"in/caf\\xe9.nau", "in/line\nbreak.nau", "in/.hidden.nau"}
    for file in odd:
        assert set(file.label) <= set(string.ascii_letters + string.digits + "-_")
        assert not file.label.startswith(".")


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
parts = st.one_of(texts, st.binary(min_size=1, max_size=6).map(os.fsdecode)).filter(
    lambda part: not set(part) & {"/", "\0"}
)
starts = st.sampled_from(["", "/", "../"])
paths = st.builds(str.__add__, starts, st.lists(parts, min_size=1, max_size=4).map("/".join))


@given(st.lists(paths, max_size=6, unique_by=os.path.normpath))
def test_labels_stay_below_the_folder_and_differ(names: list[str]) -> None:
    from nautile.batch.inputs import _label

    names = [n for n in names if os.path.normpath(n).strip("./")]
    labels = [_label(name, None) for name in names]
    assert len(set(labels)) == len({os.path.normpath(n) for n in names})
    for label in labels:
        assert not {"", ".", ".."} & set(label.split("/"))
        assert not any(part.startswith(".") for part in label.split("/"))
        label.encode()


@given(st.integers(1, 40))
def test_shards_have_each_file_once(count: int) -> None:
    names = [f"folder/{n}.nau" for n in range(100)]
    parts = [[f.path for f in files(names, None, Shard(k + 1, count))] for k in range(count)]
    assert sorted(path for part in parts for path in part) == sorted(names)
    for number, part in enumerate(parts):
        fewer = [f.path for f in files(names[::2], None, Shard(number + 1, count))]
        assert fewer == [path for path in part if path in names[::2]]


def test_shards_are_about_even() -> None:
    names = [f"{n:05}.nau" for n in range(2000)]
    sizes = [sum(1 for _ in files(names, None, Shard(k + 1, 8))) for k in range(8)]
    assert min(sizes) > 200


@pytest.mark.parametrize("text", ["0/4", "5/4", "1/0", "a/b", "1", "1/2/3", "-1/4", "١/٢", ""])
def test_what_is_no_shard_is_told(text: str) -> None:
    with pytest.raises(InputError) as caught:
        Shard.of(text)
    assert caught.value.code == "usage"
