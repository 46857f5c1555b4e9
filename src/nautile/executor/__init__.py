"""Executors run tasks: plain data in, plain data out, in any order, each at least once.

```
Executor ::= submit(task) -> ticket          never waits
             next(timeout) -> Done | None    the next outcome, as they come
             results() -> Done ...           until nothing is left
             cancel(ticket)                  its outcome is the error `cancelled`
             close()                         ends what runs, and every process
Done     ::= ticket, task, outcome
```

A task may be run again wherever its worker was lost: running is idempotent, and the store of
results keeps the first one. `Pool` runs tasks in processes of this machine; a task that crashes,
hangs or takes too much memory costs its worker and its own record, and nothing else. `Cluster`
(ray_cluster.py) runs them on the machines of a Ray cluster; a `Place` names either.
"""

from nautile.executor.machine import Machine, machine
from nautile.executor.place import Place
from nautile.executor.pool import Pool
from nautile.executor.protocol import Done, Executor

__all__ = ["Done", "Executor", "Machine", "Place", "Pool", "machine"]
