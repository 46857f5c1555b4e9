"""An entry's artifacts as files in a folder of the caller's.

They are copies, not links: a person who edits a bundle must not change what the store holds.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from .entry import Entry, checked_paths
from .faults import translated
from .objects import Objects

__all__ = ["materialize"]


def materialize(objects: Objects, entry: Entry, folder: Path) -> bool:
    """Write all artifacts below `folder`, each at once; False, and none, where one is a miss."""
    checked_paths(entry.artifacts)
    staged: dict[Path, Path] = {}
    with translated(folder):
        try:
            for path, digest in entry.artifacts.items():
                content = objects.read(digest)
                if content is None:
                    return False
                staged[_staged(folder / path, content)] = folder / path
            for name, target in staged.items():
                os.replace(name, target)
        finally:
            for name in staged:
                name.unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    return True


def _staged(target: Path, content: bytes) -> Path:
    """The content in a file beside its target."""
    target.parent.mkdir(parents=True, exist_ok=True)
    name = target.with_name(f".{secrets.token_hex(8)}.part")
    try:
        name.write_bytes(content)
    except BaseException:
        name.unlink(missing_ok=True)
        raise
    return name
