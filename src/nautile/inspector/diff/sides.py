"""One run as it is compared: what was asked, what was chosen.

```
Side   ::= label, origin (live | json | bundle), program, key, settings, kernels, results, figures
Kernel ::= name, stored tensors, tensors read, schedule, predicted work, rules, terms
```

What a source does not tell is None (a bundle knows no seconds, a JSON object of an older release no
terms), and is not compared. Every field of a file is checked: a file may come from anywhere.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nautile.errors import InputError

__all__ = ["Kernel", "Side", "Stored", "side_of_record", "sides_in"]

LARGEST = 256 << 20  # bytes of a file
FIGURES = ("reads_bytes", "writes_bytes", "tensor_flops", "vector_flops", "special_ops", "seconds")


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor that a kernel stores. `value` names what it holds, whatever the run calls it: a
    result of the program, a definition, or an intermediate's meaning."""

    name: str
    value: str
    dtype: str | None = None
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Kernel:
    """One launch."""

    name: str
    stored: tuple[Stored, ...]
    reads: tuple[str, ...] | None = None
    tile: Mapping[str, int] | None = None
    streams: tuple[str, ...] | None = None
    split: Mapping[str, int] | None = None
    figures: Mapping[str, float] = field(default_factory=dict)
    shares: Mapping[str, float] | None = None
    bound: str | None = None
    rules: tuple[str, ...] | None = None
    terms: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Side:
    """One run of one program."""

    label: str
    origin: str
    program: str
    key: str | None
    settings: Mapping[str, Any]
    kernels: tuple[Kernel, ...]
    results: tuple[str, ...] = ()
    seconds: float | None = None
    baseline: Mapping[str, float] = field(default_factory=dict)
    verdict: str | None = None
    error: str | None = None

    @property
    def bytes(self) -> float | None:
        """Bytes that all kernels move, where every one tells."""
        each = [k.figures.get("reads_bytes") for k in self.kernels]
        more = [k.figures.get("writes_bytes") for k in self.kernels]
        known = [x for x in (*each, *more) if x is not None]
        return sum(known) if len(known) == 2 * len(self.kernels) else None


def sides_in(path: Path) -> list[Side]:
    """The runs in a file of JSON objects (one, or one a line) or in a bundle folder.

    Raises InputError (code "not-a-run") for what is neither, BundleError for a damaged bundle.
    """
    if path.is_dir():
        return _bundle(path)
    try:
        if path.stat().st_size > LARGEST:
            raise InputError(f"{path}: more than {LARGEST} bytes", code="not-a-run")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file", code="missing-file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as text: {error}", code="not-a-run") from None
    sides = [side_of_record(record, str(path)) for record in _records(text, path)]
    if not sides:
        raise InputError(f"{path}: holds no run", code="not-a-run")
    return sides


