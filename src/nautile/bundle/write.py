"""Bundles to disk, whole or not at all."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from nautile import __version__, terms
from nautile.bundle.fields import MAX_TEXT
from nautile.bundle.heading import heading
from nautile.bundle.manifest import (
    MANIFEST,
    Buffer,
    File,
    Implementation,
    Kernel,
    Launch,
    Manifest,
    Program,
    as_json,
    parse,
)
from nautile.bundle.read import digest_of
from nautile.codegen.compile import Compiled
from nautile.codegen.source import CudaKernel
from nautile.codegen.tile import TileProgram
from nautile.errors import BundleError

__all__ = [
    "Entry",
    "Variant",
    "contents_of",
    "entry_of",
    "variants_of",
    "write_bundle",
    "write_entries",
]

CERTIFICATE = "certificate.json"
LOWEST = "sm_80"  # what portable kernels need; others have their architecture in their file's name


Coded = tuple[CudaKernel, Mapping[str, Compiled]]
"""A kernel, and its machine code by architecture."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to do a launch's work: kernels that run one after the other, and what people read
    about their schedule."""

    kernels: tuple[Coded, ...]
    schedule: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One program of a bundle: its tensors, and its kernels in launch order with their machine code
    by architecture. `variants` gives for each kernel every way to do its work, the best first,
    where there are others than the kernel itself. `certificate` and `expected` are JSON objects;
    `kinds` says how to draw sample inputs and `defaults` gives scalar inputs that need not be
    passed."""

    name: str
    key: str
    inputs: tuple[terms.Buffer, ...]
    outputs: tuple[terms.Buffer, ...]
    intermediates: tuple[terms.Buffer, ...]
    kernels: tuple[Coded, ...]
    certificate: Mapping[str, Any] = field(default_factory=dict)
    expected: Mapping[str, Any] | None = None
    kinds: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, float] = field(default_factory=dict)
    variants: tuple[tuple[Variant, ...], ...] = ()

    @property
    def launches(self) -> tuple[tuple[Variant, ...], ...]:
        """Every launch's variants, the best first."""
        return self.variants or tuple((Variant((coded,)),) for coded in self.kernels)


class _Built(Protocol):
    @property
    def tiles(self) -> Sequence[TileProgram]: ...
    @property
    def cuda(self) -> CudaKernel: ...
    @property
    def compiled(self) -> Mapping[str, Compiled]: ...
    @property
    def implementations(self) -> Sequence[_Way]: ...


class _Way(Protocol):
    """An implementation: its kernels, and the tile programs of each."""

    @property
    def schedule(self) -> str: ...
    @property
    def steps(self) -> Sequence[_Step]: ...


class _Step(Protocol):
    @property
    def tiles(self) -> Sequence[TileProgram]: ...
    @property
    def cuda(self) -> CudaKernel: ...
    @property
    def compiled(self) -> Mapping[str, Compiled]: ...


class _Options(Protocol):
    @property
    def target(self) -> str: ...
    @property
    def seed(self) -> int: ...


class _Result(Protocol):
    """What an optimization must hold to become a bundle."""

    @property
    def program(self) -> terms.Program: ...
    @property
    def work(self) -> terms.Program: ...
    @property
    def options(self) -> _Options: ...
    @property
    def plan(self) -> Any: ...
    @property
    def built(self) -> Sequence[_Built]: ...
    @property
    def certificate(self) -> Any: ...
    @property
    def key(self) -> str: ...


def write_bundle(folder: Path | str, *results: _Result) -> Path:
    """Write finished optimizations as one bundle; see `write_entries`. Programs without cubins are
    written with their sources, which the launcher then compiles."""
    targets = dict.fromkeys(r.options.target for r in results)
    return write_entries(folder, [entry_of(r) for r in results], target=",".join(targets))


