"""A store, or a part of it, as one file: a plain tar archive that other tools can list, too.

```
manifest.json              {"format": "nautile-store-archive", "version": 1}
objects/DIGEST             an artifact, before the first entry that needs it
entries/NNNNNNNN.json      {"key", "record", "ingredients", "files", "created", "checksum"}
end.json                   {"entries", "artifacts", "bytes"}: without it the file was cut off
```

Equal contents give equal archives. Reading trusts nothing: only regular members of these names,
in this order, each once; digests and checksums are computed; lengths are limited before they are
read. It is not compressed, so that no member is longer than the file itself. Entries are added one
by one, each whole: a file that turns out malformed half-way leaves what came before it, and can be
imported again. One thing cannot be checked: that records and kernels are what Nautile made of the
program. Import archives of people whose programs you would run.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
import secrets
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from nautile.errors import StoreError

from . import rows
from .database import Database
from .entry import DIGEST, Blob, Draft, checked_paths, checksum, decode, digest_of
from .faults import translated
from .objects import Objects
from .reports import Exported, Imported

if TYPE_CHECKING:
    from .store import Store

__all__ = ["export", "import_"]

FORMAT, VERSION = "nautile-store-archive", 1
LARGEST_ENTRY = 256 << 20  # bytes of one JSON member
LARGEST_ARTIFACT = 4 << 30
NAME = re.compile(r"manifest\.json|end\.json|objects/[0-9a-f]{64}|entries/[0-9]{8,12}\.json")


def export(
    database: Database, objects: Objects, path: Path, keys: Iterable[str] | None = None
) -> Exported:
    """Write the entries to `path`, all at once: a file there is replaced when the new one is whole.
    Entries that are damaged are left out and named."""
    with translated(path), _replacing(path) as file:
        with tarfile.open(fileobj=file, mode="w|", format=tarfile.USTAR_FORMAT) as tar:
            out = _Out(tar, objects)
            out.json("manifest.json", {"format": FORMAT, "version": VERSION})
            with database.reading(snapshot=True) as connection:
                for row in rows.stream(connection, keys):
                    out.entry(row)
            out.end()
        return Exported(out.entries, len(out.written), out.volume, tuple(out.skipped))


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    name = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}.part")
    try:
        with name.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    finally:
        name.unlink(missing_ok=True)


@dataclass(slots=True)
class _Out:
    """The archive being written. `written` are the artifacts in it, by their raw digests."""

    tar: tarfile.TarFile
    objects: Objects
    entries: int = 0
    volume: int = 0
    written: set[bytes] = field(default_factory=set)
    skipped: list[str] = field(default_factory=list)

    def entry(self, row: dict[str, Any]) -> None:
        """Write a row, after its artifacts; where one of them is missing, tell its key."""
        entry = decode(row)
        if entry is None or not all(map(self._artifact, entry.blobs.values())):
            self.skipped.append(row["key"])
            return
        fields = ("key", "record", "ingredients", "files", "created", "checksum")
        self.entries += 1
        self.json(f"entries/{self.entries:08}.json", {name: row[name] for name in fields})

    def _artifact(self, blob: Blob) -> bool:
        raw = bytes.fromhex(blob.digest)
        if raw in self.written:
            return True
        content = self.objects.read(blob.digest)
        if content is None or len(content) != blob.bytes:
            return False
        self._member(f"objects/{blob.digest}", content)
        self.written.add(raw)
        self.volume += blob.bytes
        return True

    def end(self) -> None:
        """Write the member that tells that nothing is missing."""
        counts = {"entries": self.entries, "artifacts": len(self.written), "bytes": self.volume}
        self.json("end.json", counts)

    def json(self, name: str, value: dict[str, Any]) -> None:
        """Write a member of JSON."""
        self._member(name, json.dumps(value, separators=(",", ":")).encode())

    def _member(self, name: str, content: bytes) -> None:
        info = tarfile.TarInfo(name)
        info.size, info.mode = len(content), 0o644
        self.tar.addfile(info, io.BytesIO(content))
        _forget(self.tar)


class _Regular(tarfile.TarInfo):
    """A member that is a plain file of a known name and a sane length. It is looked at before
    tarfile acts on it: links, devices, sparse files and headers of unbounded length go no further.
    """

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        info = super().frombuf(buf, encoding, errors)
        plain = info.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and NAME.fullmatch(info.name)
        if not plain:
            raise _malformed(f"member {info.name!r:.80} has no place in it")
        most = LARGEST_ARTIFACT if info.name.startswith("objects/") else LARGEST_ENTRY
        if not 0 <= info.size <= most:
            raise _malformed(f"member {info.name} has {info.size} bytes; at most {most} may be")
        return info


def import_(store: Store, path: Path, replace: bool) -> Imported:
    """Add the entries of the archive at `path`; see `Store.import_`."""
    with translated(path), path.open("rb") as file:
        try:
            with tarfile.open(fileobj=file, mode="r:", tarinfo=_Regular) as tar:
                return _In(store, replace).run(tar)
        except (tarfile.TarError, EOFError, UnicodeError) as error:
            raise _malformed(f"{error}", path) from error
        except StoreError as error:
            if error.code != "store-archive":
                raise
            raise StoreError(f"{path}: {error.message}", code=error.code) from error


@dataclass(slots=True)
class _In:
    """The archive being read. `artifacts` are those that came, with their lengths."""

    store: Store
    replace: bool
    artifacts: dict[bytes, int] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)
    entries: int = 0
    added: int = 0
    volume: int = 0
    ended: bool = False

    def run(self, tar: tarfile.TarFile) -> Imported:
        """Read every member, in order."""
        for number, info in enumerate(iter(tar.next, None)):
            _forget(tar)
            if (info.name == "manifest.json") != (number == 0) or self.ended:
                raise _malformed(f"member {info.name} is out of order")
            self._member(tar, info)
        if not self.ended:
            raise _malformed(f"the file ends too early, after {self.entries} entries")
        return Imported(self.added, self.entries - self.added, len(self.artifacts))

    def _member(self, tar: tarfile.TarFile, info: tarfile.TarInfo) -> None:
        source = tar.extractfile(info)
        content = source.read() if source else b""
        if len(content) != info.size:
            raise _malformed(f"member {info.name} is cut off")
        if info.name.startswith("objects/"):
            self._artifact(info.name.removeprefix("objects/"), content)
        elif info.name == "manifest.json":
            _checked_manifest(_object(info.name, content))
        elif info.name == "end.json":
            self._end(_object(info.name, content))
        else:
            self._entry(info.name, _object(info.name, content))

    def _artifact(self, digest: str, content: bytes) -> None:
        raw = bytes.fromhex(digest)
        if raw in self.artifacts:
            raise _malformed(f"artifact {digest} is there twice")
        if digest_of(content) != digest:
            raise _malformed(f"artifact {digest} has another content than its name says")
        self.store.objects.add(content)
        self.artifacts[raw] = len(content)
        self.volume += len(content)

    def _entry(self, name: str, value: dict[str, Any]) -> None:
        self.entries += 1
        if name != f"entries/{self.entries:08}.json":
            raise _malformed(f"{name} comes where entry {self.entries} is expected")
        draft, created = self._draft(name, value)
        there = None if self.replace else self.store.peek(draft.key)
        if there is None:
            if self.store.keep(draft, replace=self.replace, created=created) is None:
                raise StoreError(f"artifacts of {draft.key} were removed", code="store-busy")
            self.added += 1

    def _draft(self, name: str, value: dict[str, Any]) -> tuple[Draft, float]:
        """The entry that a member describes. Raises StoreError where it is none."""
        fields = [value.get(f) for f in ("key", "record", "ingredients", "files")]
        texts = [f for f in fields if isinstance(f, str)]
        created = value.get("created")
        if len(texts) < 4 or not isinstance(created, int | float) or not math.isfinite(created):
            raise _malformed(f"{name} lacks a field")
        if value.get("checksum") != checksum(*texts):
            raise _malformed(f"{name} does not fit its checksum")
        key = texts[0]
        if key in self.keys:
            raise _malformed(f"{name} repeats the key {key:.80}")
        self.keys.add(key)
        record, ingredients, files = (_object(name, t.encode()) for t in texts[1:])
        return Draft.of(key, record, ingredients, self._blobs(name, files)), float(created)

    def _blobs(self, name: str, files: dict[str, Any]) -> dict[str, Blob]:
        blobs: dict[str, Blob] = {}
        for path, pair in files.items():
            digest, size = pair if isinstance(pair, list) and len(pair) == 2 else ("", 0)
            known = isinstance(digest, str) and DIGEST.fullmatch(digest)
            if not known or self.artifacts.get(bytes.fromhex(digest)) != size:
                raise _malformed(f"{name} needs an artifact that is not in the file: {path!r:.80}")
            blobs[path] = Blob(digest, size)
        checked_paths(blobs)
        return blobs

    def _end(self, value: dict[str, Any]) -> None:
        counts = {"entries": self.entries, "artifacts": len(self.artifacts), "bytes": self.volume}
        if value != counts:
            raise _malformed(f"it should hold {value}, and holds {counts}")
        self.ended = True


def _forget(tar: tarfile.TarFile) -> None:
    """The members so far: tarfile remembers them all, and memory would grow with the store."""
    members: list[tarfile.TarInfo] = vars(tar)["members"]
    members.clear()


def _checked_manifest(value: dict[str, Any]) -> None:
    if value.get("format") != FORMAT:
        raise _malformed("it is no archive of a store")
    if value.get("version") != VERSION:
        found = f"{value.get('version')!r:.20}"
        raise _malformed(f"it has version {found}, this release reads {VERSION}")


def _object(name: str, content: bytes) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _malformed(f"{name} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise _malformed(f"{name} is not a JSON object")
    return value


def _malformed(text: str, path: object = "") -> StoreError:
    return StoreError(f"{path}: {text}" if path else text, code="store-archive")
