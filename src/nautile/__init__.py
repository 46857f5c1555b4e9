"""Nautile: an equality-saturation superoptimizer for tensor programs.

```python
import nautile

result = nautile.optimize(open("attention.nau").read())
print(result.as_text())
```

Names load on first use, so that the run-time launcher (`nautile.runtime`) needs numpy and cupy
alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"
__all__ = [
    "Optimization",
    "Options",
    "explain",
    "load_bundle",
    "optimize",
    "parse",
    "why_not",
    "write_bundle",
]

_HOMES = {
    "optimize": "nautile.stages",
    "Options": "nautile.stages",
    "Optimization": "nautile.stages",
    "explain": "nautile.inspector",
    "why_not": "nautile.inspector.explanation",
    "parse": "nautile.lang",
    "write_bundle": "nautile.bundle",
    "load_bundle": "nautile.bundle",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'nautile' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
