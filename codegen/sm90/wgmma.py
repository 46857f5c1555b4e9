"""The text of the warpgroup products that a kernel uses (wgmma, sm_90a).

An instruction's operand list depends on its width, so a wrapper is written for each width, operand
type and source of the left operand. A warpgroup multiplies 64 rows of A by `n` columns of B over 32
bytes of depth and adds to f32 accumulators. With g = lane / 4, t = lane % 4 and warp w:

```
accumulator d[n / 2]   d[4 i + e]: row 16 w + g + 8 (e / 2), column 8 i + 2 t + e % 2
left operand a[4]      bytes 4 t .. 4 t + 3 of row g, low 16 bytes; of row g + 8, low;
                       of row g, high; of row g + 8, high
```

So accumulators rounded to 16 bits and packed in pairs, d[8 i .. 8 i + 7] -> a[0 .. 3], are the left
operand of a product over their columns, without any exchange between threads.
Source: PTX ISA, "Asynchronous warpgroup-level matrix multiply-accumulate instructions".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["DEPTH", "OPERANDS", "Pinned", "Product", "Waiting", "wrappers"]

# operand type of the language -> its name in PTX and its bytes
OPERANDS = {
    "bf16": ("bf16", 2),
    "f16": ("f16", 2),
    "tf32": ("tf32", 4),
    "f8e4m3": ("e4m3", 1),
    "f8e5m2": ("e5m2", 1),
}
# elements of depth that one instruction multiplies
DEPTH = {name: 32 // size for name, (_, size) in OPERANDS.items()}
_WIDTH = 80


@dataclass(frozen=True, slots=True)
class Product:
    """One wgmma instruction, m64n{n}k{DEPTH}. `left_registers`: A comes from registers, not from
    shared memory. `left_rows`, `right_columns`: that operand lies row-wise along the rows or the
    columns of the product (MN-major), which only 16-bit types allow. ValueError for what the
    instruction set lacks."""

    n: int
    left: str
    right: str = ""
    left_registers: bool = False
    left_rows: bool = False
    right_columns: bool = False

    def __post_init__(self) -> None:
        if not (8 <= self.n <= 256 and self.n % 8 == 0):
            raise ValueError(f"no wgmma is {self.n} columns wide: 8 to 256 in steps of 8 are")
        if self.left not in OPERANDS or (self.right and self.right not in OPERANDS):
            raise ValueError(f"wgmma does not multiply {self.left} by {self.right or self.left}")
        eights = {self.left, self.right or self.left} <= {"f8e4m3", "f8e5m2"}
        if self.right not in ("", self.left) and not eights:
            raise ValueError(f"wgmma does not multiply {self.left} by {self.right}")
        if (self.left_rows or self.right_columns) and OPERANDS[self.left][1] != 2:
            raise ValueError(f"{self.left} operands lie along the depth")
        if self.left_rows and self.left_registers:
            raise ValueError("a left operand in registers has one layout")

    @property
    def accumulators(self) -> int:
        """f32 registers of a thread."""
        return self.n // 2

    @property
    def name(self) -> str:
        """The wrapper: nt_wgmma_ss_n128_bf16(d, left descriptor, right descriptor, keep) or
        nt_wgmma_rs_n128_bf16(d, a0, a1, a2, a3, right descriptor, keep); keep = 0 starts from 0."""
        types = self.left if self.right in ("", self.left) else f"{self.left}_{self.right}"
        major = "_m" * self.left_rows + "_n" * self.right_columns
        return f"nt_wgmma_{'rs' if self.left_registers else 'ss'}_n{self.n}_{types}{major}"

    def text(self) -> str:
        """The wrapper's definition."""
        count = self.accumulators
        left = [f"%{count + i}" for i in range(4 if self.left_registers else 1)]
        right, keep = f"%{count + len(left)}", f"%{count + len(left) + 1}"
        a = f"{{{', '.join(left)}}}" if self.left_registers else left[0]
        given = [f"a{i}" for i in range(4)] if self.left_registers else ["a"]
        kind = "nt_u32" if self.left_registers else "nt_u64"
        letter = "r" if self.left_registers else "l"
        inputs = [f'"{letter}"({x})' for x in given] + ['"l"(b)', '"r"(keep)']
        rows = [
            f"NT_DEV void {self.name}(float (&d)[{count}], "
            f"{', '.join(f'{kind} {x}' for x in given)}, nt_u64 b, int keep) {{",
            '  asm volatile("{\\n.reg .pred keep;\\n"',
            f'               "setp.ne.b32 keep, {keep}, 0;\\n"',
            f'               "{self._instruction()} {{"',
            *_strings([f"%{i}" for i in range(count)]),
            f'               "}}, {a}, {right}, keep{self._flags()};\\n}}"',
            *_operands([("d", Pinned(count))]),
            f"               : {', '.join(inputs)});",
            "}",
        ]
        return "\n".join(rows)

    def _instruction(self) -> str:
        right = OPERANDS[self.right or self.left][0]
        shape = f"m64n{self.n}k{DEPTH[self.left]}"
        return f"wgmma.mma_async.sync.aligned.{shape}.f32.{OPERANDS[self.left][0]}.{right}"

    def _flags(self) -> str:
        """No negation; then, for 16-bit types, which operands in shared memory are transposed."""
        flags = ", 1, 1"
        if OPERANDS[self.left][1] != 2:
            return flags
        if not self.left_registers:
            flags += f", {int(self.left_rows)}"
        return flags + f", {int(self.right_columns)}"


