"""The artifact on disk: a folder of CUDA sources, cubins, launch plan, reference and certificate.

```
manifest.json       programs, buffers, launches, target, key, versions (see manifest.py)
KERNEL.cu           one source a kernel; KERNEL.sm_90.cubin its machine code by architecture.
                    A launch may have several kernels to choose from, the best first
PROGRAM.expected.json   sample inputs' recipe and the reference's values at sampled positions
certificate.json    what was checked before the bundle was written
```

A folder is written aside and renamed, so a bundle is whole or not there. Reading needs the standard
library alone; writing is where the rest of Nautile comes in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nautile.bundle.manifest import (
    Buffer,
    File,
    Implementation,
    Kernel,
    Launch,
    Manifest,
    Program,
)
from nautile.bundle.read import Loaded, load_bundle

if TYPE_CHECKING:
    from nautile.bundle.write import (
        Entry,
        Variant,
        contents_of,
        entry_of,
        variants_of,
        write_bundle,
        write_entries,
    )

__all__ = [
    "Buffer",
    "Entry",
    "File",
    "Implementation",
    "Kernel",
    "Launch",
    "Loaded",
    "Manifest",
    "Program",
    "Variant",
    "contents_of",
    "entry_of",
    "load_bundle",
    "variants_of",
    "write_bundle",
    "write_entries",
]


def __getattr__(name: str) -> Any:
    """Writers load on first use, so that launching needs nothing of theirs."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from nautile.bundle import write

    return getattr(write, name)
