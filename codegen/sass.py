"""What a cubin's machine code (SASS) shows of warpgroup products, read with nvdisasm.

`ptxas` may do three things of which its report tells nothing: keep descriptors out of the uniform
registers (an R2UR before each product), wait for products one by one, and move a wait above the
pointwise work that was to run while they fly. `read` finds them in the **main loops**: the
innermost loops that hold products (HGMMA; QGMMA of 8-bit operands). Loops are natural loops of
the control-flow graph, so that code which the compiler laid out of line counts where it runs.

nvdisasm comes with the CUDA toolkit or the wheel nvidia-cuda-nvdisasm; where there is none, `read`
says so. Instructions: CUDA Binary Utilities, "Instruction Set Reference", Hopper.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib import metadata
from itertools import pairwise
from pathlib import Path

__all__ = [
    "VERSION",
    "MachineCode",
    "MainLoop",
    "UnreadError",
    "disassembler",
    "from_json",
    "listing",
    "operations",
    "read",
    "to_json",
]

VERSION = "2"  # of what `read` finds: what a cache kept of another version is read again

_SECONDS = 120.0
_PACKAGE = "nvidia-cuda-nvdisasm"
_POINTWISE = frozenset(
    """FADD FMUL FFMA FMNMX FSEL FSETP FSET FRND FCHK F2F F2FP F2I I2F I2FP MUFU HADD2 HMUL2 HFMA2
    HMNMX2 HSET2 HSETP2""".split()  # noqa: SIM905
)
_PRODUCTS = ("HGMMA", "QGMMA", "IGMMA", "BGMMA")
_ROW = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?(?P<predicate>U?P\w+)\s+)?(?P<text>[A-Z].*?)\s*;")
_LABEL = re.compile(r"(\.L_x_\d+):")
_TARGET = re.compile(r"`\((\.L_x_\d+)\)")
_WAIT = re.compile(r"WARPGROUP\.DEPBAR\.LE gsb0, (0x[0-9a-f]+)")


@dataclass(frozen=True, slots=True)
class MainLoop:
    """One main loop: `instructions` of an iteration (as compiled: it may be unrolled), `products`,
    `moves` to uniform registers (R2UR), `copies` between ordinary registers, `waits` for products;
    for each wait that leaves groups in flight, the pointwise instructions up to the next wait."""

    instructions: int
    products: int
    moves: int
    copies: int
    waits: int
    overlapped: tuple[int, ...] = ()

    @property
    def serialised(self) -> bool:
        """Whether each of several products is awaited before the next."""
        return self.products > 1 and self.waits >= self.products


@dataclass(frozen=True, slots=True)
class MachineCode:
    """A kernel: `instructions`, `products`, accesses to `local` memory, and its main loops in the
    order of their addresses."""

    instructions: int
    products: int
    local: int
    loops: tuple[MainLoop, ...] = ()


@dataclass(frozen=True, slots=True)
class _Instruction:
    text: str
    conditional: bool

    @property
    def operation(self) -> str:
        return re.split(r"[. ]", self.text, maxsplit=1)[0]

    @property
    def target(self) -> str | None:
        """The label that it may jump to."""
        match = _TARGET.search(self.text)
        return match[1] if match and self.operation not in ("BSSY", "CALL") else None

    @property
    def falls(self) -> bool:
        """Whether the next instruction may run after it."""
        if self.operation in ("EXIT", "RET", "BRX", "JMX", "JMP", "BRA"):
            return self.conditional
        return True


class UnreadError(Exception):
    """Machine code could not be read; the message tells why."""


def read(cubin: bytes, kernel: str) -> MachineCode:
    """What the machine code of `kernel` shows. UnreadError where no disassembler is installed, or
    it cannot read the cubin, or the cubin holds no such kernel."""
    rows = _section(listing(cubin), kernel)
    if rows is None:
        raise UnreadError(f"nvdisasm shows no code of {kernel}")
    return _describe(*_parse(rows))


def operations(cubin: bytes, kernel: str) -> tuple[Mapping[str, int], ...]:
    """How often each instruction stands in each main loop, the most frequent first. UnreadError as
    `read`. Branches not taken count too."""
    rows = _section(listing(cubin), kernel)
    if rows is None:
        raise UnreadError(f"nvdisasm shows no code of {kernel}")
    code, labels = _parse(rows)
    counts = (Counter(code[i].operation for i in body) for body in _main_loops(code, labels))
    return tuple(dict(c.most_common()) for c in counts)


def listing(cubin: bytes) -> str:
    """The disassembly of a cubin. UnreadError where there is none."""
    program = disassembler()
    if program is None:
        raise UnreadError("nvdisasm is not installed")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(program), "-c", file.name]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UnreadError(f"nvdisasm did not run ({error})") from error
    if done.returncode != 0:
        raise UnreadError(f"nvdisasm failed ({done.returncode}) {done.stderr.strip()[:200]}")
    return done.stdout


@lru_cache(maxsize=1)
def disassembler() -> Path | None:
    """nvdisasm: of the installed wheel, else on the path, else None."""
    try:
        files = metadata.files(_PACKAGE) or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name in ("nvdisasm", "nvdisasm.exe"):
            return Path(str(file.locate()))
    found = shutil.which("nvdisasm")
    return Path(found) if found else None


def to_json(code: MachineCode) -> str:
    """A text from which `from_json` makes an equal one."""
    return json.dumps(asdict(code))


def from_json(text: str) -> MachineCode | None:
    """The machine code that `to_json` wrote, or None for any other text."""
    try:
        data = json.loads(text)
        loops = [{**row, "overlapped": tuple(row["overlapped"])} for row in data.pop("loops")]
        return MachineCode(**data, loops=tuple(MainLoop(**row) for row in loops))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


# -- the listing -----------------------------------------------------------------------------------


def _section(text: str, kernel: str) -> list[str] | None:
    """The rows of one kernel's code."""
    parts = re.split(r"^//-+ \.text\.(\S+)\s+-+$", text, flags=re.MULTILINE)
    found = dict(zip(parts[1::2], parts[2::2], strict=True)).get(kernel)
    return None if found is None else found.splitlines()


