"""Archives: a store comes out of one as it went in; malformed and hostile ones are refused."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nautile.errors import StoreError
from nautile.store import Store
from store.conftest import Place


def fill(store: Store, count: int = 3) -> None:
    for n in range(count):
        artifacts = {"own/k.cu": f"kernel {n}".encode(), "same": b"same"}
        store.put(f"k{n}", {"n": n}, artifacts, ingredients={"term": f"t{n % 2}"})


@pytest.fixture
def archive(sqlite: Place, tmp_path: Path) -> Path:
    """A good archive, of three entries and four artifacts."""
    with sqlite.open(clock=lambda: 77.0) as store:
        fill(store)
        store.export(tmp_path / "good.tar")
    return tmp_path / "good.tar"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store that hostile archives are tried on."""
    with Store.open(tmp_path_factory.mktemp("target") / "store") as store:
        yield store


def test_what_went_in_comes_out(place: Place, archive: Path, tmp_path: Path) -> None:
    with place.open(clock=lambda: 99.0) as store:
        if place.backend == "postgresql":
            found = store.import_(archive)
            assert (found.added, found.kept, found.artifacts) == (3, 0, 4)
        for n in range(3):
            entry = store.get(f"k{n}")
            assert entry is not None
            assert (entry.record, entry.ingredients) == ({"n": n}, {"term": f"t{n % 2}"})
            assert entry.created == 77.0
            assert store.read(entry.artifacts["own/k.cu"]) == f"kernel {n}".encode()
        again = store.export(tmp_path / "again.tar")
        assert (again.entries, again.artifacts, again.skipped) == (3, 4, ())
        assert store.verify().problems == ()
    assert (tmp_path / "again.tar").read_bytes() == archive.read_bytes()


def test_keys_that_are_there_stay_unless_they_are_to_be_replaced(
    archive: Path, tmp_path: Path
) -> None:
    with Store.open(tmp_path / "other") as store:
        store.put("k1", {"n": "mine"})
        found = store.import_(archive)
        assert (found.added, found.kept) == (2, 1)
        entry = store.get("k1")
        assert entry is not None
        assert entry.record == {"n": "mine"}
        assert store.import_(archive, replace=True).added == 3
        entry = store.get("k1")
        assert entry is not None
        assert entry.record == {"n": 1}


def test_a_part_is_exported_by_its_keys(sqlite: Place, tmp_path: Path) -> None:
    with sqlite.open() as store:
        fill(store)
        found = store.export(tmp_path / "part.tar", ["k1", "unknown"])
    assert (found.entries, found.artifacts) == (1, 2)
    with tarfile.open(tmp_path / "part.tar") as tar:
        assert len(tar.getnames()) == 5


def test_damaged_entries_are_left_out_and_named(sqlite: Place, tmp_path: Path) -> None:
    with sqlite.open() as store:
        fill(store)
        entry = store.get("k1")
        assert entry is not None
        sqlite.object(entry.artifacts["own/k.cu"]).unlink()
        found = store.export(tmp_path / "a.tar")
        assert (found.entries, found.skipped) == (2, ("k1",))
        assert store.import_(tmp_path / "a.tar").kept == 2


def test_an_export_that_fails_leaves_the_old_file(sqlite: Place, tmp_path: Path) -> None:
    (tmp_path / "old.tar").write_text("old")
    with sqlite.open() as store:
        fill(store)
        store.database.engine.dispose()
        (sqlite.artifacts / "store.db").write_bytes(b"no database" * 100)
        with pytest.raises(StoreError):
            store.export(tmp_path / "old.tar")
    assert (tmp_path / "old.tar").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir() if p.name.endswith(".part")] == []


Member = tuple[tarfile.TarInfo, bytes]


def members(archive: Path) -> list[Member]:
    with tarfile.open(archive) as tar:
        return [(i, f.read()) for i in tar if (f := tar.extractfile(i)) is not None]


def write(path: Path, found: list[Member]) -> Path:
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for info, content in found:
            info.size = len(content) if info.isreg() else info.size
            tar.addfile(info, io.BytesIO(content))
    return path


def member(name: str, content: bytes = b"", **changes: Any) -> Member:
    info = tarfile.TarInfo(name)
    for key, value in changes.items():
        setattr(info, key, value)
    return info, content


def entry(**changes: Any) -> bytes:
    """An entry member with a right checksum, computed here, after these changes."""
    value: dict[str, Any] = {
        "key": "evil",
        "record": "{}",
        "ingredients": "{}",
        "files": "{}",
        "created": 1.0,
    }
    value |= changes
    total = blake2b(digest_size=32)
    for name in ("key", "record", "ingredients", "files"):
        raw = str(value[name]).encode()
        total.update(len(raw).to_bytes(8, "big") + raw)
    return json.dumps({"checksum": total.hexdigest()} | value).encode()


