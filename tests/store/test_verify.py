"""`verify` finds every fault that is put in, and no other; `repair` makes the store whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text

from nautile.store import Store
from store.conftest import Place


def harm(path: Path, bit: int) -> None:
    """Flip one bit of a file."""
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.chmod(0o644)
    path.write_bytes(content)


def test_a_sound_store_has_no_problems(place: Place) -> None:
    with place.open() as store:
        for n in range(5):
            store.put(f"k{n}", {"n": n}, {"own": bytes([n]), "same": b"same"})
        found = store.verify()
    assert (found.entries, found.artifacts, found.bytes) == (5, 6, 9)
    assert (found.problems, found.sound) == ((), True)


@pytest.mark.parametrize("repair", [False, True])
def test_every_fault_is_found_and_repaired(place: Place, repair: bool) -> None:
    with place.open() as store:
        good = store.put("good", {}, {"a": b"fine"})
        flipped = store.put("flipped", {}, {"a": b"to be flipped"})
        missing = store.put("missing", {}, {"a": b"to be lost"})
        store.put("also", {}, {"b": b"to be lost"})
        store.put("row", {"n": 1})
        store.put("links", {}, {"a": b"fine"})
        harm(place.object(flipped.artifacts["a"]), 21)
        place.object(missing.artifacts["a"]).unlink()
        change = "UPDATE store_entries SET record = '{}' || ' ' WHERE key = 'row'"
        store.transact(lambda c: c.execute(text(change)))
        store.transact(lambda c: c.execute(text("DELETE FROM store_links WHERE key = 'links'")))
        orphan = store.objects.add(b"of nobody").digest
        (place.artifacts / "objects" / orphan[:2] / "README").write_text("what is this")
        (place.artifacts / "tmp" / "1-half").write_text("half")

        found = store.verify(repair)
        kinds = {(p.kind, p.name): p for p in found.problems}
        assert {(p.kind, p.name) for p in found.problems if p.kind != "quarantined"} == {
            ("damaged", flipped.artifacts["a"]),
            ("missing", missing.artifacts["a"]),
            ("row", "row"),
            ("links", "links"),
            ("orphan", orphan),
            ("foreign", orphan[:2] + "README"),
            ("leftover", "1-half"),
        }
        assert kinds["missing", missing.artifacts["a"]].keys == ("also", "missing")
        assert found.sound is repair
        if repair:
            assert list(store.keys()) == ["good"]
            assert store.get("good") == good
            assert [p.kind for p in store.verify().problems if p.bad] == []
            assert store.put("flipped", {}, {"a": b"to be flipped"}) is not None
        else:
            assert len(list(store.keys())) == 6


def test_flips_anywhere_in_an_artifact_are_found(sqlite: Place) -> None:
    """Every bit of a small artifact, one after the other."""
    with sqlite.open() as store:
        content = b"\x00\xffA"
        digest = store.put("k", {}, {"a": content}).artifacts["a"]
        path = sqlite.object(digest)
        for bit in range(len(content) * 8):
            path.chmod(0o644)
            harm(path, bit)
            assert [p.kind for p in store.verify().problems if p.bad] == ["damaged"]
            assert store.read(digest) is None
            store.objects.add(content)
            assert store.read(digest) == content


def test_a_damaged_page_of_the_database_is_found(sqlite: Place) -> None:
    with sqlite.open() as store:
        for n in range(200):
            store.put(f"k{n:03}", {"n": n, "x": "y" * 50})
    path = sqlite.artifacts / "store.db"
    content = bytearray(path.read_bytes())
    page = content.index(b'"x":"yyyy') // 4096 * 4096
    content[page : page + 8] = b"\xa5" * 8  # the header of a page of records
    path.write_bytes(content)
    with Store.open(sqlite.artifacts, read_only=True) as store:
        found = store.verify()
    assert not found.sound
    assert {p.kind for p in found.problems if p.bad} <= {"database", "row"}
