"""Events in, state out. The result depends on the set of events only, not on their order or number."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from packtrain.events import Event, kinds
from packtrain.state.job import JobState, order_of
from packtrain.state.record import Record
from packtrain.state.table import JobStatus


@dataclass
class RunState:
    run: str
    jobs: dict[str, JobState] = field(default_factory=dict)
    created: Event | None = None
    _supervisor: Event | None = None  # the newest started or ended
    _record: Record = field(default_factory=Record)
    _undrawn: set[str] = field(default_factory=set)  # jobs that changed since the record was drawn

    def apply(self, event: Event, arrived: float = 0.0) -> None:
        """Take one event. Unknown kinds are skipped, and so is one whose data is not what its kind says."""
        with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
            self._take(event, arrived)

    def _take(self, event: Event, arrived: float) -> None:
        if event.job:
            self._undrawn.add(event.job)
            self.job(event.job).apply(event, arrived)
        elif event.kind == kinds.RUN_CREATED:
            self._create(event)
        elif event.kind in (kinds.SUPERVISOR_STARTED, kinds.SUPERVISOR_ENDED):
            self._supervisor = _newer(self._supervisor, event)

    def _create(self, event: Event) -> None:
        self.created = event
        for job, point in event.data.get("points", {}).items():
            self.job(job).point = point

    def see(self, glimpses: Mapping[str, Mapping[str, Any]]) -> None:
        """How far running attempts are, by job, where a pool tells it."""
        for job, glimpse in glimpses.items():
            self.job(job).see(glimpse)
        self._undrawn.update(glimpses)

    def job(self, job: str) -> JobState:
        return self.jobs.setdefault(job, JobState(job))

    @property
    def about(self) -> Mapping[str, Any]:
        """What was said at its creation: name, engine, folder."""
        return self.created.data if self.created else {}

    @property
    def supervised(self) -> bool:
        """Whether the last word of a supervisor was that it started; its lease tells if it still lives."""
        return self._supervisor is not None and self._supervisor.kind == kinds.SUPERVISOR_STARTED

    @property
    def finished(self) -> bool:
        return bool(self.jobs) and all(job.verdict for job in self.jobs.values())

    @property
    def record(self) -> Record:
        """What its attempts tell about places and mistakes."""
        for name in self._undrawn & self.jobs.keys():
            self._record.draw(self.jobs[name])
        self._undrawn.clear()
        return self._record

    def count(self, status: JobStatus) -> int:
        return sum(job.status is status for job in self.jobs.values())


def _newer(known: Event | None, event: Event) -> Event:
    return event if known is None or order_of(known) <= order_of(event) else known


def fold(run: str, events: Iterable[Event]) -> RunState:
    state = RunState(run)
    for event in events:
        state.apply(event)
    return state
