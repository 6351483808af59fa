"""The events of one run, written under the supervisor's lease and folded to the state.

A supervisor keeps no state of its own: everything it knows, it reads back from the store.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from packtrain.engines.updates import AttemptUpdate
from packtrain.events import Event, kinds, new_emitter_id
from packtrain.state import RunState
from packtrain.state.run import INFORMATIONAL_KINDS
from packtrain.store import Lease, Store
from packtrain.supervise.collector import Collector
from packtrain.supervise.decisions import Decision, event_from_decision
from packtrain.supervise.lease import LEASE_TTL_S, acquire_lease

_logger = logging.getLogger("packtrain.supervise")
# After these events an execution may have ended. A job may end before the engine reports its last execution.
_END_KINDS = frozenset({kinds.ATTEMPT_GONE, kinds.EXECUTION_INTERRUPTED, kinds.JOB_ENDED})


class LeasedRun:
    """One run and the lease that lets this process change it.

    Attributes:
        state: The state of the run, as far as events have been read.
        changed_job_ids: Jobs with new events. The supervisor removes those that it has decided about.
        ended_job_ids: Jobs of which an execution may have ended. The supervisor removes those that it has handled.
    """

    def __init__(
        self,
        store: Store,
        run_id: str,
        state: RunState,
        collector: Collector,
        lease: Lease | None,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self._store, self._run_id, self._collector = store, run_id, collector
        self._clock, self._monotonic = clock, monotonic
        self._emitter, self._seq, self._last_event_id = new_emitter_id("supervisor"), 0, 0
        self._lease, self._renewed_at, self._renewed_clock_at = lease, monotonic(), clock()
        self.state = state
        self.changed_job_ids: set[str] = set(state.jobs)
        self.ended_job_ids: set[str] = set()
        if lease:
            self._emit_started(lease)

    def acquire_lease(self) -> None:
        """Acquire the lease, unless this object has it. Raises UnavailableError if another supervisor holds it."""
        if self._lease is None:
            self._lease, self._renewed_at = acquire_lease(self._store, self._run_id), self._monotonic()
            self._renewed_clock_at = self._clock()
            self._emit_started(self._lease)

    def _emit_started(self, lease: Lease) -> None:
        _logger.debug("%s: holds the lease, epoch %d", self._run_id, lease.epoch)
        self.emit([("", kinds.SUPERVISOR_STARTED, {"host": lease.host, "pid": lease.pid})])

    def renew_lease(self) -> None:
        """Renew the lease if a third of its time has passed. Raises LeaseLostError."""
        assert self._lease is not None
        if self._monotonic() - self._renewed_at > LEASE_TTL_S / 3:
            self._store.renew_lease(self._lease, LEASE_TTL_S)
            self._renewed_at, self._renewed_clock_at = self._monotonic(), self._clock()
            _logger.debug("%s: renewed the lease", self._run_id)

    def is_lease_current(self) -> bool:
        """Return whether the lease cannot have expired; also called by other threads, and after the process froze."""
        return self._lease is not None and self._clock() < self._renewed_clock_at + LEASE_TTL_S

    def release_lease(self, reason: str) -> None:
        """Release the lease, and store why."""
        if self._lease is not None:
            self.emit([("", kinds.SUPERVISOR_ENDED, {"reason": reason})])
            self._store.release_lease(self._lease)
            _logger.debug("%s: released the lease: %s", self._run_id, reason)
            self.read_new_events()

    def forget_lease(self) -> None:
        """Do not release the lease, because another supervisor has it."""
        _logger.debug("%s: lost the lease", self._run_id)
        self._lease = None

    def emit(self, entries: Sequence[tuple[str, str, dict[str, Any]]]) -> None:
        """Append events (job, kind, data). A supervisor that lost its lease cannot write, and so does not act.

        Raises:
            LeaseLostError: Another supervisor holds the lease.
        """
        assert self._lease is not None
        self._store.append([self._make_event(*entry, self._lease.epoch) for entry in entries], lease=self._lease)

    def _make_event(self, job: str, kind: str, data: dict[str, Any], epoch: int) -> Event:
        self._seq += 1
        event_data = {**data, "epoch": epoch}
        return Event(self._run_id, job, self._emitter, self._seq, kind, self._clock(), self._monotonic(), event_data)

    def store_decisions(self, decisions: Sequence[Decision]) -> None:
        """Store decisions, so that after a crash the next supervisor knows them. Raises LeaseLostError."""
        for decision in decisions:
            _logger.debug("%s: decided %s", self._run_id, decision)
        self.emit([(decision.job, *event_from_decision(decision)) for decision in decisions])
        self.read_new_events()

    def collect(self, updates: Sequence[AttemptUpdate]) -> None:
        """Store what the engine reported and what agents wrote into their journals, and apply it."""
        self._collector.collect(self.state, updates)
        self.read_new_events()

    def read_new_events(self) -> None:
        """Apply the events that were stored since the last call, by any process."""
        for stored in self._store.events(self._run_id, self._last_event_id):
            self.state.apply(stored.event, stored.received_at)
            self._last_event_id = stored.id
            if stored.event.job and stored.event.kind not in INFORMATIONAL_KINDS:
                self.changed_job_ids.add(stored.event.job)
            if stored.event.kind in _END_KINDS:
                self.ended_job_ids.add(stored.event.job)
