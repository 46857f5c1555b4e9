"""Structured logs: one JSON object a line on standard error.

```
{"time", "level", "logger", "message", "request_id"?, ...}
```
Texts of programs, tokens and tickets never enter a log.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

__all__ = ["LOG", "configure", "event"]

LOG = logging.getLogger("nautile.service")
_FIELDS = "nautile_fields"


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        shown: dict[str, Any] = {
            "time": moment,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        shown |= getattr(record, _FIELDS, {})
        if record.exc_info:
            shown["error"] = self.formatException(record.exc_info)
        return json.dumps(shown, default=str)


def configure(level: int = logging.INFO) -> None:
    """Send all logs of this process to standard error, as lines of JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines())
    logging.root.handlers[:] = [handler]
    logging.root.setLevel(logging.WARNING)
    LOG.setLevel(level)
    logging.getLogger("nautile.store").setLevel(level)


def event(message: str, level: int = logging.INFO, *, error: bool = False, **fields: Any) -> None:
    """Log what happened, with its facts, and the error that is being handled."""
    LOG.log(level, message, exc_info=error, extra={_FIELDS: fields})
