"""Bundles on disk: what is written is read back; what is damaged or hostile is refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import compiled, entry

from nautile.bundle import load_bundle, write_entries
from nautile.bundle import write as writing
from nautile.codegen.source import TensorMap
from nautile.errors import BundleError
from nautile.terms import Buffer


def test_a_bundle_is_read_back(folder: Path) -> None:
    loaded = load_bundle(folder)
    m = loaded.manifest
    assert [(b.name, b.shape, b.dtype, b.role) for b in m.buffers] == [
        ("x", (6, 40), "f32", "input"),
        ("w", (40,), "bf16", "input"),
        ("eps", (), "f32", "input"),
        ("y", (6, 40), "f32", "output"),
        ("h", (6, 40), "f32", "intermediate"),
    ]
    kernels = [k for x in m.launches for k in x.kernels]
    assert [(x.kernel, x.grid, x.threads, x.shared_bytes) for x in kernels] == [
        ("scale", (6, 1, 1), 64, 50_000),
        ("shift", (1, 2, 1), 128, 0),
    ]
    assert [x.name for x in m.launches] == ["scale", "shift"]
    assert kernels[0].arguments == ("x", "w", "h")
    assert kernels[0].zeroed == ("h",)
    assert loaded.contents[kernels[0].source] == b"// h = x * w\n"
    assert loaded.contents[kernels[1].cubins["sm_90"]] == b"\x7fELF90"
    assert m.programs[0].defaults == {"eps": 0.5}
    assert (m.target, m.key) == ("h200", "0" * 32)
    assert loaded.json("certificate.json")["verdict"] == "pass"


def test_the_manifest_has_the_promised_names(folder: Path) -> None:
    data = json.loads((folder / "manifest.json").read_text())
    assert {"programs", "buffers", "launches", "target", "key", "versions"} <= set(data)
    assert data["versions"]["nautile"]


def test_writing_twice_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    again = write_entries(tmp_path / "again", [entry()], target="h200")
    for path in folder.iterdir():
        assert path.read_bytes() == (again / path.name).read_bytes()


def test_two_programs_with_kernels_of_one_name_keep_both_sources(tmp_path: Path) -> None:
    first = entry()
    kernel, cubins = first.kernels[0]
    other = replace(kernel, text="// another\n"), {"sm_90": compiled("sm_90", b"\x7fELFxx")}
    second = replace(first, name="other", kernels=(other, first.kernels[1]), certificate={})
    loaded = load_bundle(write_entries(tmp_path / "two", [first, second], target="h200"))
    launches = loaded.manifest.launches
    texts = {x.program: loaded.contents[next(x.kernels).source] for x in launches[::2]}
    assert texts == {"example": kernel.text.encode(), "other": b"// another\n"}
    codes = [loaded.contents[next(x.kernels).cubins["sm_90"]] for x in launches]
    assert codes == [cubins["sm_90"].cubin, b"\x7fELF90", b"\x7fELFxx", b"\x7fELF90"]
    assert loaded.json("certificate.json")["verdict"] == "none"


def test_an_older_bundle_is_replaced(folder: Path) -> None:
    newer = replace(entry(), key="1" * 32)
    write_entries(folder, [newer], target="a100")
    assert load_bundle(folder).manifest.target == "a100"
    assert [p.name for p in folder.parent.iterdir()] == [folder.name]


def test_a_folder_that_is_no_bundle_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(BundleError, match="is no bundle") as caught:
        write_entries(tmp_path, [entry()], target="h200")
    assert caught.value.code == "bundle-exists"
    assert os.listdir(tmp_path) == ["notes.txt"]


def test_a_failed_write_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    real = os.rename

    def rename(source: Any, target: Any) -> None:
        if Path(target) == folder and Path(source).name.startswith(".bundle.") and not back:
            back.append(1)
            raise OSError("disk is full")
        real(source, target)

    back: list[int] = []
    monkeypatch.setattr(writing.os, "rename", rename)
    with pytest.raises(BundleError, match="disk is full"):
        write_entries(folder, [replace(entry(), key="2" * 32)], target="h200")
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
    assert [p.name for p in folder.parent.iterdir()] == [folder.name]


def test_what_cannot_be_read_back_is_not_written(tmp_path: Path) -> None:
    first = entry()
    kernel, cubins = first.kernels[0]
    bad = replace(first, kernels=((replace(kernel, grid=(0, 1, 1)), cubins), first.kernels[1]))
    with pytest.raises(BundleError, match="grid"):
        write_entries(tmp_path / "bad", [bad], target="h200")
    hidden = replace(first, outputs=(Buffer("z", (4,), "f32"),))
    with pytest.raises(BundleError, match=r"buffer 'y'|writes output 'z'"):
        write_entries(tmp_path / "bad", [hidden], target="h200")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("victim", ["scale.cu", "shift.sm_90.cubin", "certificate.json"])
def test_a_changed_file_is_found(folder: Path, victim: str) -> None:
    data = bytearray((folder / victim).read_bytes())
    data[3] ^= 1
    (folder / victim).write_bytes(data)
    with pytest.raises(BundleError, match=f"{victim}.*changed"):
        load_bundle(folder)


def test_a_missing_a_long_and_a_linked_file(folder: Path, tmp_path: Path) -> None:
    source = folder / "scale.cu"
    text = source.read_bytes()
    source.write_bytes(text + b" ")
    with pytest.raises(BundleError, match="at most"):
        load_bundle(folder)
    source.unlink()
    with pytest.raises(BundleError, match=r"scale\.cu is missing"):
        load_bundle(folder)
    (tmp_path / "elsewhere").write_bytes(text)
    source.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BundleError, match="cannot be read"):
        load_bundle(folder)
    source.unlink()
    os.mkfifo(source)
    with pytest.raises(BundleError, match="no plain file"):
        load_bundle(folder)


@pytest.mark.parametrize("text", ["", "{", "[" * 200_000, "[1]", '{"format": 1}', "\xff", "1e999"])
def test_a_manifest_that_is_none(folder: Path, text: str) -> None:
    (folder / "manifest.json").write_bytes(text.encode("latin1"))
    with pytest.raises(BundleError):
        load_bundle(folder)


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="not a folder") as caught:
        load_bundle(tmp_path / "nowhere")
    assert caught.value.exit_status == 2
    with pytest.raises(BundleError, match=r"manifest\.json is missing"):
        load_bundle(tmp_path)


def _set(*path: Any) -> Callable[[Any], None]:
    *steps, last, value = path

    def change(data: Any) -> None:
        for step in steps:
            data = data[step]
        data[last] = value

    return change


def _kernel(launch: int, *path: Any) -> Callable[[Any], None]:
    return _set("launches", launch, "implementations", 0, "kernels", 0, *path)


def _map(**fields: Any) -> Callable[[Any], None]:
    """A map of w (40 elements of 2 bytes), with these fields instead of its own."""
    good = {"buffer": "w", "dtype": "bf16", "extents": [8, 5], "strides": [16], "box": [8, 2],
            "swizzle": 32, "offset": 0}  # fmt: skip
    return _kernel(0, "maps", [good | fields])


def _twice(key: str) -> Callable[[Any], None]:
    return lambda data: data[key].append(data[key][0])


def _move(data: Any) -> None:
    data["files"]["../scale.cu"] = data["files"].pop("scale.cu")


HOSTILE = {
    "version": _set("format", 3),
    "version of another type": _set("format", True),
    "version that is a list": _set("format", [2]),
    "file outside": _move,
    "source outside": _kernel(0, "source", "../../etc/passwd"),
    "source absolute": _kernel(0, "source", "/etc/passwd"),
    "source unlisted": _kernel(0, "source", "other.cu"),
    "cubin outside": _kernel(0, "cubins", {"sm_90": "../x.cubin"}),
    "cubin for no architecture": _kernel(0, "cubins", {"sm_9x": "scale.sm_90.cubin"}),
    "hidden file": _kernel(0, "source", ".scale.cu"),
    "grid of zero": _kernel(0, "grid", [0, 1, 1]),
    "grid too large": _kernel(0, "grid", [1, 65536, 1]),
    "grid of floats": _kernel(0, "grid", [1.0, 1, 1]),
    "grid of truth": _kernel(0, "grid", [True, 1, 1]),
    "grid of two": _kernel(0, "grid", [1, 1]),
    "threads": _kernel(0, "threads", 1025),
    "no threads": _kernel(0, "threads", 0),
    "shared memory": _kernel(0, "shared_bytes", 10**9),
    "negative shared memory": _kernel(0, "shared_bytes", -1),
    "unknown argument": _kernel(0, "arguments", ["x", "nobody"]),
    "argument of a number": _kernel(0, "arguments", ["x", 3]),
    "clears an input": _kernel(0, "zeroed", ["x"]),
    "symbol": _kernel(0, "kernel", "scale; rm"),
    "include option": _kernel(0, "options", ["-I/etc"]),
    "option with a newline": _kernel(0, "options", ["--std=c++17\n"]),
    "program nobody knows": _set("launches", 0, "program", "other"),
    "negative size": _set("buffers", 0, "shape", [-1, 40]),
    "zero size": _set("buffers", 0, "shape", [0, 40]),
    "huge": _set("buffers", 0, "shape", [2**40, 2**40]),
    "rank": _set("buffers", 0, "shape", [1] * 33),
    "dtype": _set("buffers", 0, "dtype", "f31"),
    "role": _set("buffers", 0, "role", "inputs"),
    "buffer twice": _twice("buffers"),
    "program twice": _twice("programs"),
    "buffer renamed": _set("buffers", 1, "name", "x"),
    "no programs": _set("programs", []),
    "expected outside": _set("programs", 0, "expected", "../e.json"),
    "expected unlisted": _set("programs", 0, "expected", "e.json"),
    "default of an output": _set("programs", 0, "defaults", {"y": 1.0}),
    "default of text": _set("programs", 0, "defaults", {"eps": "1"}),
    "kind of nobody": _set("programs", 0, "kinds", {"q": "normal"}),
    "files is a list": _set("files", []),
    "size of a file": _set("files", "scale.cu", "bytes", -1),
    "digest": _set("files", "scale.cu", "digest", "0"),
    "launches is text": _set("launches", "all"),
    "no implementations": _set("launches", 0, "implementations", []),
    "an implementation of no kernels": _set("launches", 0, "implementations", 0, "kernels", []),
    "schedule": _set("launches", 0, "implementations", 0, "schedule", 3),
    "name of a launch": _set("launches", 0, "name", ""),
    "counters": _kernel(0, "counters", -1),
    "counters of text": _kernel(0, "counters", "1"),
    "maps is no list": _kernel(0, "maps", {}),
    "map of a number": _kernel(0, "maps", [3]),
    "map of nobody": _map(buffer="nobody"),
    "map of another type": _map(dtype="bf17"),
    "map without axes": _map(extents=[], strides=[], box=[]),
    "map of six axes": _map(extents=[8] + [1] * 5, strides=[16] * 5, box=[8] + [1] * 5),
    "map of one box too few": _map(box=[8]),
    "map of one stride too many": _map(strides=[16, 16]),
    "map of nothing": _map(extents=[8, 0]),
    "map of a wide extent": _map(extents=[8, 2**32 + 1]),
    "map beyond its tensor": _map(extents=[8, 6]),
    "map that starts too late": _map(offset=16),
    "map of unaligned strides": _map(strides=[24], extents=[8, 2]),
    "map of negative strides": _map(strides=[-16]),
    "map of unaligned offset": _map(offset=8, extents=[8, 4]),
    "map of a large box": _map(box=[8, 257]),
    "map of an empty box": _map(box=[8, 0]),
    "map of a box of 8 bytes": _map(box=[4, 2]),
    "map of a box wider than its swizzle": _map(box=[32, 2]),
    "swizzle": _map(swizzle=48),
    "swizzle of truth": _map(swizzle=True),
    "too many maps": lambda data: (_map()(data), _kernel(0, "maps", _maps(data) * 31)(data))[1],
    "nothing writes the output": _kernel(1, "arguments", ["h", "eps"]),
}


def _maps(data: Any) -> Any:
    return data["launches"][0]["implementations"][0]["kernels"][0]["maps"]


def _changed(folder: Path, change: Callable[[Any], None]) -> Path:
    path = folder / "manifest.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    return folder


def test_a_map_that_fits_is_read(folder: Path) -> None:
    loaded = load_bundle(_changed(folder, _map(extents=[8, 3], strides=[32], offset=0)))
    (view,) = next(loaded.manifest.launches[0].kernels).maps
    assert view == TensorMap("w", "bf16", (8, 3), (32,), (8, 2), 32, 0)


def test_a_bundle_of_format_1_is_read(folder: Path) -> None:
    """Its launch rows are those of one kernel, without maps and counters."""
    before = load_bundle(folder).manifest

    def older(data: Any) -> None:
        data["format"] = 1
        for row in data["launches"]:
            row.pop("name")
            (way,) = row.pop("implementations")
            row.update(way["kernels"][0])
            del row["maps"], row["counters"]

    after = load_bundle(_changed(folder, older)).manifest
    assert after == before


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_manifest_is_refused(folder: Path, change: Callable[[Any], None]) -> None:
    with pytest.raises(BundleError):
        load_bundle(_changed(folder, change))