@dataclass(frozen=True, slots=True)
class Pinned:
    """An array of registers that a wait holds in place: "float" accumulators, "nt_u32" operands."""

    count: int
    kind: str = "float"

    @property
    def letter(self) -> str:
        """Its constraint in inline assembly."""
        return "f" if self.kind == "float" else "r"


@dataclass(frozen=True, slots=True)
class Waiting:
    """A wait until at most `pending` groups of products fly. The arrays are those that products
    write or read: as operands of the wait they cannot be touched before it."""

    pending: int
    arrays: tuple[Pinned, ...]

    @property
    def name(self) -> str:
        """The wrapper: nt_wgmma_wait1_f64_r32(accumulators, operands)."""
        tail = "".join(f"_{a.letter}{a.count}" for a in self.arrays)
        return f"nt_wgmma_wait{self.pending}{tail}"

    def text(self) -> str:
        """The wrapper's definition."""
        given = [(chr(ord("a") + i), a) for i, a in enumerate(self.arrays)]
        parameters = ", ".join(f"{a.kind} (&{n})[{a.count}]" for n, a in given)
        rows = [
            f"NT_DEV void {self.name}({parameters}) {{",
            f'  asm volatile("wgmma.wait_group.sync.aligned {self.pending};"',
            *_operands(given),
            f'               ::{"" if given else ":"} "memory");',
            "}",
        ]
        return "\n".join(rows)


def wrappers(products: Iterable[Product], waits: Iterable[Waiting]) -> str:
    """The definitions, each once, in the order of their names. They stand after the blocks of
    device/sm90.cuh."""
    made: list[Product | Waiting] = [*products, *waits]
    texts = {w.name: w.text() for w in made}
    return "\n\n".join(texts[name] for name in sorted(texts)) + "\n"


def _strings(items: Sequence[str]) -> list[str]:
    """String literals that together are the comma-separated items."""
    return [f'               "{row}"' for row in _filled(items)]


def _operands(arrays: Sequence[tuple[str, Pinned]]) -> list[str]:
    """The registers of arrays as operands that are read and written."""
    items = [item for name, array in arrays for item in _registers(name, array)]
    return [f"               {' ' if i else ':'} {row}" for i, row in enumerate(_filled(items))]


def _registers(name: str, array: Pinned) -> list[str]:
    """All registers of an array, by the macros of device/sm90.cuh that name 16 or 4 of them."""
    letter, rows, at = array.letter, [], 0
    for step in (16, 4):
        while at + step <= array.count:
            rows.append(f"NT_{letter.upper()}{step}({name}, {at})")
            at += step
    return rows + [f'"+{letter}"({name}[{i}])' for i in range(at, array.count)]


def _filled(items: Sequence[str]) -> list[str]:
    """The items joined by commas, in rows that end with a comma but for the last."""
    rows: list[str] = []
    for i, item in enumerate(items):
        piece = item + ("," if i + 1 < len(items) else "")
        if rows and len(rows[-1]) + len(piece) < _WIDTH:
            rows[-1] += f" {piece}"
        else:
            rows.append(piece)
    return rows
