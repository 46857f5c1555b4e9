"""One module a migration: `mNNNN_subject.py`, with `revision = "NNNN"` and the one before it.

A migration is never edited once it is released: it works on names and types of its own, and not
on `nautile.store.schema`, which is the newest schema. Each runs in one transaction together with
the change of the version, on SQLite too: a process that dies inside has changed nothing.
"""
