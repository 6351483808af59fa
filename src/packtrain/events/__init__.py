"""What happened: events, failures and the journal that keeps them. Rides to the worker.

Start with `kinds` (every kind of event and its fields) and `failure` (every way to fail: whose
fault, whether it passes, which exit code). Not here: what follows from events (`state`).
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
