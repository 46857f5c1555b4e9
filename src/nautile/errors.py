"""Every error that Nautile raises on purpose, as one tree with stable codes.

```
NautileError                    code, message; exit status of the command line
├── InputError            (2)   the user's input cannot be handled as it stands
│   ├── SourceError             an expression or rule file, with the line quoted under a caret
│   └── LimitError              a stated limit (bytes, depth, terms) was passed
├── SaturationError       (1)   the e-graph child failed, or a rule proved two constants equal
├── ExtractionError       (1)   no feasible program within the limits of the device
├── LoweringError         (1)   a kernel has a shape that no schedule covers
├── CompileError          (1)   NVRTC or the gate on its report refused a kernel
├── CertificateError      (3)   the chosen program does not compute what the source computes
├── BundleError           (2)   a bundle on disk is missing, damaged or of another version
├── LaunchError           (2)   arguments or device do not fit the bundle; nothing was launched
├── StoreError            (2)   the store of results cannot be opened, read or written
└── RequestError          (2)   the service refuses a request, with the HTTP status to answer
```

The codes are shared by the command line, its JSON and the service; scripts may depend on them.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "BundleError",
    "CertificateError",
    "CompileError",
    "ExecutionError",
    "ExtractionError",
    "InputError",
    "LaunchError",
    "LimitError",
    "LoweringError",
    "NautileError",
    "RequestError",
    "SaturationError",
    "SourceError",
    "StoreError",
]


class NautileError(Exception):
    """An error with a stable `code`, a `message` for people and an `exit_status`."""

    exit_status: ClassVar[int] = 1
    default_code: ClassVar[str] = "error"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code

    def as_dict(self) -> dict[str, object]:
        """The error as the JSON outputs show it."""
        return {"code": self.code, "message": self.message}


class InputError(NautileError):
    """The input cannot be handled; the message says what to write instead."""

    exit_status = 2
    default_code = "input"


class SourceError(InputError):
    """An error at a place in a source file; `line` and `column` count from 1. `text` quotes it,
    or the part of a long one that holds the place; `caret` is the place's offset in it."""

    default_code = "source"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        filename: str = "<text>",
        line: int = 0,
        column: int = 0,
        text: str = "",
        caret: int | None = None,
    ) -> None:
        super().__init__(message, code=code)
        self.filename, self.line, self.column, self.text = filename, line, column, text
        self.caret = max(column - 1, 0) if caret is None else caret

    def __str__(self) -> str:
        place = f"{self.filename}:{self.line}:{self.column}" if self.line else self.filename
        head = f"{place}: {self.message}"
        if not self.text:
            return head
        return f"{head}\n    {self.text}\n    {' ' * self.caret}^"

    def as_dict(self) -> dict[str, object]:
        place = {"file": self.filename, "line": self.line, "column": self.column}
        return super().as_dict() | place | {"text": self.text}


class LimitError(InputError):
    """The input passes a stated limit."""

    default_code = "limit"


class SaturationError(NautileError):
    """Saturation failed: the child died, or the rules proved two constants equal."""

    default_code = "saturation"


class ExtractionError(NautileError):
    """No set of candidate kernels yields the outputs within the device's limits."""

    default_code = "extraction"


class LoweringError(NautileError):
    """A kernel cannot be lowered: the message names the construct."""

    default_code = "lowering"


class CompileError(NautileError):
    """A generated kernel was refused by the compiler or by the gate on its report."""

    default_code = "compile"


class CertificateError(NautileError):
    """The chosen program failed a check against its source."""

    exit_status = 3
    default_code = "certificate"


class BundleError(NautileError):
    """A bundle folder is missing, damaged, or of a version that this release cannot read."""

    exit_status = 2
    default_code = "bundle"


class LaunchError(NautileError):
    """The arguments or the device do not fit the bundle; nothing was launched."""

    exit_status = 2
    default_code = "launch"


class ExecutionError(NautileError):
    """A task was not finished, through no fault that a stage has found in it.

    Codes: `worker-died` (its process crashed or was killed), `time-limit` and `memory-limit` (the
    task's own), `cancelled`, `internal` (a defect of Nautile: the message quotes it).
    """

    default_code = "worker-died"


class StoreError(NautileError):
    """The store of results cannot do what was asked; what it held before, it still holds.

    Codes: `store-full` (disk, quota or file-size limit), `store-read-only`, `store-permission`,
    `store-missing`, `store-foreign` (a file, folder or database that is not a store),
    `store-mismatch` (the artifacts of another store), `store-newer` (of a later release),
    `store-outdated` (of an earlier one, opened read-only), `store-busy`, `store-corrupt`,
    `store-unreachable` (the database server), `store-closed`, `store-archive` (a file to import
    that is malformed), `store-usage` (a key, path or address that no store takes), `store-driver`
    (a package to install), `store-io`, and `store` for the rest.
    """

    exit_status = 2
    default_code = "store"


class RequestError(NautileError):
    """The service refuses a request: the HTTP status to answer, and after how many seconds to ask
    again, where that helps."""

    exit_status = 2
    default_code = "request"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        http_status: int = 400,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message, code=code)
        self.http_status, self.retry_after = http_status, retry_after
