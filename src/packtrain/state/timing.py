"""How long attempts take, kept as an index: those that succeeded, which jobs run or wait, what all attempts took. Drawn
anew for the jobs that changed only."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate
from statistics import median
from typing import NamedTuple, TypeVar

from packtrain.state.execution import Attempt, fraction_of
from packtrain.state.job import JobState
from packtrain.state.training_progress import number
from packtrain.state.transitions import AttemptStatus, JobStatus

V = TypeVar("V")

_MOST_KNOWN = 1000
_ENOUGH = 0.05  # of a stage: what is done between two reports tells its pace
_MUCH = 0.1  # of a stage: done since it began, it tells its pace, too
_MOST_RESTORED = 0.8  # of a training: what is left of it tells little of the whole


class Stint(NamedTuple):
    """What a training takes from nothing to its end, as one attempt tells it."""

    site: str
    around: float  # seconds before and after its steps
    steps: float

    @property
    def seconds(self) -> float:
        return self.around + self.steps


class Moved(NamedTuple):
    """What moving a job away from where it was late has cost."""

    times: int  # that it went on from what it had saved: all around its steps is done once more
    redone: float  # seconds of what it had not saved


@dataclass(slots=True)
class UnderWay:
    """An attempt that runs, as far as it told. Never changed: what follows from its fields is kept, since thousands are
    looked at again and again."""

    attempt: Attempt
    site: str
    since: float  # when its stage began, by the store's clock
    share: float  # of its stage, 0 to 1
    restored: float  # of that, what it did not do itself
    told_at: float  # when it last said so; 0: nobody knows
    first: tuple[float, float] | None = None  # the share that it told first, and when
    step: int = -1  # of its training
    in_steps: bool = field(init=False)
    done: float = field(init=False)  # what tells its pace
    tells: bool = field(init=False)  # whether its own words tell when it will end
    _since: float = field(init=False)  # when it had not done that yet
    _startup: float = field(init=False)  # what passed before the first steps, if they were as quick as those after them

    def __post_init__(self) -> None:
        """Its pace is what it did since it first told how far it is, for before that it may have prepared something; or
        all, if that is much. How far a transfer is tells little: it is quick and slow in turn, and what was told of it
        is soon old."""
        self.in_steps = self.attempt.stage == "steps"
        own = self.share - self.restored
        if self.first and self.share - self.first[0] >= _ENOUGH:
            share, self._since = self.first
            self.done = self.share - share
            early = (share - self.restored) * (self.told_at - self._since) / self.done
            self._startup = max(0.0, self._since - self.since - early)
        else:
            self.done, self._since, self._startup = own if own >= _MUCH or not self.in_steps else 0.0, self.since, 0.0
        self.tells = self.in_steps and self.done >= _ENOUGH

    @classmethod
    def of(cls, job: JobState) -> UnderWay | None:
        """Of two attempts that run, not the copy."""
        running = [attempt for attempt in job.live if attempt.status is AttemptStatus.RUNNING and attempt.began_at]
        if not running:
            return None
        attempt = min(running, key=lambda one: one.number)
        share = fraction_of(attempt) or 0.0
        restored = attempt.training.share_of(attempt.restored) if attempt.stage == "steps" else 0.0
        since = attempt.stage_at or attempt.began_at
        first = (share, attempt.told_at) if attempt.told_at and share > restored and attempt.stage == "steps" else None
        return cls(attempt, site_of(attempt), since, share, restored, attempt.told_at, first, progress_of(attempt))

    def after(self, earlier: UnderWay | None) -> UnderWay:
        """With what was known of the same stage of the same attempt."""
        if earlier is None or not earlier.first or earlier._stay != self._stay:
            return self
        return replace(self, first=earlier.first)

    @property
    def _stay(self) -> tuple[str, str, str]:
        return self.attempt.decision, self.attempt.emitter, self.attempt.stage

    def further(self, job: JobState) -> UnderWay | None:
        """By the newest glimpse, without drawing the attempt anew; None where that does not tell."""
        seen, now = job.glimpse(self.attempt.decision)
        step, steps = number(seen.get("step")), number(seen.get("total_steps"))
        if not self.in_steps or seen.get("stage") != "steps" or step is None or not steps:
            return None
        share = min(1.0, max(0.0, step / steps))
        first = self.first or ((share, now) if now and share > self.restored else None)
        return UnderWay(self.attempt, self.site, self.since, share, self.restored, now, first, int(step))

    def takes(self, now: float) -> float:
        """Its whole stage, by what it did until it last told. One that tells nothing for as long as it took before
        gets no further: it is the later the longer that lasts."""
        told = self.told_at or now
        return self._startup + max(0.0, told - self._since, (now - self._since) / 2) / self.done

    def left(self, now: float) -> float:
        rest, told = 1.0 - self.share, self.told_at or now
        by_word = rest * (told - self._since) / self.done - (now - told)
        return max(0.0, by_word, rest * (now - self._since) / 2 / self.done)


@dataclass
class Pace:
    """`whole` and `_queued` know the newest only: of a hundred thousand jobs, a thousand tell as much."""

    whole: dict[str, Stint] = field(default_factory=dict)  # by job, of those that succeeded
    running: dict[str, UnderWay | None] = field(default_factory=dict)  # None: nobody told since when
    waiting: set[str] = field(default_factory=set)  # for a machine, or for their next attempt
    copied: set[str] = field(default_factory=set)  # jobs of which a second copy was started
    moved: dict[str, Moved] = field(default_factory=dict)  # jobs that were, from the decision on
    last: float = 0.0  # when an attempt last came to a machine, or left it
    slot_s: float = 0.0  # of all attempts that are over
    _slot_s: dict[str, float] = field(default_factory=dict)
    _queued: dict[str, float] = field(default_factory=dict)  # seconds that a job last waited for a machine
    _most: int = 0  # at once, when that was last asked for
    _stays: dict[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)  # from and until, by job

    def draw(self, job: JobState) -> None:
        """Replace what is known of one job."""
        if len(job.live) < len(job.attempts):
            self._draw_ended(job)
        if moves := job.moves:
            self.moved[job.id] = _moved(job, moves)
        queued = _queued(job)
        if queued is not None:
            _note(self._queued, job.id, queued)
        self.last = max(self.last, *(max(a.began_at, a.over_at if a.began_at else 0.0) for a in job.attempts), 0.0)
        self._stays[job.id] = tuple([(a.began_at, a.over_at or math.inf) for a in job.attempts if a.began_at])
        status = job.status
        earlier = self.running.pop(job.id, None)
        if status is JobStatus.RUNNING:
            under = UnderWay.of(job)
            self.running[job.id] = under.after(earlier) if under else None
        _mark(self.waiting, job.id, status in (JobStatus.QUEUED, JobStatus.WAITING))
        _mark(self.copied, job.id, job.submissions > 1 and any(attempt.copy_of for attempt in job.recent))

    def _draw_ended(self, job: JobState) -> None:
        taken = sum(on_machine(job, attempt) for attempt in job.attempts if not attempt.live)
        self.slot_s += taken - self._slot_s.get(job.id, 0.0)
        self._slot_s[job.id] = taken
        stint = next(_stints(job), None)
        if stint:
            _note(self.whole, job.id, stint)

    def further(self, job: JobState) -> bool:
        """False if it is not known to run, or not known how far it is. Reports come by the thousand."""
        known = self.running.get(job.id)
        under = (known.further(job) or _next_stage(known, job)) if known else None
        if under:
            self.running[job.id] = under
        return under is not None

    def usual_s(self) -> float:
        """What a training takes; 0: nobody knows yet."""
        return median(stint.seconds for stint in self.whole.values()) if self.whole else 0.0

    def usual_wait(self) -> float:
        """For a machine."""
        return median(self._queued.values()) if self._queued else math.inf

    def free(self) -> int:
        """Machines that the run had once and has no more, as far as nobody waits for them."""
        return 0 if self._at_most() <= self._wanted else max(0, self._most_at_once() - self._wanted)

    def is_crowded(self, unseen: set[str]) -> bool:
        """Whether others surely wait for all the machines there are. `unseen`: jobs that may have been given one since
        they were drawn."""
        return not self.waiting <= unseen and self._at_most(len(unseen)) <= self._wanted

    @property
    def _wanted(self) -> int:
        return len(self.running) + len(self.waiting)

    def _at_most(self, unseen: int = 0) -> int:
        """Machines at once, without counting: a job has no more than a copy beside it."""
        return max(self._most, (2 if self.copied else 1) * (len(self._stays) + unseen))

    def _most_at_once(self) -> int:
        """How many attempts were on machines at the same time."""
        turns = [turn for stays in self._stays.values() for began, over in stays for turn in ((began, 1), (over, -1))]
        self._most = max(self._most, max(accumulate(change for _, change in sorted(turns)), default=0))
        lasting = ((job, tuple(stay for stay in stays if stay[1] == math.inf)) for job, stays in self._stays.items())
        self._stays = {job: stays for job, stays in lasting if stays}  # what is over meets nothing that is to come
        return self._most


def _next_stage(known: UnderWay, job: JobState) -> UnderWay | None:
    """Of the only attempt of a job, where nothing else can have changed."""
    under = UnderWay.of(job) if len(job.attempts) == 1 else None
    return under.after(known) if under else None


def _moved(job: JobState, moves: Collection[str]) -> Moved:
    """Of a decision that a pool started several times, the last one was late."""
    late = {a.decision: a for a in job.attempts if a.decision in moves and a.began_at}.values()
    left = [attempt for attempt in late if attempt.status is not AttemptStatus.SUCCEEDED]
    saved = sum(bool(attempt.checkpoint or attempt.restored) for attempt in left)
    return Moved(saved, sum(redone(attempt, attempt.over_at or job.changed_at) for attempt in left))


def redone(attempt: Attempt, until: float) -> float:
    """Seconds of what its successor has to do again: all of it, or what it did since its newest checkpoint."""
    saved, done = attempt.checkpoint or attempt.restored, attempt.training.fraction or 0.0
    if not saved:
        return max(0.0, until - attempt.began_at)
    own, lost = (done - attempt.training.share_of(known) for known in (attempt.restored, saved))
    since = attempt.stage_at if attempt.stage == "steps" and attempt.stage_at else attempt.began_at
    return max(0.0, _steps(attempt, until - since) * lost / own) if own > 0 else 0.0


def _queued(job: JobState) -> float | None:
    placed = next((attempt for attempt in reversed(job.attempts) if attempt.start), None)
    pool = job.in_pool(placed.decision) if placed else None
    return pool.queue if pool else None


def _note(known: dict[str, V], name: str, value: V) -> None:
    known.pop(name, None)
    known[name] = value
    if len(known) > _MOST_KNOWN:
        del known[next(iter(known))]


def _mark(names: set[str], name: str, there: bool) -> None:
    (names.add if there else names.discard)(name)


def _stints(job: JobState) -> Iterator[Stint]:
    for attempt in job.attempts:
        taken = on_machine(job, attempt) if attempt.status is AttemptStatus.SUCCEEDED else None
        whole = steps_of(attempt, taken) if taken is not None else None
        if taken is not None and whole is not None:
            yield Stint(site_of(attempt), max(0.0, taken - _steps(attempt, taken)), whole)


def _steps(attempt: Attempt, taken: float) -> float:
    told = next((stage.seconds for stage in attempt.stages if stage.name == "steps"), None)
    return taken if told is None else told


def steps_of(attempt: Attempt, taken: float) -> float | None:
    """What the whole training takes, by one that succeeded; None where too much of it was restored to tell."""
    before = attempt.training.share_of(attempt.restored)
    if before > _MOST_RESTORED or (attempt.restored and not before):
        return None
    return _steps(attempt, taken) / (1 - before)


def progress_of(attempt: Attempt) -> int:
    """Its training step; -1 if nobody told one."""
    step = number(attempt.training.newest("step"))
    return max(attempt.reached, -1 if step is None else int(step))


def site_of(attempt: Attempt) -> str:
    """Where it ran; of one that never did, what is called its site is only its engine."""
    return attempt.site if attempt.emitter or attempt.start else ""


def on_machine(job: JobState, attempt: Attempt) -> float:
    """Seconds of a machine; by the pool's log where there is one."""
    pool = job.in_pool(attempt.decision)
    stretch = pool.starts.get(attempt.start) if pool else None
    return max(attempt.seconds, stretch.slot + stretch.transfer if stretch else 0.0)
