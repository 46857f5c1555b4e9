"""Two runs of a program, and why they differ: devices, numerics classes, rules, sizes, releases.

`sides` reads runs, `live` makes them, `compare` tells what changed, `causes` why, `difference` puts
both together, and `commands` is `nautile diff`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["Cause", "Difference", "diff"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'nautile.inspector.diff' has no attribute {name!r}")
    return getattr(import_module("nautile.inspector.diff.difference"), name)
