"""Events, failures and the journal. Shipped to the worker.

An *event* is one entry in the history of a run, unique by (run, job, emitter, seq). An *emitter* is a process that
writes events: a supervisor, an engine or an agent. A *journal* is an emitter's append-only file of events. A *failure*
has a kind; one table says who is to blame for each kind, whether it is transient and what packtrain does about it.

Start with `kinds` (every event and its data) and `failure` (the failure table). The package `state` derives the state
of a run from events.
"""

from packtrain.events.event import Event, new_emitter_id
from packtrain.events.failure import FAILURE_KINDS as FAILURE_KINDS
from packtrain.events.failure import Failure, FailureKind
from packtrain.events.journal import Journal, JournalReader
from packtrain.events.redact import Redactor

__all__ = [
    "FAILURE_KINDS",
    "Event",
    "Failure",
    "FailureKind",
    "Journal",
    "JournalReader",
    "Redactor",
    "new_emitter_id",
]
