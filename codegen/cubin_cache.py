"""A content-addressed cache of compiled kernels on disk.

One file an entry: a line of JSON (format, the digest of the cubin, the compiler's log), then the
cubin. The key is a digest of everything that decides the result, so an entry is never stale; files
are written aside and renamed, so that processes may share a folder; an entry that fails its own
digest is a miss. A cache that cannot be read or written is no error: it is only slower.

The folder is `$NAUTILE_CACHE/cubins` where that variable is set (`off` turns the cache off), else
`$XDG_CACHE_HOME/nautile/cubins`, else `~/.cache/nautile/cubins`.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path

__all__ = ["default_folder", "get", "key_of", "put"]

_FORMAT = 1


def default_folder() -> Path | None:
    """Where entries lie, or None when the cache is off."""
    chosen = os.environ.get("NAUTILE_CACHE", "")
    if chosen.lower() == "off":
        return None
    if chosen:
        return Path(chosen).expanduser() / "cubins"
    home = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(home) if os.path.isabs(home) else Path(os.path.expanduser("~")) / ".cache"
    return root / "nautile" / "cubins"


def key_of(*parts: str) -> str:
    """The digest of all that decides a compilation; lengths are hashed too, so that parts cannot
    run into one another."""
    h = hashlib.blake2b(digest_size=20)
    for part in parts:
        data = part.encode()
        h.update(f"{len(data)}:".encode() + data)
    return h.hexdigest()


def get(folder: Path | None, key: str) -> tuple[bytes, str] | None:
    """The cubin and the compiler's log of an entry, or None."""
    if folder is None:
        return None
    try:
        head, _, cubin = _path(folder, key).read_bytes().partition(b"\n")
        entry = json.loads(head)
    except (OSError, ValueError):
        return None
    if not isinstance(entry, dict) or entry.get("format") != _FORMAT:
        return None
    log = entry.get("log")
    intact = entry.get("digest") == _digest(cubin, log) if isinstance(log, str) else False
    return (cubin, log) if intact and isinstance(log, str) else None


def put(folder: Path | None, key: str, cubin: bytes, log: str) -> None:
    """Keep a compilation; silently nothing where the folder cannot be written."""
    if folder is None:
        return
    head = json.dumps({"format": _FORMAT, "digest": _digest(cubin, log), "log": log}).encode()
    path = _path(folder, key)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, head + b"\n" + cubin)
    except OSError:
        return


def _replace(path: Path, data: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".tmp-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _path(folder: Path, key: str) -> Path:
    return folder / key[:2] / f"{key[2:]}.cubin"


def _digest(cubin: bytes, log: str) -> str:
    return hashlib.blake2b(log.encode() + b"\0" + cubin, digest_size=20).hexdigest()
