"""The derivation: from the source to the chosen program, one named law at one place at a time.

An e-graph gives no proofs, so they are found afterwards. `goal` says which terms were chosen,
`reach` asks the engine whether some rules reach them, `search` applies the rules' own printed text
once more to terms that remember why they are equal (`equalities`), `ways` finds short ways between
them and `replay` makes whole programs of those. `single` and `numbers` check each step by itself:
the engine with that one law, and the oracle. `fewest` leaves out rules while the program is still
reached; `finishing` goes on from the chosen terms to the kernels."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["Derivation", "Fact", "Gap", "Place", "Step", "derive", "replays"]

_HOMES = dict.fromkeys(("Derivation", "Fact", "Gap", "Place", "Step"), "model")
_HOMES |= {"derive": "deriving", "replays": "single"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
