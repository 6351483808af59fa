"""The run store: one SQLite file per user that holds the events of all runs.

The *store* is append-only: events are added, never changed. A *lease* is the right to supervise a run; each new holder
gets a higher *epoch*, and the store rejects writes of older ones. A *cursor* is how far a journal has been read.

Start with `api` (the protocol) and `schema.sql` (the tables). `sqlite` implements the protocol, `location` finds the
file. The package `state` interprets the events.
"""

from packtrain.store.api import Lease, RunInfo, Store, StoredEvent
from packtrain.store.location import store_path
from packtrain.store.sqlite import SqliteStore

__all__ = ["Lease", "RunInfo", "SqliteStore", "Store", "StoredEvent", "store_path"]
