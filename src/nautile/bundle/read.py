"""Bundles from disk: every file is there, is a plain file of the stated size, and is unchanged."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nautile.bundle.manifest import MANIFEST, Manifest, parse
from nautile.errors import BundleError

__all__ = ["Loaded", "digest_of", "json_of", "load_bundle", "read_file"]

MAX_MANIFEST = 64 << 20


@dataclass(frozen=True, slots=True)
class Loaded:
    """A bundle whose files have all been read and checked; `contents` holds them by name."""

    folder: Path
    manifest: Manifest
    contents: Mapping[str, bytes]

    def json(self, name: str) -> Any:
        """The JSON value in a file of the bundle."""
        return json_of(self.contents[name], name)


def load_bundle(folder: Path | str) -> Loaded:
    """Read and check a whole bundle. BundleError names what is missing, damaged, of another
    version, or nothing that this release would have written."""
    root = Path(folder)
    if not root.is_dir():
        raise BundleError(f"no bundle at {root}: not a folder", code="bundle-missing")
    manifest = parse(json_of(read_file(root, MANIFEST, MAX_MANIFEST), MANIFEST))
    contents = {}
    for name, entry in manifest.files.items():
        data = read_file(root, name, entry.bytes)
        if len(data) != entry.bytes or digest_of(data) != entry.digest:
            raise BundleError(f"{name} is not the file that the manifest names: it was changed")
        contents[name] = data
    return Loaded(root, manifest, contents)


def digest_of(data: bytes) -> str:
    """BLAKE2b-128, in hexadecimal."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def read_file(root: Path, name: str, most: int) -> bytes:
    """A plain file's bytes; never through a link, and never more than `most`."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        handle = os.open(root / name, flags)
    except FileNotFoundError:
        raise BundleError(f"{root / name} is missing", code="bundle-missing") from None
    except OSError as error:
        raise BundleError(f"{root / name} cannot be read: {error.strerror}") from error
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise BundleError(f"{root / name} is no plain file")
        if status.st_size > most:
            raise BundleError(f"{root / name} has {status.st_size} bytes; at most {most} expected")
        return file.read(most + 1)


def json_of(data: bytes, name: str) -> Any:
    """The JSON value that bytes hold. BundleError if they hold none."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{name} is not JSON: {error}") from error
