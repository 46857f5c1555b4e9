"""Options that several commands share, as types for typer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nautile.errors import InputError

__all__ = [
    "Accept",
    "Arch",
    "Candidates",
    "Compile",
    "Dims",
    "Files",
    "Json",
    "Memory",
    "Numerics",
    "Out",
    "Quiet",
    "Rows",
    "Rules",
    "Seconds",
    "Target",
    "sizes_of",
]

Files = Annotated[list[Path], typer.Argument(help="Expression files (.nau).", show_default=False)]
Dims = Annotated[str, typer.Option(help="Sizes to use instead of the defaults: T=8192,S=8192.")]
Target = Annotated[str, typer.Option(help="Device to optimize for; see `nautile devices`.")]
Numerics = Annotated[str, typer.Option(help="Largest numerics class allowed: exact, real or fast.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a program, one a line.")]
Out = Annotated[Path | None, typer.Option("-o", "--output", help="Folder for the bundles.")]
Compile = Annotated[
    bool | None,
    typer.Option(help="Compile to cubins (default: only when -o is given)."),
]
Arch = Annotated[str, typer.Option(help="Architectures to compile for: sm_80,sm_90.")]
Candidates = Annotated[
    int,
    typer.Option(min=1, max=256, help="Schedules of a kernel that `nautile bench` chooses among."),
]
Rules = Annotated[
    list[str] | None,
    typer.Option(help="A pack of rules to add: a file (checked first), or casts, masks, ..."),
]
Accept = Annotated[
    list[str] | None,
    typer.Option(help="A rule of these packs to use though it is not found sound, by name."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on standard error.")]
Seconds = Annotated[
    float, typer.Option(min=0.001, max=86_400, help="Time limit of one region's saturation.")
]
Rows = Annotated[
    int, typer.Option(min=1, max=100_000_000, help="Row limit of one region's e-graph.")
]
Memory = Annotated[
    float, typer.Option(min=0.001, max=4096, help="Memory that saturation may add, in GiB.")
]


def sizes_of(text: str) -> dict[str, int]:
    """The sizes that `--dims` asks for. Raises InputError for anything but NAME=NUMBER,..."""
    sizes: dict[str, int] = {}
    for item in filter(None, text.split(",")):
        name, equals, value = item.partition("=")
        try:
            sizes[name.strip()] = int(value)
        except ValueError:
            equals = ""
        if not equals or not name.strip().isidentifier():
            raise InputError(f"--dims takes NAME=NUMBER,...: not {item!r}", code="usage")
    return sizes
