"""Why this program: explanations of what was chosen, and of what was not.

`explanation` puts together what the other modules find: `runners` (what came next),
`candidates` (every candidate and why it was not taken), `margins` (how wrong the model would have
to be), `course` (how saturation went), `measured` (predictions beside measurements), `derivation`
(the steps from the source to the chosen program), `why_not` and `diff`; `text` words it, and `page`
draws it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["Explanation", "explain"]

_HOMES = {
    "Explanation": "nautile.inspector.explanation",
    "explain": "nautile.inspector.explanation",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'nautile.inspector' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
