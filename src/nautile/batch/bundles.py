"""Bundles of a batch: below OUT/bundles, one folder a program, each under its program's own names.

A folder is made aside and renamed, as single bundles are, so it is whole or not there. It holds
copies: what a person changes there changes nothing in the store.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from nautile.batch.inputs import file_name
from nautile.errors import InputError

__all__ = ["FOLDER", "place_of", "write"]

FOLDER = "bundles"


def place_of(label: str, program: str) -> str:
    """Where a program's bundle lies below OUT."""
    return f"{FOLDER}/{label}/{file_name(program)}"


def write(folder: Path, names: Mapping[str, Callable[[], bytes]]) -> None:
    """Make the folder of these files (contents by name), in place of what was there.

    Raises InputError where the disk refuses; what was there then stays.
    """
    aside = folder.with_name(f".{secrets.token_hex(8)}")
    try:
        aside.mkdir(parents=True)
        try:
            _fill(str(aside), names)
            _swap(aside, folder)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        message = f"{folder} cannot be written: {error.strerror or error}"
        raise InputError(message, code="unwritable-output") from error


def _fill(folder: str, names: Mapping[str, Callable[[], bytes]]) -> None:
    """Write the files. Paths are texts here: a batch of known results does little else."""
    made = {folder}
    for name, content in names.items():
        path = f"{folder}/{name}"
        above = os.path.dirname(path)
        if above not in made:
            os.makedirs(above, exist_ok=True)
            made.add(above)
        with open(path, "wb") as file:
            file.write(content())


def _swap(aside: Path, folder: Path) -> None:
    with suppress(FileNotFoundError):
        old = folder.with_name(f"{aside.name}.old")
        os.rename(folder, old)
        shutil.rmtree(old, ignore_errors=True)
    os.rename(aside, folder)
