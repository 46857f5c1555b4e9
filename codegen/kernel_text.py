"""What the text of every kernel shares: identifiers, parameters, scalar accesses, the comment."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from nautile.codegen.show import show
from nautile.codegen.tidy import tidied
from nautile.codegen.tile import Ref, TileProgram
from nautile.codegen.types import carrier, literal
from nautile.terms import Buffer, Cast, Index, Term, transform

__all__ = [
    "ELEMENT",
    "comment",
    "identifier",
    "indented",
    "parameters",
    "pointer",
    "pruned",
    "scalar_load",
    "scalar_store",
    "wide_offset",
    "widen",
]

ELEMENT = {
    "f64": "double",
    "f32": "float",
    "tf32": "float",
    "bf16": "nt_u16",
    "f16": "nt_u16",
    "f8e4m3": "nt_u8",
    "f8e5m2": "nt_u8",
    "i64": "nt_i64",
    "i32": "int",
    "i8": "signed char",
    "bool": "nt_u8",
}
_RESERVED_START = ("nt_", "__")
_CONSTANT = re.compile(
    r"\s*const (?:int|bool|float|double|nt_u32|nt_i64) (\w+) = (?!.*atomic)[^,;]*;$"
)


def identifier(name: str) -> str:
    """A C identifier for any name: other characters by their code points."""
    spelled = "".join(
        c if c.isascii() and (c.isalnum() or c == "_") else f"x{ord(c):x}" for c in name
    )
    if not spelled or spelled[0].isdigit() or spelled.startswith(_RESERVED_START):
        spelled = f"k_{spelled}"
    return f"{spelled}_" if spelled in _KEYWORDS else spelled


_KEYWORDS = frozenset(
    """alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl const
    constexpr const_cast continue decltype default delete do double dynamic_cast else enum explicit
    export extern false float for friend goto if inline int long mutable namespace new noexcept not
    not_eq nullptr operator or or_eq private protected public register reinterpret_cast return short
    signed sizeof static static_assert static_cast struct switch template this thread_local throw
    true try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor
    xor_eq main threadIdx blockIdx blockDim gridDim""".split()  # noqa: SIM905
)


def pointer(buffer: Buffer) -> str:
    """The parameter that points to a buffer."""
    return f"p_{identifier(buffer.name)}"


def parameters(inputs: Sequence[Buffer], outputs: Sequence[Buffer]) -> str:
    """The parameter list: inputs first, `const`."""
    rows = [f"const {ELEMENT[b.dtype]}* __restrict__ {pointer(b)}" for b in inputs]
    rows += [f"{ELEMENT[b.dtype]}* __restrict__ {pointer(b)}" for b in outputs]
    return ", ".join(rows)


def indented(line: str, depth: int) -> str:
    """The line moved right; directives and empty lines too."""
    return "  " * depth + line if line else line


def comment(program: TileProgram) -> list[str]:
    """The tile program as a comment."""
    return [f"// {line}" for line in show(program).splitlines()]


def wide_offset(buffer: Buffer, offset: Term) -> Term:
    """The offset in 64 bits where the buffer has 2^31 elements or more."""
    if buffer.size < 2**31:
        return offset
    return transform(offset, lambda t: Cast("i64", t) if isinstance(t, (Index, Ref)) else t)


_LOADED = {
    "bf16": "nt_f32_of_bf16({})",
    "f16": "nt_f32_of_f16({})",
    "f8e4m3": "nt_f32_of_f8e4m3({})",
    "f8e5m2": "nt_f32_of_f8e5m2({})",
    "bool": "{} != 0",
    "i8": "(int){}",
}
_STORED = {
    "bf16": "nt_bf16_of_f32({})",
    "f16": "nt_f16_of_f32({})",
    "tf32": "nt_tf32_of_f32({})",
    "f8e4m3": "nt_f8e4m3_of_f32({})",
    "f8e5m2": "nt_f8e5m2_of_f32({})",
    "i8": "(signed char){}",
    "bool": "{} ? 1 : 0",
}


def widen(dtype: str, element: str) -> str:
    """A stored element in its carrier."""
    return _LOADED.get(dtype, "{}").format(element)


def scalar_load(buffer: Buffer, offset: str, guards: Sequence[tuple[str, int]] = ()) -> str:
    """One element, widened; 0 where a guarded coordinate leaves the buffer."""
    value = widen(buffer.dtype, f"{pointer(buffer)}[{offset}]")
    if not guards:
        return f"({value})"
    inside = " && ".join(f"{c} >= 0 && {c} < {n}" for c, n in guards)
    return f"({inside} ? {value} : {literal(0, carrier(buffer.dtype))})"


def scalar_store(buffer: Buffer, offset: str, value: str) -> str:
    """The statement that stores one element, rounded."""
    return f"{pointer(buffer)}[{offset}] = {_STORED.get(buffer.dtype, '{}').format(value)};"


def pruned(lines: list[str]) -> list[str]:
    """Lines without the constants that nothing reads, and without identities of arithmetic."""
    lines = tidied(lines)
    while True:
        uses = Counter(word for line in lines for word in re.findall(r"\w+", line))
        kept = [x for x in lines if not (m := _CONSTANT.match(x)) or uses[m.group(1)] > 1]
        if len(kept) == len(lines):
            return lines
        lines = kept
