"""One job: its attempts and its verdict. Collects events in any order; properties draw the picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from packtrain.events import Event, Failure, kinds
from packtrain.state.attempt import Attempt, Heard, Submission, attempt_of
from packtrain.state.table import JOB_STATUS, LIVE, AttemptStatus, JobStatus

Order = tuple[int, int]  # (epoch, seq): the order of everything supervisors of a run wrote
_NEVER: Order = (-1, -1)
_AGENT_KINDS = frozenset(
    {
        kinds.ATTEMPT_STARTED,
        kinds.ATTEMPT_ENDED,
        kinds.STAGE_STARTED,
        kinds.STAGE_ENDED,
        kinds.STEP_STARTED,
        kinds.STEP_ENDED,
        kinds.PROGRESS,
        kinds.METRIC,
        kinds.CHECKPOINT_SAVED,
        kinds.CHECKPOINT_RESTORED,
        kinds.NOTICE,
    }
)


@dataclass(frozen=True)
class Verdict:
    status: JobStatus
    order: Order
    emitter: str = ""  # of a succeeded one: the agent whose outputs were accepted
    failure: Failure | None = None
    reason: str = ""

    @classmethod
    def of(cls, event: Event) -> Verdict:
        data = event.data
        failure = Failure.from_data(data["failure"]) if data.get("failure") else None
        return cls(
            JobStatus(data["verdict"]),
            order_of(event),
            data.get("emitter", ""),
            failure,
            data.get("reason", ""),
        )


def order_of(event: Event) -> Order:
    return (int(event.data.get("epoch", 0)), event.seq)


@dataclass
class JobState:
    id: str
    point: Mapping[str, str] = field(default_factory=dict)
    _submissions: dict[str, Submission] = field(default_factory=dict)
    _confirmed: dict[str, Event] = field(default_factory=dict)
    _gone: dict[str, Event] = field(default_factory=dict)
    _heard: dict[str, Heard] = field(default_factory=dict)
    _verdict: Verdict | None = None
    _reopened: Order = _NEVER
    _requests: dict[str, Event] = field(default_factory=dict)
    _answered: set[str] = field(default_factory=set)
    _cancelled: set[str] = field(default_factory=set)
    _attempts: tuple[Attempt, ...] | None = None  # drawn when asked for
    changed_at: float = 0.0  # when the newest lifecycle event reached the store, by its clock

    def apply(self, event: Event, arrived: float) -> None:
        self._attempts = None
        if event.kind in _AGENT_KINDS:
            self._heard.setdefault(event.emitter, Heard(event.emitter)).add(event)
        elif event.kind in self._TAKES:
            self._TAKES[event.kind](self, event)
        if event.kind in (kinds.ATTEMPT_ENDED, kinds.ATTEMPT_GONE, kinds.DECIDED):
            self.changed_at = max(self.changed_at, arrived)

    def _take_decided(self, event: Event) -> None:
        action = event.data.get("action")
        if action == "submit":
            self._submissions[event.data["id"]] = Submission(event.data["id"], order_of(event))
        elif action == "reopen":
            self._reopened = max(self._reopened, order_of(event))
            self._answered.update(event.data.get("requests", ()))
        elif action == "cancel":
            self._cancelled.add(str(event.data.get("target", "")))

    def _take_confirmed(self, event: Event) -> None:
        """The first confirmation counts; a repeated one after a crash says the same."""
        known = self._confirmed.get(event.data["id"])
        if known is None or order_of(event) < order_of(known):
            self._confirmed[event.data["id"]] = event

    def _take_gone(self, event: Event) -> None:
        self._gone[event.data["decision"]] = event

    def _take_verdict(self, event: Event) -> None:
        if self._verdict is None or self._verdict.order < order_of(event):
            self._verdict = Verdict.of(event)
        self._answered.update(event.data.get("requests", ()))

    def _take_request(self, event: Event) -> None:
        self._requests[f"{event.emitter}:{event.seq}"] = event

    _TAKES = {  # noqa: RUF012
        kinds.DECIDED: _take_decided,
        kinds.CONFIRMED: _take_confirmed,
        kinds.ATTEMPT_GONE: _take_gone,
        kinds.JOB_ENDED: _take_verdict,
        kinds.REQUESTED: _take_request,
    }

    @property
    def verdict(self) -> Verdict | None:
        """None while there is none, or after the job was opened again."""
        return self._verdict if self._verdict and self._verdict.order > self._reopened else None

    @property
    def status(self) -> JobStatus:
        if self.verdict:
            return self.verdict.status
        seen = {attempt.status for attempt in self.attempts}
        return next((job for attempt, job in JOB_STATUS if attempt in seen), JobStatus.WAITING)

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """In the order of their decisions; of one decision that a pool reran, by the agents' clocks."""
        if self._attempts is None:
            self._attempts = tuple(self._draw())
        return self._attempts

    def _draw(self) -> list[Attempt]:
        by_decision: dict[str, list[Heard]] = {}
        for heard in self._heard.values():
            by_decision.setdefault(heard.decision, []).append(heard)
        drawn: list[Attempt] = []
        for submission in sorted(self._submissions.values(), key=lambda s: s.order):
            known = replace(
                submission, confirmed=self._confirmed.get(submission.id), gone=self._gone.get(submission.id)
            )
            found = [attempt_of(known, heard) for heard in by_decision.get(submission.id, [])]
            drawn += sorted(found, key=lambda a: (a.started or 0.0, a.emitter)) or [attempt_of(known, None)]
        return [replace(attempt, number=number) for number, attempt in enumerate(drawn, 1)]

    @property
    def recent(self) -> tuple[Attempt, ...]:
        """The attempts since the job was last opened: those that count against its budget."""
        return tuple(a for a in self.attempts if self._submissions[a.decision].order > self._reopened)

    @property
    def spent(self) -> tuple[Attempt, ...]:
        """Those that cost the job one of its attempts: it failed or was lost; or it left, or the pool ended it,
        without the training being further than before."""
        found, furthest = [], -1
        for attempt in self.recent:
            if not attempt.live and attempt.status is not AttemptStatus.SUCCEEDED and _costs(attempt, furthest):
                found.append(attempt)
            furthest = max(furthest, attempt.reached)
        # One that a supervisor ended, since it was interrupted itself, says nothing of the job.
        return tuple(attempt for attempt in found if not self.cancel_decided(attempt.decision))

    @property
    def live(self) -> tuple[Attempt, ...]:
        return tuple(a for a in self.attempts if a.status in LIVE)

    @property
    def latest(self) -> Attempt | None:
        return self.attempts[-1] if self.attempts else None

    @property
    def open_requests(self) -> dict[str, Mapping[str, Any]]:
        """What people asked for and no supervisor has answered yet."""
        return {key: e.data for key, e in self._requests.items() if key not in self._answered}

    def cancel_decided(self, decision: str) -> bool:
        """Whether a supervisor already told the engine to end this attempt."""
        return decision in self._cancelled

    @property
    def submissions(self) -> int:
        return len(self._submissions)


def _costs(attempt: Attempt, furthest: int) -> bool:
    by_pool = attempt.failure is not None and attempt.failure.blame == "pool"
    return attempt.reached <= furthest or not (by_pool or attempt.status is AttemptStatus.LEFT)