KNOWN = blake2b(b"known", digest_size=32).hexdigest()
HEAD = b'{"format":"nautile-store-archive","version":1}'


def with_files(files: Any) -> bytes:
    return entry(files=json.dumps(files))


HOSTILE: dict[str, list[Member]] = {
    "climbs out": [member("../../etc/cron.d/evil", b"x")],
    "absolute": [member("/etc/passwd", b"x")],
    "climbs out of objects": [member("objects/../../x", b"x")],
    "unknown name": [member("readme.txt", b"x")],
    "symbolic link": [member("objects/" + KNOWN, type=tarfile.SYMTYPE, linkname="/etc/passwd")],
    "hard link": [member("objects/" + KNOWN, type=tarfile.LNKTYPE, linkname="/etc/passwd")],
    "device": [member("objects/" + KNOWN, type=tarfile.CHRTYPE, devmajor=1, devminor=5)],
    "pipe": [member("objects/" + KNOWN, type=tarfile.FIFOTYPE)],
    "folder": [member("objects/" + KNOWN, type=tarfile.DIRTYPE)],
    "sparse file": [member("objects/" + KNOWN, type=tarfile.GNUTYPE_SPARSE)],
    "extended header": [member("objects/" + KNOWN, b"known", pax_headers={"path": "/etc/x"})],
    "long name": [member("objects/" + "a" * 300, b"x")],
    "wrong digest": [member("objects/" + KNOWN, b"not what it says")],
    "artifact twice": [member("objects/" + KNOWN, b"known"), member("objects/" + KNOWN, b"known")],
    "manifest twice": [member("manifest.json", HEAD)],
    "not JSON": [member("entries/00000001.json", b"{")],
    "deep JSON": [member("entries/00000001.json", b"[" * 100_000)],
    "JSON array": [member("entries/00000001.json", b"[]")],
    "not text": [member("entries/00000001.json", b"\xff\xfe{}")],
    "wrong number": [member("entries/00000002.json", entry())],
    "lacks fields": [member("entries/00000001.json", b'{"key": "evil"}')],
    "wrong checksum": [member("entries/00000001.json", entry(checksum="0" * 64))],
    "wrong types": [member("entries/00000001.json", entry(record={}))],
    "no time": [member("entries/00000001.json", entry(created=float("nan")))],
    "bad key": [member("entries/00000001.json", entry(key="../evil"))],
    "record no object": [member("entries/00000001.json", entry(record="[]"))],
    "bad path": [
        member("objects/" + KNOWN, b"known"),
        member("entries/00000001.json", with_files({"../../evil": [KNOWN, 5]})),
    ],
    "file and folder": [
        member("objects/" + KNOWN, b"known"),
        member("entries/00000001.json", with_files({"a": [KNOWN, 5], "a/b": [KNOWN, 5]})),
    ],
    "wrong length": [
        member("objects/" + KNOWN, b"known"),
        member("entries/00000001.json", with_files({"a": [KNOWN, 6]})),
    ],
    "artifact not in the file": [
        member("entries/00000001.json", with_files({"a": [KNOWN[::-1], 5]}))
    ],
    "odd digests": [member("entries/00000001.json", with_files({"a": ["../" + KNOWN, 5]}))],
    "odd files": [member("entries/00000001.json", with_files({"a": 7}))],
    "key twice": [
        member("entries/00000001.json", entry(key="twice")),
        member("entries/00000002.json", entry(key="twice")),
    ],
    "wrong counts": [member("end.json", b'{"entries":9,"artifacts":0,"bytes":0}')],
    "more after the end": [
        member("end.json", b'{"entries":0,"artifacts":0,"bytes":0}'),
        member("entries/00000001.json", entry()),
    ],
    "no end": [],
}