def entry_of(result: _Result) -> Entry:
    """The bundle's entry of one finished optimization, with the reference's sampled values."""
    program, plan = result.program, result.plan
    if plan is None or len(result.built) != len(plan.kernels):
        raise BundleError(f"program {program.name} was not built", code="bundle-unbuilt")
    from nautile.certificate import expected  # drags in the whole of extraction

    reference = expected(result.work, plan, seed=result.options.seed)
    _join(reference, result.work, program)
    return Entry(
        name=program.name,
        key=result.key,
        inputs=program.inputs,
        outputs=tuple(o.buffer for o in program.outputs),
        intermediates=tuple(plan.intermediates),
        kernels=tuple((_headed(b, program), b.compiled) for b in result.built),
        variants=tuple(variants_of(b, program) for b in result.built),
        certificate={} if result.certificate is None else result.certificate.as_dict(),
        expected=reference,
        kinds=reference["cases"][0]["kinds"],
        defaults=program.defaults,
    )


def _join(reference: dict[str, Any], work: terms.Program, program: terms.Program) -> None:
    """Positions of results that were taken apart, over their own dimensions."""
    from nautile.extract.apart import joined

    own = {o.buffer.name: o.buffer.shape for o in program.outputs}
    made = {o.buffer.name: o.buffer.shape for o in work.outputs}
    for case in reference["cases"]:
        for row in case["outputs"]:
            name = row["buffer"]
            row["positions"] = joined(row["positions"], made[name], own[name])


def variants_of(built: _Built, program: terms.Program) -> tuple[Variant, ...]:
    """Every way to do a built kernel's work, the best first, with headed sources."""
    return tuple(
        Variant(tuple((_headed(s, program), s.compiled) for s in way.steps), way.schedule)
        for way in built.implementations
    )


def _headed(built: _Step, program: terms.Program) -> CudaKernel:
    """The CUDA with the comment that tells its launch, its tile programs and its source."""
    text = heading(built.cuda, built.tiles, program) + built.cuda.text
    return replace(built.cuda, text=text)


def write_entries(folder: Path | str, entries: Sequence[Entry], *, target: str) -> Path:
    """Write a bundle of one or more programs and return its folder.

    An older bundle there is replaced; anything else there is left alone and BundleError raised.
    On any failure the folder is as it was before."""
    path = Path(folder)
    _install(path, contents_of(entries, target=target))
    return path


def contents_of(entries: Sequence[Entry], *, target: str) -> dict[str, bytes]:
    """The files of a bundle of one or more programs, by name. BundleError where it is none that
    this release would read back."""
    files = _Files()
    parts = [_part(e, files) for e in entries]
    files.add(CERTIFICATE, _dump(_certificates(entries)))
    manifest = Manifest(
        target=target,
        key=entries[0].key if len(entries) == 1 else terms.digest(*(e.key for e in entries)),
        versions=_versions(),
        programs=tuple(p for p, _, _ in parts),
        buffers=tuple(b for _, row, _ in parts for b in row),
        launches=tuple(x for _, _, row in parts for x in row),
        files={n: File(len(d), digest_of(d)) for n, d in files.contents.items()},
    )
    data = _dump(as_json(manifest))
    parse(json.loads(data))  # what this release would not read back, it does not write
    return files.contents | {MANIFEST: data}


