"""One job: its attempts and its verdict. Collects events in any order; properties draw the picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

from packtrain.events import Event, Failure, kinds
from packtrain.state.attempt import Attempt, Heard, Submission, attempt_of
from packtrain.state.glimpse import glimpsed
from packtrain.state.starts import Hold, Stay, paired
from packtrain.state.stretches import PoolTimes
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


_NO_STAY = Stay()
_ENGINE_KINDS = frozenset(
    {
        kinds.ATTEMPT_PLACED,
        kinds.ATTEMPT_STOPPED,
        kinds.ATTEMPT_HELD,
        kinds.ATTEMPT_RELEASED,
        kinds.ATTEMPT_TRANSFER,
    }
)


_END_KINDS = frozenset({kinds.ATTEMPT_ENDED, kinds.ATTEMPT_GONE, kinds.ATTEMPT_STOPPED, kinds.ATTEMPT_HELD})


def _ended_nothing(event: Event) -> bool:
    """A pool took back what it was still moving files for: there was no start yet."""
    return event.kind == kinds.ATTEMPT_STOPPED and not event.data.get("start")


def _end_key(event: Event) -> str:
    """Of an agent, of a start, or of a whole decision."""
    if event.kind == kinds.ATTEMPT_ENDED:
        return event.emitter
    start = event.data.get("start") if event.kind != kinds.ATTEMPT_GONE else None
    return f"{event.data['decision']}/{start}" if start else str(event.data["decision"])


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
    _stays: dict[str, Stay] = field(default_factory=dict)
    _verdict: Verdict | None = None
    _reopened: Order = _NEVER
    _requests: dict[str, Event] = field(default_factory=dict)
    _answered: set[str] = field(default_factory=set)
    _cancelled: set[str] = field(default_factory=set)
    _hold_answers: dict[tuple[str, int], str] = field(default_factory=dict)  # (decision, hold): release, give_up
    _glimpse: Mapping[str, Any] = field(default_factory=dict)
    _attempts: tuple[Attempt, ...] | None = None  # drawn when asked for
    _ends: dict[str, float] = field(default_factory=dict)  # when each end reached the store, see `_end_key`
    changed_at: float = 0.0  # when the newest lifecycle event reached the store, by its clock

    def apply(self, event: Event, arrived: float) -> None:
        if event.kind != kinds.ATTEMPT_TRANSFER:  # changes figures only
            self._attempts = None
        if event.kind in _AGENT_KINDS:
            self._heard.setdefault(event.emitter, Heard(event.emitter)).add(event)
        elif event.kind in _ENGINE_KINDS:
            self._stays.setdefault(str(event.data["decision"]), Stay()).add(event, arrived)
        elif event.kind in self._TAKES:
            self._TAKES[event.kind](self, event)
        if event.kind in (kinds.ATTEMPT_ENDED, kinds.ATTEMPT_GONE, kinds.DECIDED):
            self.changed_at = max(self.changed_at, arrived)
        if event.kind in _END_KINDS and not _ended_nothing(event):
            key = _end_key(event)
            self._ends[key] = min(arrived, self._ends.get(key, arrived))

    def _take_decided(self, event: Event) -> None:
        action = event.data.get("action")
        if action == "submit":
            about = dict(event.data.get("amendment") or {})
            self._submissions[event.data["id"]] = Submission(event.data["id"], order_of(event), amendment=about)
        elif action == "reopen":
            self._reopened = max(self._reopened, order_of(event))
            self._answered.update(event.data.get("requests", ()))
        elif action == "cancel":
            self._cancelled.add(str(event.data.get("target", "")))
        elif action in ("release", "give_up"):
            self._hold_answers[(str(event.data["target"]), int(event.data["hold"]))] = action

    def see(self, glimpse: Mapping[str, Any]) -> None:
        """How far a running attempt is, as the engine last saw it; not kept as an event."""
        if glimpse != self._glimpse:
            self._glimpse, self._attempts = glimpse, None

    @property
    def tail(self) -> Mapping[str, Any]:
        """The newest bytes of a step's log, as a pool told them: `file`, `end`, `text`."""
        found = self._glimpse.get("tail")
        return found if isinstance(found, dict) else {}

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
            drawn += self._draw_one(submission, by_decision.get(submission.id, []))
        numbered = [replace(a, number=number, over_at=self._over_at(a)) for number, a in enumerate(drawn, 1)]
        return [*numbered[:-1], glimpsed(numbered[-1], self._glimpse)] if numbered else []

    def _over_at(self, attempt: Attempt) -> float:
        keys = (attempt.emitter, f"{attempt.decision}/{attempt.start}", attempt.decision)
        return 0.0 if attempt.live else next((self._ends[key] for key in keys if key in self._ends), 0.0)

    def _draw_one(self, submission: Submission, heard: list[Heard]) -> list[Attempt]:
        """The attempts of one decision: several if a pool started it again. Only the last can be kept back or gone."""
        id_, confirmed = submission.id, self._confirmed.get(submission.id)
        stay = self._stays.get(id_, _NO_STAY)
        last = replace(submission, confirmed=confirmed, gone=self._gone.get(id_), hold=stay.hold)
        starts = stay.starts
        if not starts:
            return [attempt_of(last, one) for one in sorted(heard, key=_by_clock)] or [attempt_of(last, None)]
        known = replace(submission, confirmed=confirmed)
        pairs = list(paired(starts, sorted(heard, key=_by_clock)))
        waits = stay.between_starts and last.gone is None
        drawn = [attempt_of(known, one, start) for start, one in pairs[:-1]]
        drawn.append(attempt_of(known if waits else last, pairs[-1][1], pairs[-1][0]))
        return [*drawn, attempt_of(last, None)] if waits else drawn

    @property
    def recent(self) -> tuple[Attempt, ...]:
        """The attempts since the job was last opened: those that count against its budget."""
        return tuple(a for a in self.attempts if self._submissions[a.decision].order > self._reopened)

    @property
    def spent(self) -> tuple[Attempt, ...]:
        """Those that cost the job one of its attempts: it failed or was lost; or it left, or the pool ended it,
        without the training being further than before. What the pool took back and started again is free."""
        found, furthest = [], -1
        for attempt, follower in zip_longest(self.recent, self.recent[1:]):
            over = not attempt.live and attempt.status is not AttemptStatus.SUCCEEDED
            if over and _costs(attempt, furthest) and not _repaired(attempt, follower):
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

    def answer_to(self, hold: Hold) -> str:
        """What a supervisor decided about it: release, give_up or, so far, nothing."""
        return self._hold_answers.get((str(hold.event.data["decision"]), hold.seq), "")

    def answer(self, decision: str, hold: int) -> str:
        return self._hold_answers.get((decision, hold), "")

    def releases(self, decision: str) -> int:
        """How often a supervisor had it released."""
        return sum(answer == "release" for (known, _), answer in self._hold_answers.items() if known == decision)

    def in_pool(self, decision: str) -> PoolTimes | None:
        """Where its time went by the pool's log; None where there is no pool, or it has not told anything."""
        stay, confirmed, gone = self._stays.get(decision), self._confirmed.get(decision), self._gone.get(decision)
        if stay is None:
            return None
        return stay.times(confirmed.wall if confirmed else None, gone.wall if gone else None)

    def amendment_of(self, decision: str) -> Mapping[str, Any]:
        """What it was given otherwise than planned."""
        return self._submissions[decision].amendment if decision in self._submissions else {}

    @property
    def submissions(self) -> int:
        return len(self._submissions)


def _by_clock(heard: Heard) -> tuple[float, str]:
    return heard.began, heard.emitter


def _repaired(attempt: Attempt, follower: Attempt | None) -> bool:
    """The pool itself ended it, and started it again."""
    same = follower is not None and follower.decision == attempt.decision
    return same and attempt.failure is not None and attempt.failure.blame == "pool"


def _costs(attempt: Attempt, furthest: int) -> bool:
    by_pool = attempt.failure is not None and attempt.failure.blame == "pool"
    return attempt.reached <= furthest or not (by_pool or attempt.status is AttemptStatus.LEFT)
