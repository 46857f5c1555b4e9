"""What a kernel is given: tensor maps, and the buffers that it reaches through pointers."""

from __future__ import annotations

from nautile.codegen import closing
from nautile.codegen.kernel_text import identifier
from nautile.codegen.memory import Close, Pointwise, Store
from nautile.codegen.sm90.memory import Convert, Mask, RoleProgram, StoreTile, Stream, operations
from nautile.codegen.source import TensorMap
from nautile.terms import Buffer, Load, Term, walk

__all__ = ["maps", "pointers"]


def maps(program: RoleProgram) -> dict[TensorMap, str]:
    """The name of every tensor map, in the order of parameters."""
    names: dict[TensorMap, str] = {}
    boxes = [b.map for ring in program.rings for b in ring.boxes]
    stores = [
        op.map
        for op in operations((*program.producer, *program.consumer))
        if isinstance(op, StoreTile)
    ]
    for made in dict.fromkeys((*boxes, *stores)):
        name = plain = f"map_{identifier(made.buffer)}"
        number = 2
        while name in names.values():
            name, number = f"{plain}_{number}", number + 1
        names[made] = name
    return names


def pointers(program: RoleProgram, close: Close | None = None) -> tuple[list[Buffer], list[Buffer]]:
    """What is read and written through pointers."""
    reads: dict[Buffer, None] = {}
    writes: dict[Buffer, None] = {}

    def note(*terms: Term | None) -> None:
        given = [t for t in terms if t is not None]
        reads.update((t.buffer, None) for t in walk(*given) if isinstance(t, Load))

    for op in operations((*program.producer, *program.consumer, *program.former)):
        match op:
            case Convert(_, _, sources, value):
                held = {load for load, _, _ in sources}
                reads.update(
                    (t.buffer, None) for t in walk(value) if isinstance(t, Load) and t not in held
                )
            case Pointwise(_, value, whole):
                note(value, whole)
            case Mask(_, keep, _):
                note(keep)
            case Stream(_, _, b, _, _, _):
                note(b.first, b.stop, b.whole_first, b.whole_stop)
            case StoreTile():
                note(op.value)
            case Store(buffer, places, _, _):
                note(*places)
                writes[buffer] = None
    if close is not None:
        reads.update(dict.fromkeys(closing.reads(close)))
        writes.update(dict.fromkeys((*close.states, *closing.writes(close))))
    return list(reads), list(writes)
