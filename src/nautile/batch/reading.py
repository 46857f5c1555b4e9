"""A file to the programs that it holds: parsed, or known from its contents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from nautile import lang
from nautile.batch.inputs import File
from nautile.batch.known import Known, Read
from nautile.errors import ExecutionError, InputError, NautileError
from nautile.lang.limits import read
from nautile.lang.source import Source
from nautile.provenance import code_version
from nautile.task.make import names_of

__all__ = ["Reader", "Text"]


@dataclass(frozen=True, slots=True)
class Text:
    """A file as it was read: its text and the digest of that, the sizes that apply to it, and its
    programs, or the error that it is."""

    file: File
    text: str
    digest: str
    dims: dict[str, int]
    programs: tuple[Read, ...] = ()
    error: NautileError | None = None


class Reader:
    """Reads files one after the other. `dims` apply to the programs that have such sizes; `unused`
    are those that no file has had so far."""

    def __init__(self, known: Known, dims: Mapping[str, int]) -> None:
        self._known, self._dims = known, dict(dims)
        self.unused = set(dims)

    def read(self, file: File) -> Text:
        """The file's programs; never raises for what is in the file."""
        if file.error is not None:
            return Text(file, "", "", {}, error=file.error)
        try:
            text = _read(file)
        except NautileError as error:
            return Text(file, "", "", {}, error=error)
        digest = blake2b(text.encode(), digest_size=16).hexdigest()
        try:
            dims = self._dims and self._applicable(text)
            return Text(file, text, digest, dims, self._programs(file, text, dims))
        except NautileError as error:
            return Text(file, text, digest, {}, error=error)
        except Exception as error:  # a defect of the parser's costs one file
            said = f"{file.shown}: {type(error).__name__}: {error}"[:2000]
            return Text(file, text, digest, {}, error=ExecutionError(said, code="internal"))

    def _programs(self, file: File, text: str, dims: Mapping[str, int]) -> tuple[Read, ...]:
        mark = _mark(text, dims)
        found = self._known.get(mark)
        if found is None:
            programs = lang.parse(text, file.shown, dims)
            found = tuple(Read(lang.key(p), names_of(p)) for p in programs)
            self._known.put(mark, found)
        return found

    def _applicable(self, text: str) -> dict[str, int]:
        """The sizes among `dims` that programs of the text have. A malformed text has none, and is
        told of when it is parsed."""
        from nautile.lang.module import read_module

        try:
            programs = read_module(Source(text, "<text>"), None).programs.values()
        except InputError:
            return {}
        declared = {size for signature in programs for size in signature.sizes}
        self.unused -= declared
        return {name: value for name, value in self._dims.items() if name in declared}


def _read(file: File) -> str:
    """The text of a file. A pipe or a device, which may never end or never begin, is none."""
    path = Path(file.path)
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise InputError(f"{file.shown}: is no plain file", code="not-a-file")
    return read(path)


def _mark(text: str, dims: Mapping[str, int]) -> bytes:
    """What the programs of a text depend on."""
    parts = (code_version(), repr(sorted(dims.items())), text)
    whole = "".join(f"{len(part)}:{part}" for part in parts)
    return blake2b(whole.encode(), digest_size=20).digest()