def _records(text: str, path: Path) -> Iterator[Any]:
    """The JSON values of a text: the whole of it, or each of its lines."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                try:
                    yield json.loads(line)
                except (ValueError, RecursionError) as error:
                    message = f"{path}:{number}: is not JSON: {error}"
                    raise InputError(message, code="not-a-run") from None
        return
    yield from whole if isinstance(whole, list) else [whole]


# ---- JSON objects --------------------------------------------------------------------------------


def side_of_record(record: Any, label: str) -> Side:
    """The run of an object of `nautile optimize --json` or `nautile explain --json`.

    Raises InputError (code "not-a-run") that names the first field which is wrong.
    """
    top = _object(record, label, "the run")
    program = top.get("program")
    if not isinstance(program, str):
        raise _wrong(label, "program", "text")
    settings = {
        name: top[name] for name in ("target", "numerics") if isinstance(top.get(name), str)
    }
    settings |= _object(top.get("settings") or {}, label, "settings")
    error = top.get("error")
    if error is not None:
        message = _object(error, label, "error").get("message")
        return Side(label, "json", program, _text(top.get("key")), settings, (), error=str(message))
    chosen = _object(top.get("chosen"), label, "chosen")
    rows = _list(chosen.get("kernels"), label, "chosen.kernels")
    kernels = tuple(_kernel(row, label, n) for n, row in enumerate(rows))
    certificate = top.get("certificate") or {}
    return Side(
        label,
        "json",
        program,
        _text(top.get("key")),
        settings,
        kernels,
        results=_results(kernels),
        seconds=_number(chosen.get("seconds")),
        baseline=_numbers(top.get("baseline") or {}, label, "baseline"),
        verdict=_text(_object(certificate, label, "certificate").get("verdict")),
    )


def _results(kernels: Sequence[Kernel]) -> tuple[str, ...]:
    """What is stored and never read again, as far as that is known; else what the last one has."""
    read = {name for k in kernels for name in k.reads or ()}
    if all(k.reads is not None for k in kernels):
        return tuple(s.name for k in kernels for s in k.stored if s.name not in read)
    return tuple(s.name for s in kernels[-1].stored) if kernels else ()


def _kernel(row: Any, label: str, number: int) -> Kernel:
    where = f"chosen.kernels[{number}]"
    k = _object(row, label, where)
    name = k.get("name")
    if not isinstance(name, str):
        raise _wrong(label, f"{where}.name", "text")
    outputs = _list(k.get("outputs"), label, f"{where}.outputs")
    if not all(isinstance(o, str) for o in outputs):
        raise _wrong(label, f"{where}.outputs", "names")
    terms = _terms(k.get("terms"), label, where)
    reads = k.get("reads")
    return Kernel(
        name,
        tuple(Stored(o, o) for o in outputs),
        None if reads is None else tuple(_names(reads, label, f"{where}.reads")),
        _whole(k.get("tile"), label, f"{where}.tile"),
        _strings(k.get("streams"), label, f"{where}.streams"),
        _whole(k.get("split"), label, f"{where}.split"),
        {n: v for n in FIGURES if (v := _number(k.get(n))) is not None},
        None if k.get("shares") is None else _numbers(k["shares"], label, f"{where}.shares"),
        _text(k.get("bound")),
        _strings(k.get("rules"), label, f"{where}.rules"),
        terms,
    )


def _terms(rows: Any, label: str, where: str) -> dict[str, str] | None:
    if rows is None:
        return None
    found = {}
    for row in _list(rows, label, f"{where}.terms"):
        term = _object(row, label, f"{where}.terms")
        found[str(term.get("output"))] = str(term.get("text"))
    return found


def _names(rows: Any, label: str, where: str) -> Iterator[str]:
    for row in _list(rows, label, where):
        name = row.get("buffer") if isinstance(row, dict) else row
        if not isinstance(name, str):
            raise _wrong(label, where, "names of tensors")
        yield name


def _wrong(label: str, name: str, wanted: str) -> InputError:
    return InputError(f"{label}: {name} is not {wanted}", code="not-a-run")


def _object(value: Any, label: str, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(label, name, "an object")
    return value


def _list(value: Any, label: str, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise _wrong(label, name, "a list")
    return value


def _strings(value: Any, label: str, name: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not all(isinstance(v, str) for v in _list(value, label, name)):
        raise _wrong(label, name, "a list of names")
    return tuple(value)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: Any) -> float | None:
    plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if plain and math.isfinite(value) else None


def _numbers(value: Any, label: str, name: str) -> dict[str, float]:
    found = {}
    for key, entry in _object(value, label, name).items():
        number = _number(entry)
        if number is None:
            raise _wrong(label, f"{name}.{key}", "a number")
        found[key] = number
    return found


def _whole(value: Any, label: str, name: str) -> dict[str, int] | None:
    if value is None:
        return None
    return {key: int(n) for key, n in _numbers(value, label, name).items()}


# ---- bundles -------------------------------------------------------------------------------------


def _bundle(folder: Path) -> list[Side]:
    """The runs of a bundle: its launches, what they read and store, and the types of tensors."""
    from nautile.bundle import load_bundle

    loaded = load_bundle(folder)
    m = loaded.manifest
    found = []
    for program in m.programs:
        buffers = {b.name: b for b in m.buffers if b.program == program.name}
        kernels: list[Kernel] = []
        for launch in (x for x in m.launches if x.program == program.name):
            kernels.append(_launched(launch, buffers, {n for k in kernels for n in _stored(k)}))
        results = tuple(b.name for b in buffers.values() if b.role == "output")
        settings = {"target": m.target, "versions": dict(m.versions)}
        label = str(folder)
        found.append(
            Side(label, "bundle", program.name, program.key, settings, tuple(kernels), results)
        )
    return found


def _stored(kernel: Kernel) -> list[str]:
    return [s.name for s in kernel.stored]


def _launched(launch: Any, buffers: Mapping[str, Any], made: set[str]) -> Kernel:
    """A launch of a bundle, by its best implementation: what it names and nothing has made yet, and
    is no input, it stores."""
    used: dict[str, None] = {}
    for kernel in launch.implementations[0].kernels:
        used |= dict.fromkeys((*kernel.arguments, *sorted(kernel.buffers)))
    new = [n for n in used if n in buffers and n not in made and buffers[n].role != "input"]
    stored = tuple(Stored(n, n, buffers[n].dtype, tuple(buffers[n].shape)) for n in new)
    reads = tuple(n for n in used if n in buffers and n not in new)
    return Kernel(launch.name, stored, reads)
