"""An outcome under the names of another program of the same key.

Programs of one key differ in names alone, and the canonical form pairs the names up. What the
optimizer has named after a tensor or an axis (`O_part1`, `s_chunk`, the kernel `O_lse`) is named
after its counterpart. Generated CUDA keeps its text: symbols and comments are those of the program
that was optimized first. A bundle's sample inputs are drawn by name, so its reference says under
which names they were drawn (`drawn_as`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from nautile.bundle.manifest import MANIFEST
from nautile.bundle.read import digest_of
from nautile.task.model import Names

__all__ = ["renamed", "renamed_files"]

CERTIFICATE = "certificate.json"
TUNED = "tuned.json"
_TILE = re.compile(r"(\S+)=(\d+)")
_CHECK = re.compile(r"(meaning of|tile program of|float32 terms of) (\S+?)((?: states)?(?:, .*)?)")
_ROUNDING = re.compile(r"(\w+)( is stored as its readers round it|: \S+ operand to \S+)")
_LONGEST = 40  # characters of a kernel's name that are made of its tensors' names


@dataclass(slots=True)
class _Renaming:
    """From the names of one program to those of another: tensors, axes, and what is named after
    them. `taken` are the names of tensors that nothing new may have."""

    old: Names
    new: Names
    tensors: dict[str, str] = field(init=False)
    families: dict[str, str] = field(init=False)
    taken: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self.tensors = dict(zip(self.old.buffers, self.new.buffers, strict=True))
        self.families = dict(zip(self.old.families, self.new.families, strict=True))
        self.taken = set(self.new.buffers)

    def tensor(self, name: str) -> str:
        """A tensor of the program, or one that was made between its kernels."""
        if name not in self.tensors:
            made = _after(name, self.tensors)
            self.tensors[name] = made if made not in self.taken else _fresh(made, self.taken)
            self.taken.add(self.tensors[name])
        return self.tensors[name]

    def axis(self, name: str) -> str:
        """An axis by its name: its family, and its number where it has one."""
        family, mark, number = name.partition("__")
        if name in self.families or not number.isdigit():
            family, mark, number = name, "", ""
        return f"{self.families.get(family) or _after(family, self.families)}{mark}{number}"

    def kernel(self, name: str, outputs: Iterable[str]) -> str:
        """A kernel that is called by the tensors that it stores, or after one of them."""
        stored = list(outputs)
        stem = "_".join(stored)[:_LONGEST].strip("_")
        if name.startswith(stem):
            return "_".join(map(self.tensor, stored))[:_LONGEST].strip("_") + name[len(stem) :]
        return _after(name, self.tensors)


def _after(name: str, known: Mapping[str, str]) -> str:
    """A name that is made of the longest known one and `_...`; itself where it is made of none."""
    for end in range(len(name), 0, -1):
        if name[:end] in known and (end == len(name) or name[end] == "_"):
            return known[name[:end]] + name[end:]
    return name


def _fresh(name: str, taken: set[str]) -> str:
    stem, n = name.rstrip("0123456789"), 1
    while f"{stem}{n}" in taken:
        n += 1
    return f"{stem}{n}"


# ---- the record --------------------------------------------------------------------------------


def renamed(record: Mapping[str, Any], old: Names, new: Names, source: str) -> dict[str, Any]:
    """The record of `optimize --json` as the program `new` of the file `source` would have it.
    Records of failures quote their text, and are of no use to another program."""
    found = {**record, "program": new.program, "source": source}
    if (old.buffers, old.families) == (new.buffers, new.families):
        return found
    names = _Renaming(old, new)
    chosen, kernels = record.get("chosen"), {}
    if chosen:
        kernels = _kernel_names(chosen["kernels"], names)
        rows = [_kernel(row, kernels, names) for row in chosen["kernels"]]
        found["chosen"] = {**chosen, "kernels": rows}
    if record.get("certificate"):
        found["certificate"] = _certificate(record["certificate"], kernels, names)
    if record.get("measurement"):
        found["measurement"] = _measurement(record["measurement"], names)
    return found


def _measurement(report: Mapping[str, Any], names: _Renaming) -> dict[str, Any]:
    """What was measured; launches keep their names, as they do in the bundle."""
    found = {**report, "program": names.new.program} if "program" in report else {**report}
    if "implementations" in found:
        found["implementations"] = [_schedule(s, names) for s in found["implementations"]]
    return found


def _kernel_names(rows: Iterable[Mapping[str, Any]], names: _Renaming) -> dict[str, str]:
    found: dict[str, str] = {}
    for row in rows:
        made = names.kernel(row["name"], row["outputs"])
        found[row["name"]] = made if made not in found.values() else _fresh(made, {*found.values()})
    return found


def _kernel(row: Mapping[str, Any], kernels: Mapping[str, str], names: _Renaming) -> dict[str, Any]:
    ways = row.get("implementations", ())
    return {
        **row,
        "name": kernels[row["name"]],
        "outputs": [names.tensor(n) for n in row["outputs"]],
        "tile": {names.axis(a): n for a, n in row["tile"].items()},
        "streams": [names.axis(a) for a in row["streams"]],
        "split": {names.axis(a): n for a, n in row["split"].items()},
        "implementations": [{**w, "schedule": _schedule(w["schedule"], names)} for w in ways],
    }


def _schedule(text: str, names: _Renaming) -> str:
    """`sm_90a, tiles t=128 s=64, ...` with its axes renamed."""
    return _TILE.sub(lambda m: f"{names.axis(m[1])}={m[2]}", text)


def _certificate(
    made: Mapping[str, Any], kernels: Mapping[str, str], names: _Renaming
) -> dict[str, Any]:
    return {**made, "checks": [_check(c, kernels, names) for c in made["checks"]]}


def _check(row: Mapping[str, Any], kernels: Mapping[str, str], names: _Renaming) -> dict[str, Any]:
    """A check is called by the tensor or kernel that it looks at; of what it tells, the roundings
    name tensors."""

    def subject(match: re.Match[str]) -> str:
        made = names.tensor(match[2]) if match[1] == "meaning of" else kernels.get(match[2])
        return f"{match[1]} {made or match[2]}{match[3]}"

    def rounded(match: re.Match[str]) -> str:
        stored = match[2].startswith(" ")
        made = names.tensor(match[1]) if stored else kernels.get(match[1], match[1])
        return f"{made}{match[2]}"

    said = row["detail"]
    said = _ROUNDING.sub(rounded, said) if row["name"] == "operand rounding" else said
    match = _CHECK.fullmatch(row["name"])
    return {**row, "name": subject(match) if match else row["name"], "detail": said}


# ---- the bundle --------------------------------------------------------------------------------


def renamed_files(
    read: Callable[[str], bytes], record: Mapping[str, Any], old: Names, new: Names
) -> tuple[dict[str, bytes], frozenset[str]]:
    """What the bundle of the program `new` has of its own, made of that of `old`: the contents of
    files by name, and the names of those that it has no longer. All others are shared.

    `read` gives a file of the old bundle, `record` is the old program's. A bundle of a program with
    the very same names is shared as a whole.
    """
    if old == new:
        return {}, frozenset()
    names = _Renaming(old, new)
    manifest = json.loads(read(MANIFEST))
    kernels = _kernel_names(record["chosen"]["kernels"], names)
    changed: dict[str, bytes] = {}
    gone: set[str] = set()
    for program in manifest["programs"]:
        program["name"] = new.program
        program["kinds"] = {names.tensor(n): k for n, k in program["kinds"].items()}
        program["defaults"] = {names.tensor(n): v for n, v in program["defaults"].items()}
        if program["expected"]:
            before, after = program["expected"], f"{_plain(new.program)}.expected.json"
            changed[after] = _dump(_reference(json.loads(read(before)), names))
            gone |= {before}
            program["expected"] = after
    certificate = json.loads(read(CERTIFICATE))
    for check in certificate["checks"]:
        check |= {**_check(check, kernels, names), "program": new.program}
    changed[CERTIFICATE] = _dump(certificate)
    if (record.get("measurement") or {}).get("recorded"):
        changed[TUNED] = _dump(_tuned(json.loads(read(TUNED)), old.program, new.program))
    _rename_tensors(manifest, names)
    manifest["files"] = {n: f for n, f in manifest["files"].items() if n not in gone} | {
        n: {"bytes": len(d), "digest": digest_of(d)} for n, d in changed.items() if n != TUNED
    }
    changed[MANIFEST] = _dump(manifest)
    return changed, frozenset(gone - changed.keys())


def _tuned(record: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    """The picks of the program under its new name; they name implementations by their sources."""
    devices = record["devices"]
    found = {d: {new if n == old else n: p for n, p in ps.items()} for d, ps in devices.items()}
    return {**record, "devices": found}


def _plain(name: str) -> str:
    """A name as files of bundles may have it."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)[-100:]


