"""What a result depends on beside its inputs' names: the ingredients of its key.

```
Ingredients ::= term         the canonical program with its sizes and types (lang.key)
                target, profile       the device's name; the digest of its profile's figures
                numerics, packs, rules, accept     digests of the contents of packs and of a user's
                budgets      rows, seconds and bytes of one region's saturation
                compile      architectures to compile for: "own" (the target's), or "no"
                candidates, seed
                code         the digest of every stage's source: rules, e-graph, cost model, ...
                libraries    versions of what computes beside it: the e-graph, the solver, ...
                compiler     the version of NVRTC, where something is compiled
```

Two results of one key are equal up to the names of tensors and axes. A key says nothing of files:
rules count by their contents, and a result that was made elsewhere is as good.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path

from nautile.errors import InputError
from nautile.options import Options
from nautile.terms import digest

__all__ = ["code_version", "ingredients", "key_of", "versions"]

_HOME = Path(__file__).parent
_SOURCES = frozenset({".py", ".nau", ".json", ".cuh"})
_LATER = frozenset(  # what only carries, keeps or shows results
    {"inspector", "store", "executor", "batch", "service", "workbench", "runtime", "examples",
     "cli.py", "cli_options.py", "rules_cli.py", "__main__.py", "interrupts.py", "orphans.py"}
)  # fmt: skip
_LIBRARIES = ("egglog", "highspy", "numpy", "ml_dtypes")
_COMPILERS = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvdisasm")


def ingredients(program_key: str, options: Options) -> dict[str, str]:
    """What the result of a program (its `lang.key`) depends on under these options, by name.

    Raises InputError for an unknown device or rule pack.
    """
    o = options
    return {
        "term": program_key,
        "target": o.target,
        "profile": _profile(o.target),
        "numerics": o.numerics,
        "packs": _packs(o.packs),
        "rules": ",".join(_packs((pack,)) for pack in o.rules),
        "accept": ",".join(sorted(o.accept)),
        "budgets": f"{o.rows} rows, {o.seconds!r} s, {o.memory} B",
        "compile": (",".join(o.architectures) or "own") if o.compile else "no",
        "candidates": str(o.candidates),
        "seed": str(o.seed),
        "code": code_version(),
        "libraries": _versions_of(_LIBRARIES),
        "compiler": _versions_of(_COMPILERS) if o.compile else "no",
    }


def versions() -> dict[str, str]:
    """Of the ingredients, those that tell this release from others, whatever is asked of it."""
    return {
        "packs": _packs(None),
        "code": code_version(),
        "libraries": _versions_of(_LIBRARIES),
    }


def key_of(found: Mapping[str, str]) -> str:
    """The key that ingredients make: BLAKE2b-128, in hexadecimal."""
    return digest(*(f"{name}={value}" for name, value in sorted(found.items())))


@cache
def code_version() -> str:
    """The digest of the source of every stage that takes part in a result."""
    found = hashlib.blake2b(digest_size=16)
    for path in sorted(p for top in sorted(_HOME.iterdir()) for p in _sources(top)):
        data = path.read_bytes()
        found.update(f"{path.relative_to(_HOME).as_posix()} {len(data)}:".encode() + data)
    return found.hexdigest()


def _sources(top: Path) -> list[Path]:
    if top.name in _LATER:
        return []
    inside = [top] if top.is_file() else top.glob("**/*")
    return [p for p in inside if p.suffix in _SOURCES and p.is_file()]


@cache
def _profile(target: str) -> str:
    """The digest of a device's profile. The folder is read here, as importing extraction to do so
    would load a solver into processes that optimize nothing."""
    known = {p.stem: p for p in sorted((_HOME / "extract" / "devices").glob("*.json"))}
    if target not in known:
        raise InputError(
            f"unknown device {target!r}; known: {', '.join(known)}", code="unknown-device"
        )
    return digest(known[target].read_text("utf-8"))


def _packs(names: tuple[str, ...] | None) -> str:
    from nautile.rules.library import version

    return version(names)


@cache
def _versions_of(libraries: tuple[str, ...]) -> str:
    return ", ".join(f"{name} {_version(name)}" for name in libraries)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "none"
