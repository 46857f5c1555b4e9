"""Artifacts by content: a folder in which a file's name is the BLAKE2b-256 of what it holds.

```
FOLDER/store.json                        whose artifacts these are: {"format", "store"}
FOLDER/objects/ab/cdef...                content of digest abcdef..., read-only, never changed
FOLDER/tmp/PID-RANDOM                    a file being written, in the same file system
FOLDER/quarantine/DIGEST.NANOSECONDS     a file whose content did not fit its name
FOLDER/reserve                           room on a full disk, so that `gc` can work on it
```

A content is written to `tmp`, synced, renamed, and its folder synced: a name in `objects` is a
whole file on every crash. Writers of one content race harmlessly, since all of them rename the
same bytes to the same name. 256 folders keep directories short up to millions of files.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO

from nautile.errors import StoreError

from .entry import DIGEST, Blob, digest_of
from .faults import of_system, translated

__all__ = ["Found", "Objects", "sync"]

CHUNK = 1 << 20
RESERVE = 1 << 20
TRIES = 100
LOG = logging.getLogger("nautile.store")


@dataclass(frozen=True, slots=True)
class Found:
    """A file in the folder: its name there, its bytes, and when it was last written or used."""

    name: str
    bytes: int
    changed: float


class Objects:
    """The artifact folder at `root`. A read-only one writes nothing and moves nothing aside."""

    def __init__(self, root: Path, *, read_only: bool = False) -> None:
        self.root, self.read_only = root, read_only
        self.objects, self.temporary = root / "objects", root / "tmp"
        self._inside = str(self.objects)  # a text: paths are made for every artifact of every hit
        self.quarantined = root / "quarantine"

    def create(self) -> None:
        """Make the folders. Raises StoreError where they cannot be made."""
        with translated(self.root):
            for folder in (self.objects, self.temporary, self.quarantined):
                folder.mkdir(parents=True, exist_ok=True)
        self.reserve()

    def reserve(self) -> None:
        """Keep some room on the disk, where there is any."""
        path = self.root / "reserve"
        try:
            if not path.exists():
                path.write_bytes(b"\0" * RESERVE)
        except OSError:
            with suppress(OSError):
                path.unlink()

    def release(self) -> None:
        """Give that room up, for what has to be written so that more can be removed."""
        with translated(self.root):
            (self.root / "reserve").unlink(missing_ok=True)

    def path(self, digest: str) -> Path:
        """Where the content of that digest is, or would be."""
        return Path(self._place(digest))

    def _place(self, digest: str) -> str:
        return f"{self._inside}/{digest[:2]}/{digest[2:]}"

    def add(self, content: bytes | Path) -> Blob:
        """Store a content, or the file at a path; afterwards it is on disk, whole and synced.
        Raises StoreError (`store-full`, `store-permission`, ...) and then leaves nothing behind."""
        with translated(self.root):
            blob = _measured(_pieces(content))
            return blob if self._kept(blob) else self._write(content)

    def holds(self, blob: Blob) -> bool:
        """Whether a file of that name and length is there; `read` tells whether it is whole."""
        try:
            return os.stat(self._place(blob.digest)).st_size == blob.bytes
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise of_system(error, self.root) from error

    def read(self, digest: str) -> bytes | None:
        """The content of that digest, checked; None where it is missing or damaged."""
        if not DIGEST.fullmatch(digest):
            return None
        with translated(self.root):
            try:
                with open(self._place(digest), "rb", buffering=0) as file:
                    content = file.readall()
            except FileNotFoundError:
                return None
        if digest_of(content) == digest:
            return content
        self.set_aside(digest)
        return None

    def whole(self, digest: str) -> bool | None:
        """Whether the file fits its digest; None where there is none. Reads it in pieces."""
        with translated(self.root):
            try:
                return _measured(_pieces(self.path(digest))).digest == digest
            except FileNotFoundError:
                return None

    def set_aside(self, digest: str) -> None:
        """Move a damaged file out of the way, so that it is a miss and can be written again."""
        LOG.warning("artifact %s in %s is damaged", digest, self.root)
        if not self.read_only:
            to = self.quarantined / f"{digest}.{time.time_ns()}"
            with suppress(OSError):  # another process did it, or the disk is read-only by now
                os.replace(self.path(digest), to)

    def remove(self, digest: str) -> None:
        """Remove a content; it may be gone already."""
        with translated(self.root):
            self.path(digest).unlink(missing_ok=True)

    def discard(self, where: str, name: str) -> None:
        """Remove a file of the folder `tmp` or `quarantine`; it may be gone already."""
        with translated(self.root):
            (self.root / where / name).unlink(missing_ok=True)

    def folders(self) -> list[str]:
        """The first two digits of the digests for which there is a folder, sorted."""
        with translated(self.root):
            return sorted(p.name for p in self.objects.iterdir() if p.is_dir())

    def found(self, folder: str) -> Iterator[Found]:
        """The files of one such folder, sorted, by digest (or by name, where it is none)."""
        for file in _files(self.objects / folder):
            yield Found(folder + file.name, file.bytes, file.changed)

    def leftovers(self) -> Iterator[Found]:
        """Files that were being written: by a process that still runs, or that died."""
        return _files(self.temporary)

    def damaged(self) -> Iterator[Found]:
        """Files in quarantine."""
        return _files(self.quarantined)

    def _kept(self, blob: Blob) -> bool:
        """Whether the content is there and whole; then it counts as used now."""
        path = self.path(blob.digest)
        if not (whole := self.whole(blob.digest)):
            if whole is not None:
                self.set_aside(blob.digest)
            return False
        with suppress(FileNotFoundError, PermissionError):  # gone again, or another user's
            os.utime(path)
        sync(path.parent)  # its writer may not have come so far
        return True

    def _write(self, content: bytes | Path) -> Blob:
        for _ in range(TRIES):
            if blob := self._written(content):
                return blob
        raise StoreError(
            f"{self.temporary}: what is being written is removed again and again: "
            "is a collection without grace running?",
            code="store-busy",
        )

    def _written(self, content: bytes | Path) -> Blob | None:
        """Write a file and give it its name; None where it was removed before it had one."""
        name = self.temporary / f"{os.getpid()}-{secrets.token_hex(8)}"
        try:
            with name.open("xb") as file:
                blob = _measured(_pieces(content), file)
                file.flush()
                os.fsync(file.fileno())
                os.fchmod(file.fileno(), os.fstat(file.fileno()).st_mode & 0o444)
            return blob if self._publish(name, self.path(blob.digest)) else None
        finally:
            name.unlink(missing_ok=True)

    def _publish(self, name: Path, path: Path) -> bool:
        with suppress(FileExistsError):
            path.parent.mkdir()
            sync(self.objects)
        try:
            os.replace(name, path)
        except FileNotFoundError:
            return False
        sync(path.parent)
        return True


def _pieces(content: bytes | Path) -> Iterator[bytes]:
    if isinstance(content, bytes):
        yield content
        return
    with content.open("rb") as file:
        while piece := file.read(CHUNK):
            yield piece


def _measured(pieces: Iterator[bytes], copy: BinaryIO | None = None) -> Blob:
    """Digest and length of the pieces, which are written to `copy` on the way."""
    total, size = blake2b(digest_size=32), 0
    for piece in pieces:
        total.update(piece)
        size += len(piece)
        if copy is not None:
            copy.write(piece)
    return Blob(total.hexdigest(), size)


def sync(folder: Path) -> None:
    """What was renamed into the folder survives a loss of power from here on."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _files(folder: Path) -> Iterator[Found]:
    """The files in a folder, sorted; those that vanish meanwhile are left out."""
    try:
        with os.scandir(folder) as listing:
            names = sorted(e.name for e in listing)
    except FileNotFoundError:
        return
    for name in names:
        with suppress(FileNotFoundError):
            stat = (folder / name).lstat()
            yield Found(name, stat.st_size, stat.st_mtime)