class _Files:
    """Contents by file name; equal wishes for a name get numbered names."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}

    def add(self, name: str, data: bytes) -> str:
        safe = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[-150:].lstrip(".-") or "_"
        stem, dot, suffix = safe.partition(".")
        taken, number = {n.lower() for n in self.contents}, 1
        while safe.lower() in taken and self.contents.get(safe) != data:
            number += 1
            safe = f"{stem}_{number}{dot}{suffix}"
        self.contents[safe] = data
        return safe


def _part(entry: Entry, files: _Files) -> tuple[Program, list[Buffer], list[Launch]]:
    buffers = [Buffer(entry.name, b.name, b.shape, b.dtype, role) for role, b in _roles(entry)]
    rows = zip(entry.kernels, entry.launches, strict=True)
    launches = [_launch(entry.name, k.name, variants, files) for (k, _), variants in rows]
    expected = entry.expected and files.add(f"{entry.name}.expected.json", _dump(entry.expected))
    head = Program(entry.name, entry.key, dict(entry.kinds), dict(entry.defaults), expected or None)
    return head, buffers, launches


def _roles(entry: Entry) -> Iterator[tuple[str, terms.Buffer]]:
    """Every buffer once with its role; what is an output is no intermediate."""
    seen: set[str] = set()
    rows = (
        ("input", entry.inputs),
        ("output", entry.outputs),
        ("intermediate", entry.intermediates),
    )
    for role, row in rows:
        for buffer in row:
            if buffer.name not in seen:
                seen.add(buffer.name)
                yield role, buffer


def _launch(program: str, name: str, variants: Sequence[Variant], files: _Files) -> Launch:
    ways = tuple(
        Implementation(v.schedule[:MAX_TEXT], tuple(_kernel(*coded, files) for coded in v.kernels))
        for v in variants
    )
    return Launch(program, name, ways)


def _kernel(kernel: CudaKernel, made: Mapping[str, Compiled], files: _Files) -> Kernel:
    only = "" if kernel.architecture == LOWEST else f".{kernel.architecture}"
    source = files.add(f"{kernel.name}{only}.cu", kernel.text.encode())
    stem = source.removesuffix(".cu").removesuffix(only)
    return Kernel(
        kernel=kernel.name,
        source=source,
        cubins={
            c.architecture: files.add(f"{stem}.{c.architecture}.cubin", c.cubin)
            for c in made.values()
        },
        grid=kernel.grid,
        threads=kernel.threads,
        shared_bytes=kernel.shared_bytes,
        arguments=kernel.buffers,
        options=kernel.options,
        architecture=kernel.architecture,
        zeroed=kernel.zeroed,
        maps=kernel.maps,
        counters=kernel.counters,
        overlaps=kernel.overlaps,
    )


def _certificates(entries: Sequence[Entry]) -> dict[str, Any]:
    """One certificate for all programs: each check names its program; the verdict is the worst."""
    given = {e.name: e.certificate for e in entries if e.certificate}
    verdicts = {c.get("verdict") for c in given.values()}
    checks = [{"program": n, **check} for n, c in given.items() for check in c.get("checks", ())]
    errors = [float(c.get("max_relative_error") or 0.0) for c in given.values()]
    passed = verdicts == {"pass"} and len(given) == len(entries)
    return {
        "verdict": "pass" if passed else "fail" if "fail" in verdicts else "none",
        "checks": checks,
        "max_relative_error": max(errors, default=0.0),
        "samples": sum(int(c.get("samples") or 0) for c in given.values()),
        "accepted_rules": _accepted(given.values()),
    }


def _accepted(certificates: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """The rules that were used at the user's word, each once."""
    found = [dict(rule) for c in certificates for rule in c.get("accepted_rules", ())]
    return [rule for i, rule in enumerate(found) if rule not in found[:i]]


def _versions() -> dict[str, str]:
    found = {"nautile": __version__}
    try:
        from nautile.codegen.compile import compiler_version

        found["nvrtc"] = compiler_version()
    except Exception:  # a bundle of sources alone needs no compiler
        return found
    return found


def _dump(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


def _install(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write aside, then rename into place."""
    if folder.exists() and not _replaceable(folder):
        raise BundleError(
            f"{folder} is there and is no bundle; choose another folder", code="bundle-exists"
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _aside(folder) as made:
            for name, data in contents.items():
                (made / name).write_bytes(data)
            _swap(made, folder)
    except OSError as error:
        raise BundleError(f"{folder} cannot be written: {error}", code="bundle-write") from error


def _replaceable(folder: Path) -> bool:
    return folder.is_dir() and ((folder / MANIFEST).is_file() or not any(folder.iterdir()))


@contextmanager
def _aside(folder: Path) -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        made.chmod(0o755)
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _swap(made: Path, folder: Path) -> None:
    """Put `made` where `folder` is; the old bundle comes back if that fails."""
    if not folder.exists():
        os.rename(made, folder)
        return
    with _aside(folder) as old:
        os.rename(folder, old)  # an empty folder may be replaced by renaming onto it
        try:
            os.rename(made, folder)
        except OSError:
            os.rename(old, folder)
            raise
