"""A task: one program to optimize, as plain data that any process or machine can run.

```
Task     ::= text, program, filename, dims        the file's text, and which of its programs
             settings, limits                     what is asked for, and what it may cost
             key, ingredients, names              what the result depends on (see provenance.py)
Outcome  ::= key, ingredients, names, record (as `optimize --json`), artifacts {path: bytes}
Names    ::= program, buffers, families           in the order of the canonical program
```

`tasks_of` reads a text into tasks, `run` does one, and `renamed` gives an outcome the names of
another program of the same key: equal results are made once.
"""

from nautile.provenance import versions
from nautile.task.make import pack_of, tasks_of
from nautile.task.model import Limits, Names, Outcome, Pack, Settings, Task
from nautile.task.renaming import renamed, renamed_files
from nautile.task.run import failed, run

__all__ = [
    "Limits",
    "Names",
    "Outcome",
    "Pack",
    "Settings",
    "Task",
    "failed",
    "pack_of",
    "renamed",
    "renamed_files",
    "run",
    "tasks_of",
    "versions",
]
