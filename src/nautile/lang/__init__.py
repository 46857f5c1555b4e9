"""The expression language: text to programs (`parse`, `parse_file`) and back (`show`, `show_term`).

```
file       ::= program+                            Python syntax, read with ast, never executed
program    ::= def name(parameters, *, N=4096, ...) -> types: line+ return results
parameter  ::= x: bf16[N, 2*D] | eps: f32 = 1e-6
line       ::= y[i, j: J] = expression | s = expression | y, h = name(x, w)
expression ::= number | inf | nan | N | i | x[coordinate, ...] | expression operator expression
             | expression if expression else expression | function(expression, ...)
             | reducer[i, j: J](expression) | bf16(expression)
             | name[i](expression, ..., eps=1e-5) | name(x, w)[i, j]
coordinate ::= an affine integer expression, // and % by constants; elements of integer tensors
```

Every error is a SourceError (or another InputError) with a stable code: unknown-name, wrong-rank,
no-range, out-of-range, size-mismatch, bad-size, no-size, cyclic-definition, used-before-definition,
assigned-twice, name-clash, reserved, bad-index, wrong-type, wrong-arguments, unsupported, syntax,
limit, missing-file, not-a-file, unreadable-file, not-text.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nautile.lang.identity import anonymous, key, spelling
    from nautile.lang.parser import parse, parse_file
    from nautile.lang.printer import show, show_term

__all__ = ["anonymous", "key", "parse", "parse_file", "show", "show_term", "spelling"]

_HOMES = {
    "anonymous": "identity",
    "key": "identity",
    "parse": "parser",
    "parse_file": "parser",
    "show": "printer",
    "show_term": "printer",
    "spelling": "identity",
}


def __getattr__(name: str) -> Any:
    """Names load on first use: who finds programs by their texts' digests needs no parser, nor the
    NumPy types that it knows."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = found
    return found
