"""Events in, state out. The result depends on the set of events only, not on their order or number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from packtrain.events import Event, kinds
from packtrain.state.job import AGENT_KINDS, JobState, order_of
from packtrain.state.outcomes import Record
from packtrain.state.transitions import JobStatus

# They tell how far an attempt is, not that it ended or what was decided: no policy has to answer them.
QUIET = (AGENT_KINDS - {kinds.ATTEMPT_ENDED}) | {kinds.CONFIRMED, kinds.ATTEMPT_PLACED, kinds.ATTEMPT_TRANSFER}
_JUDGING = frozenset({kinds.JOB_ENDED, kinds.DECIDED})


@dataclass
class RunState:
    run: str
    jobs: dict[str, JobState] = field(default_factory=dict)
    created: Event | None = None
    has_points: bool = False  # whether its jobs are those of a matrix
    _supervisor: Event | None = None  # the newest started or ended
    _record: Record = field(default_factory=Record)
    _undrawn: set[str] = field(default_factory=set)  # jobs that changed since the record was drawn
    _moving: set[str] = field(default_factory=set)  # jobs that are further since then, but not otherwise
    _judged: set[str] = field(default_factory=set)  # jobs that have their verdict
    forgets: bool = False  # such jobs keep nothing but it, and are not spoken of again: memory counts in simulations
    _husks: set[str] = field(default_factory=set)  # those

    def apply(self, event: Event, arrived: float = 0.0) -> None:
        """Take one event. Unknown kinds are skipped, and so is one whose data is not what its kind says."""
        try:  # noqa: SIM105  (done for every event: `suppress` takes longer than what it guards)
            self._take(event, arrived)
        except (KeyError, TypeError, ValueError, AttributeError):
            pass

    def _take(self, event: Event, arrived: float) -> None:
        if event.job in self._husks:
            return
        if event.job:
            (self._moving if event.kind in QUIET else self._undrawn).add(event.job)
            job = self.job(event.job)
            job.apply(event, arrived)
            if event.kind in _JUDGING:
                (self._judged.add if job.verdict else self._judged.discard)(job.id)
        elif event.kind == kinds.RUN_CREATED:
            self._create(event)
        elif event.kind in (kinds.SUPERVISOR_STARTED, kinds.SUPERVISOR_ENDED):
            self._supervisor = _newer(self._supervisor, event)

    def _create(self, event: Event) -> None:
        self.created = event
        for job, point in event.data.get("points", {}).items():
            self.job(job).point = point
            self.has_points = self.has_points or bool(point)

    def see(self, glimpses: Mapping[str, Mapping[str, Any]], now: float = 0.0) -> None:
        """How far running attempts are, by decision, where a pool tells it."""
        for decision, glimpse in glimpses.items():
            job = decision.rpartition("-")[0]
            if job in self.jobs and job not in self._husks:
                self.jobs[job].see(decision, glimpse, now)
                self._moving.add(job)

    def job(self, job: str) -> JobState:
        if job not in self.jobs:
            self.jobs[job] = JobState(job)
        return self.jobs[job]

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
        return bool(self.jobs) and len(self._judged) == len(self.jobs)

    @property
    def record(self) -> Record:
        """What its attempts tell about places and mistakes."""
        drawn = self.outcomes
        for name in self._moving & self.jobs.keys():
            drawn.further(self.jobs[name])
        self._moving.clear()
        return drawn

    @property
    def outcomes(self) -> Record:
        """The same, where only what ended matters: how far those are that run may be older."""
        for name in self._undrawn & self.jobs.keys():
            self._record.draw(self.jobs[name])
            if name in self._judged:
                self._rest(name)
        self._moving -= self._undrawn
        self._undrawn.clear()
        return self._record

    @property
    def is_crowded(self) -> bool:
        """Whether more wait for a machine than can be free, known without a look at how far those are that run."""
        return self.outcomes.pace.is_crowded(self._moving)

    def _rest(self, name: str) -> None:
        """Of a job with two copies what they cost is asked for later."""
        if self.forgets and name not in self._record.pace.copied:
            self.jobs[name].shed()
            self._husks.add(name)
        else:
            self.jobs[name].rest()

    def count(self, status: JobStatus) -> int:
        return sum(job.status is status for job in self.jobs.values())


def _newer(known: Event | None, event: Event) -> Event:
    return event if known is None or order_of(known) <= order_of(event) else known


def fold(run: str, events: Iterable[Event]) -> RunState:
    state = RunState(run)
    for event in events:
        state.apply(event)
    return state
