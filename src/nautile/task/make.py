"""From texts to tasks: programs are read here, and never again by whoever only compares keys."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from nautile import lang
from nautile.errors import InputError, NautileError, SourceError
from nautile.provenance import ingredients, key_of
from nautile.task.model import Limits, Names, Pack, Settings, Task
from nautile.terms import Program

__all__ = ["ingredients_of", "names_of", "pack_of", "packs_on_disk", "tasks_of"]


def tasks_of(
    text: str,
    settings: Settings | None = None,
    *,
    filename: str = "<text>",
    dims: Mapping[str, int] | None = None,
    limits: Limits | None = None,
) -> tuple[Task, ...]:
    """The tasks of a text, one a program, in order.

    Raises SourceError or LimitError for a malformed text, InputError for settings that name what
    there is not.
    """
    asked, wanted = settings or Settings(), dict(dims or {})
    return tuple(
        _task(program, text, filename, wanted, asked, limits or Limits())
        for program in lang.parse(text, filename, wanted)
    )


def _task(
    program: Program,
    text: str,
    filename: str,
    dims: dict[str, int],
    settings: Settings,
    limits: Limits,
) -> Task:
    found = ingredients_of(lang.key(program), settings)
    return Task(
        text=text,
        program=program.name,
        filename=filename,
        key=key_of(found),
        names=names_of(program),
        ingredients=found,
        dims=dims,
        settings=settings,
        limits=limits,
    )


def names_of(program: Program) -> Names:
    """The program's own names, in canonical order."""
    return Names(program.name, *lang.spelling(program))


def ingredients_of(program_key: str, settings: Settings) -> dict[str, str]:
    """What the result of a program (its `lang.key`) under the settings depends on."""
    return {**_shared(settings), "term": program_key}


@lru_cache(maxsize=64)
def _shared(settings: Settings) -> dict[str, str]:
    """The ingredients that all programs share under the settings."""
    with packs_on_disk(settings.rules) as rules:
        return ingredients("", settings.options(rules))


def pack_of(name: str) -> Pack:
    """A shipped pack by name, or a user's file by its contents.

    Raises InputError where it is neither, LimitError where it is too long.
    """
    from nautile.rules.library import packs
    from nautile.rules.parser import BYTES

    if name in packs():
        return Pack(name)
    path = Path(name)
    try:
        with path.open("rb") as file:
            data = file.read(BYTES + 1)
        text = data.decode("utf-8")
    except (OSError, ValueError) as error:
        message = f"no rule pack {name}: it is no shipped one ({', '.join(packs())}), nor a file"
        raise InputError(f"{message} that can be read ({error})", code="pack") from None
    if len(data) > BYTES:
        raise InputError(f"{name}: a pack of rules may hold {BYTES} bytes", code="limit")
    return Pack(path.name, text)


@contextmanager
def packs_on_disk(packs: tuple[Pack, ...]) -> Iterator[tuple[str, ...]]:
    """The packs as the rule library takes them: shipped names, and files (of no longer life than
    this) for texts, called as the user called them."""
    with tempfile.TemporaryDirectory(prefix="nautile-rules-") as folder:
        try:
            yield tuple(
                pack.name if pack.text is None else str(_written(Path(folder) / str(n), pack))
                for n, pack in enumerate(packs)
            )
        except NautileError as error:
            raise _as_given(error, folder) from None


def _as_given(error: NautileError, folder: str) -> NautileError:
    """The error with the packs called as the user called them."""
    folders = re.compile(re.escape(folder) + r"/\d+/")
    error.message = folders.sub("", error.message)
    error.args = (error.message,)
    if isinstance(error, SourceError):
        error.filename = folders.sub("", error.filename)
    return error


def _written(folder: Path, pack: Pack) -> Path:
    name = Path(pack.name).name
    if not name.removesuffix(".nau") or name.startswith(".") or "\0" in name:
        raise InputError(f"a pack of rules cannot be called {pack.name!r}", code="pack")
    folder.mkdir()
    path = folder / name
    path.write_text(pack.text or "", encoding="utf-8")
    return path
