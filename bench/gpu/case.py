"""A case: one program at some sizes, what it must compute and move, and where its bundle lies.

```
Case ::= group, file, program, sizes, dtype       file: the text in bench/gpu/programs
```

A case is known by its name, which is also its bundle's folder. Sizes that a program does not set
keep the defaults of its text. Cases in another type than bf16 are the same text with that type in
the place of bf16.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["BUNDLES", "PROGRAMS", "Case", "text_of"]

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
BUNDLES = HERE.parent / "bundles" / "gpu"


@dataclass(frozen=True, slots=True)
class Case:
    """`group` is what command lines and goals call it by; cases of several groups may share a
    program, and then a bundle."""

    group: str
    file: str
    program: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    dtype: str = "bf16"

    @property
    def name(self) -> str:
        sizes = "".join(f"-{k}{v}" for k, v in self.sizes.items())
        kind = "" if self.dtype == "bf16" else f"-{self.dtype}"
        return f"{self.file}-{self.program}{sizes}{kind}"

    @property
    def folder(self) -> Path:
        return BUNDLES / self.name

    def facts(self) -> dict[str, Any]:
        """What goals select by."""
        return {"group": self.group, "program": self.program, "dtype": self.dtype, **self.sizes}


def text_of(case: Case) -> str:
    """The program's own lines of its file, in the case's type. KeyError where it has none."""
    whole = (PROGRAMS / f"{case.file}.nau").read_text()
    texts = {t.partition("(")[0]: f"def {t}" for t in whole.split("\ndef ")[1:]}
    text = texts[case.program]
    return text if case.dtype == "bf16" else re.sub(r"\bbf16\b", case.dtype, text)