REASONS = {
    "climbs out": "has no place",
    "symbolic link": "has no place",
    "device": "has no place",
    "sparse file": "has no place",
    "extended header": "has no place",
    "wrong digest": "another content than its name",
    "artifact twice": "there twice",
    "manifest twice": "out of order",
    "deep JSON": "not JSON",
    "JSON array": "not a JSON object",
    "wrong number": "where entry 1 is expected",
    "lacks fields": "lacks a field",
    "wrong checksum": "fit its checksum",
    "no time": "lacks a field",
    "bad key": "not a key",
    "bad path": "not the path of an artifact",
    "file and folder": "the folder of",
    "wrong length": "needs an artifact that is not in the file",
    "artifact not in the file": "needs an artifact that is not in the file",
    "odd digests": "needs an artifact that is not in the file",
    "key twice": "repeats the key twice",
    "wrong counts": "it should hold",
    "more after the end": "out of order",
    "no end": "ends too early",
    "absolute": "has no place",
    "climbs out of objects": "has no place",
    "unknown name": "has no place",
    "hard link": "has no place",
    "pipe": "has no place",
    "folder": "has no place",
    "long name": "has no place",
    "not JSON": "is not JSON",
    "not text": "is not JSON",
    "wrong types": "lacks a field",
    "record no object": "is not a JSON object",
    "odd files": "needs an artifact that is not in the file",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_archives_are_refused(target: Store, tmp_path: Path, case: str) -> None:
    path = write(tmp_path / "evil.tar", [member("manifest.json", HEAD), *HOSTILE[case]])
    before = outside(target, tmp_path.parent)
    with pytest.raises(StoreError, match=REASONS[case]) as error:
        target.import_(path)
    assert error.value.code in ("store-archive", "store-usage")
    assert target.peek("evil") is None
    assert outside(target, tmp_path.parent) == before


def outside(store: Store, folder: Path) -> list[Path]:
    """All files but the store's artifacts: those that came before the refusal may stay there."""
    own = store.objects.objects
    return sorted(p for p in folder.rglob("*") if own not in p.parents)


@pytest.mark.parametrize(
    "manifest",
    [b"{}", b"", b'{"format":"nautile-store-archive","version":2}', b'{"format":"zip"}'],
)
def test_other_formats_are_refused(target: Store, tmp_path: Path, manifest: bytes) -> None:
    path = write(tmp_path / "a.tar", [member("manifest.json", manifest)])
    with pytest.raises(StoreError) as error:
        target.import_(path)
    assert error.value.code == "store-archive"


@pytest.mark.parametrize("content", [b"", b"text", b"\0" * 20_000, os.urandom(5000), b"PK\3\4"])
def test_files_that_are_no_archives_are_refused(
    target: Store, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "a.tar").write_bytes(content)
    with pytest.raises(StoreError) as error:
        target.import_(tmp_path / "a.tar")
    assert error.value.code == "store-archive"


def test_a_compressed_archive_is_refused(target: Store, archive: Path, tmp_path: Path) -> None:
    import gzip

    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(archive.read_bytes()))
    with pytest.raises(StoreError) as error:
        target.import_(tmp_path / "a.tar.gz")
    assert error.value.code == "store-archive"


def test_a_header_that_claims_a_huge_length_costs_nothing(target: Store, tmp_path: Path) -> None:
    info = tarfile.TarInfo("objects/" + KNOWN)
    info.size = 3 << 30
    head, _ = member("manifest.json", HEAD)
    head.size = len(HEAD)
    blocks = head.tobuf() + HEAD.ljust(512, b"\0") + info.tobuf() + b"short"
    (tmp_path / "a.tar").write_bytes(blocks)
    with pytest.raises(StoreError) as error:
        target.import_(tmp_path / "a.tar")
    assert error.value.code == "store-archive"


def test_every_cut_is_noticed_and_what_came_before_it_is_whole(
    archive: Path, tmp_path: Path
) -> None:
    whole = archive.read_bytes()
    end = len(whole.rstrip(b"\0"))
    with Store.open(tmp_path / "other") as store:
        for cut in range(0, end, 512):
            (tmp_path / "cut.tar").write_bytes(whole[:cut])
            with pytest.raises(StoreError) as error:
                store.import_(tmp_path / "cut.tar")
            assert error.value.code == "store-archive"
            assert all(store.get(key) is not None for key in list(store.keys()))
        found = store.import_(archive)
        assert found.added + found.kept == 3
        assert store.verify().problems == ()


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_flips_in_an_archive_are_refused_or_harmless(
    target: Store, archive: Path, tmp_path: Path, data: st.DataObject
) -> None:
    """A flip either is refused, or was in a part that says nothing (padding, times, owners)."""
    content = bytearray(archive.read_bytes())
    at = data.draw(st.integers(0, len(content.rstrip(b"\0")) * 8 - 1))
    content[at // 8] ^= 1 << at % 8
    (tmp_path / "flipped.tar").write_bytes(content)
    with suppress(StoreError):
        target.import_(tmp_path / "flipped.tar", replace=True)
    for key in list(target.keys()):
        entry = target.get(key)
        if entry is not None and key.startswith("k"):
            n = entry.record["n"]
            assert key == f"k{n}"
            assert target.read(entry.artifacts["own/k.cu"]) == f"kernel {n}".encode()
