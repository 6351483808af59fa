"""One job: its attempts and its verdict. Collects events in any order; properties draw the picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from itertools import zip_longest
from types import MappingProxyType
from typing import Any

from packtrain.events import Event, Failure, kinds
from packtrain.state.arrival_times import Dates
from packtrain.state.execution import Attempt, Heard, Submission, Told, attempt_of
from packtrain.state.live_progress import glimpsed
from packtrain.state.pool_events import Hold, Stay, paired
from packtrain.state.pool_time import PoolTimes
from packtrain.state.transitions import JOB_STATUS, LIVE, AttemptStatus, JobStatus

Order = tuple[int, int]  # (epoch, seq): the order of everything supervisors of a run wrote
_NEVER: Order = (-1, -1)
AGENT_KINDS = frozenset(
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


NO_MACHINE = -1  # given up in this place of holds: it found none
_NO_STAY = Stay()
_NONE: Mapping[Any, Any] = MappingProxyType({})  # shared
_NOTHING: dict[Any, Any] = {}  # of what shed all; never changed
_ENGINE_KINDS = frozenset(
    {
        kinds.ATTEMPT_PLACED,
        kinds.ATTEMPT_STOPPED,
        kinds.ATTEMPT_HELD,
        kinds.ATTEMPT_RELEASED,
        kinds.ATTEMPT_TRANSFER,
    }
)


_TIMED_KINDS = _ENGINE_KINDS | {kinds.CONFIRMED, kinds.ATTEMPT_GONE}
_BESIDE = frozenset({kinds.ATTEMPT_TRANSFER, kinds.JOB_ENDED, kinds.REQUESTED})  # they change no attempt


@dataclass(frozen=True, slots=True)
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


@dataclass(slots=True)
class _Picture:
    """A job's attempts, and those of them that are asked for again and again."""

    attempts: tuple[Attempt, ...]
    recent: tuple[Attempt, ...]
    live: tuple[Attempt, ...]
    spent: tuple[Attempt, ...] | None = None


_NO_PICTURE = _Picture((), (), (), ())


def _none() -> Mapping[Any, Any]:
    return _NONE


