"""The service: optimizations over HTTP, executed by workers, with nothing lost.

```
client --HTTP--> server (gate, app, optimizations, outcomes, ...)   parses, queues, answers
                    |  jobs, runs, events, tokens: tables beside the store's own, one database
                 worker, worker, ...                                claim, execute, store
```

`nautile serve` runs the server and some workers; more workers, on any host that reaches the
database and the artifacts' folder, run by `nautile worker`. A job that was accepted is in the
database; its run is held by a lease and done again when the holder dies; its result is in the store
before it is done.
"""