def _parse(rows: Iterable[str]) -> tuple[list[_Instruction], dict[str, int]]:
    """The instructions, and the number of the one that each label stands before."""
    code: list[_Instruction] = []
    labels: dict[str, int] = {}
    for row in rows:
        if match := _LABEL.match(row.strip()):
            labels[match[1]] = len(code)
        elif match := _ROW.match(row):
            text = match["text"]
            guarded = match["predicate"] is not None or (
                text.startswith("BRA") and not text.startswith("BRA `")
            )
            code.append(_Instruction(text, guarded))
    return code, labels


def _describe(code: Sequence[_Instruction], labels: Mapping[str, int]) -> MachineCode:
    return MachineCode(
        len(code),
        _count(code, *_PRODUCTS),
        _count(code, "STL", "LDL"),
        tuple(_loop([code[i] for i in sorted(body)]) for body in _main_loops(code, labels)),
    )


def _loop(code: Sequence[_Instruction]) -> MainLoop:
    waits = [(i, int(m[1], 16)) for i, c in enumerate(code) if (m := _WAIT.match(c.text))]
    gaps = [
        _count(code[at:end], *_POINTWISE) for (at, pending), (end, _) in pairwise(waits) if pending
    ]
    return MainLoop(
        len(code),
        _count(code, *_PRODUCTS),
        _count(code, "R2UR"),
        sum(c.operation == "MOV" or c.text.startswith("IMAD.MOV") for c in code),
        len(waits),
        tuple(gaps),
    )


def _count(code: Iterable[_Instruction], *operations: str) -> int:
    return sum(c.operation in operations for c in code)


# -- loops -----------------------------------------------------------------------------------------


def _main_loops(code: Sequence[_Instruction], labels: Mapping[str, int]) -> list[frozenset[int]]:
    """The instructions of each main loop, in the order of their first ones."""
    products = {i for i, c in enumerate(code) if c.operation in _PRODUCTS}
    loops = [body for body in _loops(code, labels) if body & products]
    inner = [b for b in loops if not any(other < b for other in loops)]
    return sorted(inner, key=min)


def _loops(code: Sequence[_Instruction], labels: Mapping[str, int]) -> list[frozenset[int]]:
    """Natural loops, each as the set of its instructions: Aho, Sethi, Ullman, "Compilers", 10.4."""
    starts = _starts(code, labels)
    ends = [*starts[1:], len(code)]
    after = [_successors(code, labels, starts, end - 1) for end in ends]
    before: list[list[int]] = [[] for _ in starts]
    for block, others in enumerate(after):
        for other in others:
            before[other].append(block)
    dominators = _dominators(before)
    bodies: dict[int, set[int]] = {}
    for block, others in enumerate(after):
        for head in others:
            if head in dominators[block]:
                bodies.setdefault(head, {head}).update(_reaching(before, block, head))
    return [
        frozenset(i for b in blocks for i in range(starts[b], ends[b]))
        for blocks in bodies.values()
    ]


def _starts(code: Sequence[_Instruction], labels: Mapping[str, int]) -> list[int]:
    """Where basic blocks start."""
    found = {0} | {i for i in labels.values() if i < len(code)}
    for i, c in enumerate(code[:-1]):
        if c.target is not None or not c.falls:
            found.add(i + 1)
    return sorted(found)


def _successors(
    code: Sequence[_Instruction], labels: Mapping[str, int], starts: Sequence[int], last: int
) -> list[int]:
    """The blocks that may run after the one that ends with instruction `last`."""
    places = []
    if code[last].falls and last + 1 < len(code):
        places.append(last + 1)
    at = labels.get(code[last].target or "", len(code))
    if at < len(code):
        places.append(at)
    numbers = {start: block for block, start in enumerate(starts)}
    return [numbers[place] for place in places]


def _dominators(before: Sequence[Sequence[int]]) -> list[set[int]]:
    """For each block those through which every way from the first block to it leads; for blocks
    that nothing reaches, none but themselves."""
    reached = _reached(before)
    found = [set(reached) if b in reached else {b} for b in range(len(before))]
    found[0] = {0}
    changed = True
    while changed:
        changed = False
        for block in sorted(reached - {0}):
            ways = [found[b] for b in before[block] if b in reached]
            now = set.intersection(*ways) | {block}
            changed |= now != found[block]
            found[block] = now
    return found


def _reached(before: Sequence[Sequence[int]]) -> set[int]:
    after: dict[int, list[int]] = {}
    for block, others in enumerate(before):
        for other in others:
            after.setdefault(other, []).append(block)
    seen, todo = {0}, [0]
    while todo:
        for other in after.get(todo.pop(), ()):
            if other not in seen:
                seen.add(other)
                todo.append(other)
    return seen


def _reaching(before: Sequence[Sequence[int]], block: int, head: int) -> set[int]:
    """The blocks from which `block` is reached without passing `head`."""
    seen, todo = {block}, [block]
    while todo:
        here = todo.pop()
        for other in before[here] if here != head else ():
            if other not in seen:
                seen.add(other)
                todo.append(other)
    return seen