@dataclass(slots=True)
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
    # What few jobs have is replaced, not changed: the others share one that is empty.
    _requests: Mapping[str, Event] = field(default_factory=_none)
    _answered: frozenset[str] = frozenset()
    _cancelled: Mapping[str, tuple[Order, str]] = field(default_factory=_none)  # by decision: when, and why
    _hold_answers: Mapping[tuple[str, int], str] = field(default_factory=_none)  # (decision, hold): release, give_up
    _moves: Mapping[str, Event] = field(default_factory=_none)  # by decision
    _accepted: tuple[Order, str] | None = None  # whose outputs were chosen; the first choice counts
    _glimpses: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # by decision
    _picture: _Picture | None = None  # drawn when asked for
    _times: dict[str, PoolTimes] = field(default_factory=dict)  # by decision, counted when asked for
    _dates: Dates = field(default_factory=Dates)
    changed_at: float = 0.0  # when the newest lifecycle event reached the store, by its clock

    def apply(self, event: Event, arrived: float) -> None:
        if event.kind in _TIMED_KINDS:
            self._times.clear()
        if event.kind not in _BESIDE:
            self._picture = None
        if event.kind in AGENT_KINDS:
            self._agent(event.emitter).add(event)
        elif event.kind in _ENGINE_KINDS:
            self._stay(str(event.data["decision"])).add(event, arrived)
        elif event.kind in self._TAKES:
            self._TAKES[event.kind](self, event)
        if event.kind in (kinds.ATTEMPT_ENDED, kinds.ATTEMPT_GONE, kinds.DECIDED):
            self.changed_at = max(self.changed_at, arrived)
        self._dates.apply(event, arrived)

    def _agent(self, emitter: str) -> Heard:
        if emitter not in self._heard:
            self._heard[emitter] = Heard(emitter)
        return self._heard[emitter]

    def _stay(self, decision: str) -> Stay:
        if decision not in self._stays:
            self._stays[decision] = Stay()
        return self._stays[decision]

    def _take_decided(self, event: Event) -> None:
        action = event.data.get("action")
        if action == "submit":
            self._take_submission(event)
        elif action == "reopen":
            self._reopened = max(self._reopened, order_of(event))
            self._answered = self._answered.union(event.data.get("requests", ()))
        elif action in ("cancel", "move"):
            target, said = str(event.data.get("target", "")), (order_of(event), str(event.data.get("reason", "")))
            self._cancelled = {**self._cancelled, target: min(said, self._cancelled.get(target, said))}
            if action == "move":
                first = min(event, self._moves.get(target, event), key=order_of)
                self._moves = {**self._moves, target: first}
        elif action == "accept":
            chosen = (order_of(event), str(event.data["target"]))
            self._accepted = min(chosen, self._accepted or chosen)
        elif action in ("release", "give_up"):
            hold = (str(event.data["target"]), int(event.data["hold"]))
            self._hold_answers = {**self._hold_answers, hold: action}

    def _take_submission(self, event: Event) -> None:
        about, copy_of = dict(event.data.get("amendment") or {}), str(event.data.get("copy_of", ""))
        id_, why = event.data["id"], str(event.data.get("reason", ""))
        self._submissions[id_] = Submission(id_, order_of(event), amendment=about, copy_of=copy_of, why=why)

    def see(self, decision: str, glimpse: Mapping[str, Any], now: float = 0.0) -> None:
        """How far a running attempt is, as the engine last saw it; not kept as an event."""
        if glimpse != self._glimpses.get(decision):
            self._glimpses[decision], self._picture = glimpse, None
            self._dates.glimpsed(decision, now)

    def glimpse(self, decision: str) -> tuple[Mapping[str, Any], float]:
        """The newest of an attempt, and when it came; without its own words."""
        return self._glimpses.get(decision, {}), self._dates.told_at(decision)

    @property
    def tail(self) -> Mapping[str, Any]:
        """The newest bytes of a step's log, as a pool told them: `file`, `end`, `text`."""
        found = self._glimpses.get(self.latest.decision, {}).get("tail") if self.latest else None
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
        self._answered = self._answered.union(event.data.get("requests", ()))

    def _take_request(self, event: Event) -> None:
        self._requests = {**self._requests, f"{event.emitter}:{event.seq}": event}

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
        return self._drawn.attempts

    def rest(self) -> None:
        """It has its verdict: what was drawn of it takes more memory than what it is drawn from."""
        self._picture = None
        self._times.clear()
        self._glimpses.clear()

    def shed(self) -> None:
        """Keep its verdict only. Takes no more events."""
        self._picture = None
        self._dates.shed()
        for name in _DICTS:
            setattr(self, name, _NOTHING)

    @property
    def _drawn(self) -> _Picture:
        if self._picture is None:
            if not self._submissions:
                return _NO_PICTURE
            attempts = tuple(self._draw())
            opened = self._reopened is _NEVER
            recent = (a for a in attempts if opened or self._submissions[a.decision].order > self._reopened)
            self._picture = _Picture(attempts, tuple(recent), tuple(a for a in attempts if a.status in LIVE))
        return self._picture

    def _draw(self) -> list[Attempt]:
        heard = sorted(self._heard.values(), key=_by_clock)
        drawn: list[Attempt] = []
        for submission in sorted(self._submissions.values(), key=lambda s: s.order):
            drawn += self._draw_one(submission, [one for one in heard if one.decision == submission.id])
        return [self._dated(number, attempt) for number, attempt in enumerate(drawn, 1)]

    def _dated(self, number: int, attempt: Attempt) -> Attempt:
        """With what is known of it besides its own events."""
        seen = self._glimpses.get(attempt.decision)
        shown = glimpsed(attempt, seen) if seen else attempt
        dates = self._dates.of(attempt, shown.stage)
        shown.__dict__.update(dates, number=number, failure=self._why_ended(attempt))  # nobody has seen it yet
        return shown

    def _why_ended(self, attempt: Attempt) -> Failure | None:
        """A supervisor's reason counts more than the agent's, which only felt that it was ended."""
        never_ran = not attempt.emitter and not attempt.start
        if attempt.failure and never_ran and self.answer(attempt.decision, NO_MACHINE):
            return Failure.of("no_machine", attempt.failure.stage, "no machine of the pool took it")
        if attempt.failure is None or not self.cancel_decided(attempt.decision):
            return attempt.failure
        outrun = self._accepted is not None and self._accepted[0] < self._cancelled[attempt.decision][0]
        kind = "too_slow" if attempt.decision in self._moves else "outrun" if outrun else ""
        reason = self.cancel_reason(attempt.decision)
        return Failure.of(kind, attempt.failure.stage, reason) if kind else attempt.failure

    def _draw_one(self, submission: Submission, heard: list[Heard]) -> list[Attempt]:
        """The attempts of one decision: several if a pool started it again. Only the last can be kept back or gone; one
        that was kept back between two starts, and gone then, is none of them."""
        id_, confirmed = submission.id, self._confirmed.get(submission.id)
        stay = self._stays.get(id_, _NO_STAY)
        last, starts = Told(confirmed, self._gone.get(id_), stay.hold), stay.starts
        if not starts:
            return [attempt_of(submission, last, one) for one in heard or (None,)]
        between = last.hold is not None and not last.hold.ended_a_start
        known, waits = Told(confirmed), starts[-1].stopped is not None and (last.gone is None or between)
        *earlier, (start, one) = paired(starts, heard)
        drawn = [attempt_of(submission, known, one, start) for start, one in earlier]
        drawn.append(attempt_of(submission, known if waits else last, one, start))
        return [*drawn, attempt_of(submission, last, None)] if waits else drawn

    @property
    def is_fresh(self) -> bool:
        """Asked for once, as planned, and nothing was heard of it since: known without drawing it."""
        calm = len(self._submissions) == 1 and not (self._heard or self._stays or self._gone or self._cancelled)
        return calm and self._verdict is None and not any(one.amendment for one in self._submissions.values())

    @property
    def recent(self) -> tuple[Attempt, ...]:
        """The attempts since the job was last opened: those that count against its budget."""
        return self._drawn.recent

    @property
    def spent(self) -> tuple[Attempt, ...]:
        """Those that cost the job one of its attempts: it failed or was lost; or it left, or the pool ended it,
        without the training being further than before. What the pool took back and started again is free."""
        picture = self._drawn
        if picture.spent is None:
            picture.spent = self._find_spent(picture.recent)
        return picture.spent

    def _find_spent(self, recent: tuple[Attempt, ...]) -> tuple[Attempt, ...]:
        found, furthest = [], -1
        before: dict[str, int] = {}  # by decision: how far the training was when it was first started
        for attempt, follower in zip_longest(recent, recent[1:]):
            over = not attempt.live and attempt.status is not AttemptStatus.SUCCEEDED
            further = furthest > before.setdefault(attempt.decision, furthest)
            free = _repaired(attempt, follower) or (further and _is_worn_out(attempt))
            if over and _costs(attempt, furthest) and not free:
                found.append(attempt)
            furthest = max(furthest, attempt.reached)
        # One that a supervisor ended, since it was interrupted itself, says nothing of the job.
        return tuple(attempt for attempt in found if not self.cancel_decided(attempt.decision))

    @property
    def live(self) -> tuple[Attempt, ...]:
        return self._drawn.live

    @property
    def latest(self) -> Attempt | None:
        """The one to speak of: whose outputs were accepted, else of several that live one that runs, else the last."""
        if self.verdict and self.verdict.emitter:
            winner = next((a for a in self.attempts if a.emitter == self.verdict.emitter), None)
            return winner or self.attempts[-1]
        running = [a for a in self.attempts if a.status is AttemptStatus.RUNNING]
        return running[0] if running else self.attempts[-1] if self.attempts else None

    @property
    def winner(self) -> Attempt | None:
        """The attempt whose outputs are the job's: the one that was chosen, else the first that succeeded."""
        done = [attempt for attempt in self.attempts if attempt.status is AttemptStatus.SUCCEEDED]
        if len(done) < 2:
            return done[0] if done else None
        chosen = [attempt for attempt in done if self._accepted and attempt.decision == self._accepted[1]]
        return min(chosen or done, key=lambda attempt: (attempt.over_at, attempt.number), default=None)

    @property
    def accepted(self) -> str:
        """The decision whose outputs were chosen, where there was a choice."""
        return self._accepted[1] if self._accepted else ""

    @property
    def open_requests(self) -> dict[str, Mapping[str, Any]]:
        """What people asked for and no supervisor has answered yet."""
        return {key: e.data for key, e in self._requests.items() if key not in self._answered}

    def cancel_decided(self, decision: str) -> bool:
        """Whether a supervisor already told the engine to end this attempt."""
        return decision in self._cancelled

    @property
    def moves(self) -> Mapping[str, Mapping[str, Any]]:
        """By decision: which places are avoided since, and why."""
        if not self._moves:
            return {}
        opened = {attempt.decision for attempt in self.recent}
        return {decision: said.data for decision, said in self._moves.items() if decision in opened}

    def cancel_reason(self, decision: str) -> str:
        return self._cancelled[decision][1] if decision in self._cancelled else ""

    def reason_of(self, decision: str) -> str:
        """Why it was decided to make this attempt."""
        return self._submissions[decision].why if decision in self._submissions else ""

    def answer_to(self, hold: Hold) -> str:
        """What a supervisor decided about it: release, give_up or, so far, nothing."""
        return self._hold_answers.get((str(hold.event.data["decision"]), hold.seq), "")

    def answer(self, decision: str, hold: int) -> str:
        return self._hold_answers.get((decision, hold), "")

    def releases(self, decision: str, besides: str = "") -> int:
        """How often a supervisor had it released; `besides` holds of one kind."""
        held = {hold.seq: hold.kind for hold in self._stays.get(decision, _NO_STAY).holds} if besides else {}
        answers = [(hold, answer) for (known, hold), answer in self._hold_answers.items() if known == decision]
        return sum(answer == "release" and not (besides and held.get(hold) == besides) for hold, answer in answers)

    def got_further(self, hold: Hold) -> bool:
        """Whether its training did since the pool last kept it back for the same reason."""
        decision = str(hold.event.data["decision"])
        starts = self._stays.get(decision, _NO_STAY).starts_since(hold)
        since = [a.reached for a in self.attempts if a.decision == decision and a.start in starts]
        before = [a.reached for a in self.attempts if a.decision != decision or a.start not in starts]
        return max(since, default=-1) > max(before, default=-1)

    @property
    def waits_since(self) -> float:
        """When it began to wait for a machine, if it does."""
        return max(self.changed_at, *(attempt.over_at for attempt in self.attempts), 0.0)

    def in_pool(self, decision: str) -> PoolTimes | None:
        """Where its time went by the pool's log; None where there is no pool, or it has not told anything."""
        stay, confirmed, gone = self._stays.get(decision), self._confirmed.get(decision), self._gone.get(decision)
        if stay is None:
            return None
        if decision not in self._times:
            walls = (confirmed.wall if confirmed else None, gone.wall if gone else None)
            self._times[decision] = stay.times(*walls)
        return self._times[decision]

    def amendment_of(self, decision: str) -> Mapping[str, Any]:
        """What it was given otherwise than planned."""
        return self._submissions[decision].amendment if decision in self._submissions else {}

    @property
    def submissions(self) -> int:
        return len(self._submissions)


_DICTS = tuple(one.name for one in fields(JobState) if one.default_factory is dict and one.name != "point")


def _by_clock(heard: Heard) -> tuple[float, str]:
    return heard.began, heard.emitter


def _repaired(attempt: Attempt, follower: Attempt | None) -> bool:
    """The pool itself ended it, and started it again."""
    same = follower is not None and follower.decision == attempt.decision
    return same and attempt.failure is not None and attempt.failure.blame == "pool"


def _is_worn_out(attempt: Attempt) -> bool:
    """It was given up after many starts, between two of them."""
    return attempt.failure is not None and attempt.failure.kind == "never_starts" and not attempt.start


def _costs(attempt: Attempt, furthest: int) -> bool:
    by_pool = attempt.failure is not None and attempt.failure.blame == "pool"
    return attempt.reached <= furthest or not (by_pool or attempt.status is AttemptStatus.LEFT)
