"""Where events are kept: one append-only SQLite file per user, for all runs.

`api` says what a store can do, `sqlite` does it, `schema.sql` is the file's format,
`home` knows where it lies. Not here: what events mean (`state`).
"""

from packtrain.store.api import Lease, RunInfo, Store, StoredEvent
from packtrain.store.location import store_path
from packtrain.store.sqlite import SqliteStore

__all__ = ["Lease", "RunInfo", "SqliteStore", "Store", "StoredEvent", "store_path"]