def _rename_tensors(manifest: dict[str, Any], names: _Renaming) -> None:
    """Buffers, and what launches are passed; launches keep the names of their kernels' symbols."""
    for row in manifest["buffers"]:
        row |= {"program": names.new.program, "name": names.tensor(row["name"])}
    for row in manifest["launches"]:
        row["program"] = names.new.program
        for way in row["implementations"]:
            way["schedule"] = _schedule(way["schedule"], names)
            for kernel in way["kernels"]:
                for part in ("arguments", "zeroed"):
                    kernel[part] = [names.tensor(n) for n in kernel[part]]
                for view in kernel["maps"]:
                    view["buffer"] = names.tensor(view["buffer"])


def _reference(reference: dict[str, Any], names: _Renaming) -> dict[str, Any]:
    """The sampled reference: inputs are called by their new names, and drawn by their old ones."""
    before = reference.get("drawn_as", {})
    drawn: dict[str, str] = {}
    for case in reference["cases"]:
        drawn |= {names.tensor(n): before.get(n, n) for n in case["kinds"]}
        case["kinds"] = {names.tensor(n): k for n, k in case["kinds"].items()}
        for row in case["outputs"]:
            row["buffer"] = names.tensor(row["buffer"])
    return {**reference, "drawn_as": drawn}


def _dump(value: Any) -> bytes:
    """The bytes of `json.dumps(value, indent=1)`, which alone would take four times as long."""
    text = json.dumps(value, ensure_ascii=False)
    return msgspec.json.format(text.encode(), indent=1) + b"\n"
