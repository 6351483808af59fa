"""How long attempts take, kept as an index: those that succeeded, which jobs run or wait, what all attempts took. Drawn
anew for the jobs that changed only."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate
from statistics import median
from typing import NamedTuple, TypeVar

from packtrain.state.execution import Execution, stage_fraction
from packtrain.state.job import JobState
from packtrain.state.training_progress import to_finite_float
from packtrain.state.transitions import ExecutionStatus, JobStatus

V = TypeVar("V")

_MAX_SAMPLES = 1000
_MIN_MEASURED_FRACTION = 0.05  # of a stage: what is done between two reports tells its pace
_MIN_TOTAL_FRACTION = 0.1  # of a stage: done since it began, it tells its pace, too
_MAX_RESTORED_FRACTION = 0.8  # of a training: what is left of it tells little of the whole


class TrainingRuntime(NamedTuple):
    """What a training takes from nothing to its end, as one attempt tells it."""

    site: str
    overhead_s: float  # seconds before and after its steps
    steps_s: float

    @property
    def total_s(self) -> float:
        return self.overhead_s + self.steps_s


class MoveCost(NamedTuple):
    """What moving a job away from where it was late has cost."""

    n_resumes: int  # that it went on from what it had saved: all around its steps is done once more
    redone_s: float  # seconds of what it had not saved


@dataclass(slots=True)
class RunningExecution:
    """An attempt that runs, as far as it told. Never changed: what follows from its fields is kept, since thousands are
    looked at again and again."""

    execution: Execution
    site: str
    stage_started_at: float  # when its stage began, by the store's clock
    fraction: float  # of its stage, 0 to 1
    restored_fraction: float  # of that, what it did not do itself
    progress_at: float  # when it last said so; 0: nobody knows
    first_report: tuple[float, float] | None = None  # the share that it told first, and when
    training_step: int = -1  # of its training
    is_in_steps: bool = field(init=False)
    measured_fraction: float = field(init=False)  # what tells its pace
    has_estimate: bool = field(init=False)  # whether its own words tell when it will end
    _measured_from: float = field(init=False)  # when it had not done that yet
    _startup_s: float = field(
        init=False
    )  # what passed before the first steps, if they were as quick as those after them

    def __post_init__(self) -> None:
        """Its pace is what it did since it first told how far it is, for before that it may have prepared something; or
        all, if that is much. How far a transfer is tells little: it is quick and slow in turn, and what was told of it
        is soon old."""
        self.is_in_steps = self.execution.stage == "steps"
        own = self.fraction - self.restored_fraction
        if self.first_report and self.fraction - self.first_report[0] >= _MIN_MEASURED_FRACTION:
            share, self._measured_from = self.first_report
            self.measured_fraction = self.fraction - share
            early = (share - self.restored_fraction) * (self.progress_at - self._measured_from) / self.measured_fraction
            self._startup_s = max(0.0, self._measured_from - self.stage_started_at - early)
        else:
            self.measured_fraction, self._measured_from, self._startup_s = (
                own if own >= _MIN_TOTAL_FRACTION or not self.is_in_steps else 0.0,
                self.stage_started_at,
                0.0,
            )
        self.has_estimate = self.is_in_steps and self.measured_fraction >= _MIN_MEASURED_FRACTION

    @classmethod
    def from_job(cls, job: JobState) -> RunningExecution | None:
        """Of two attempts that run, not the copy."""
        running = [
            attempt
            for attempt in job.live_executions
            if attempt.status is ExecutionStatus.RUNNING and attempt.started_at
        ]
        if not running:
            return None
        attempt = min(running, key=lambda one: one.number)
        share = stage_fraction(attempt) or 0.0
        restored = (
            attempt.training.checkpoint_fraction(attempt.restored_checkpoint) if attempt.stage == "steps" else 0.0
        )
        since = attempt.stage_started_at or attempt.started_at
        first = (
            (share, attempt.progress_at)
            if attempt.progress_at and share > restored and attempt.stage == "steps"
            else None
        )
        return cls(
            attempt,
            execution_site(attempt),
            since,
            share,
            restored,
            attempt.progress_at,
            first,
            current_training_step(attempt),
        )

    def merge_earlier(self, earlier: RunningExecution | None) -> RunningExecution:
        """With what was known of the same stage of the same attempt."""
        if earlier is None or not earlier.first_report or earlier._stage_key != self._stage_key:
            return self
        return replace(self, first_report=earlier.first_report)

    @property
    def _stage_key(self) -> tuple[str, str, str]:
        return self.execution.attempt_id, self.execution.emitter, self.execution.stage

    def with_progress(self, job: JobState) -> RunningExecution | None:
        """By the newest glimpse, without drawing the attempt anew; None where that does not tell."""
        seen, now = job.latest_progress(self.execution.attempt_id)
        step, steps = to_finite_float(seen.get("step")), to_finite_float(seen.get("total_steps"))
        if not self.is_in_steps or seen.get("stage") != "steps" or step is None or not steps:
            return None
        share = min(1.0, max(0.0, step / steps))
        first = self.first_report or ((share, now) if now and share > self.restored_fraction else None)
        return RunningExecution(
            self.execution, self.site, self.stage_started_at, share, self.restored_fraction, now, first, int(step)
        )

    def estimate_stage_s(self, now: float) -> float:
        """Its whole stage, by what it did until it last told. One that tells nothing for as long as it took before
        gets no further: it is the later the longer that lasts."""
        told = self.progress_at or now
        return (
            self._startup_s
            + max(0.0, told - self._measured_from, (now - self._measured_from) / 2) / self.measured_fraction
        )

    def estimate_remaining_s(self, now: float) -> float:
        rest, told = 1.0 - self.fraction, self.progress_at or now
        by_word = rest * (told - self._measured_from) / self.measured_fraction - (now - told)
        return max(0.0, by_word, rest * (now - self._measured_from) / 2 / self.measured_fraction)


@dataclass
class TimingStats:
    """`whole` and `_queued` know the newest only: of a hundred thousand jobs, a thousand tell as much."""

    runtimes: dict[str, TrainingRuntime] = field(default_factory=dict)  # by job, of those that succeeded
    running_jobs: dict[str, RunningExecution | None] = field(default_factory=dict)  # None: nobody told since when
    waiting_jobs: set[str] = field(default_factory=set)  # for a machine, or for their next attempt
    copied_jobs: set[str] = field(default_factory=set)  # jobs of which a second copy was started
    move_costs: dict[str, MoveCost] = field(default_factory=dict)  # jobs that were, from the decision on
    last_change_at: float = 0.0  # when an attempt last came to a machine, or left it
    slot_s: float = 0.0  # of all attempts that are over
    _slot_s_by_job: dict[str, float] = field(default_factory=dict)
    _queue_s: dict[str, float] = field(default_factory=dict)  # seconds that a job last waited for a machine
    _max_concurrent: int = 0  # at once, when that was last asked for
    _slot_intervals: dict[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)  # from and until, by job

    def update(self, job: JobState) -> None:
        """Replace what is known of one job."""
        if len(job.live_executions) < len(job.executions):
            self._update_ended(job)
        if moves := job.moves:
            self.move_costs[job.id] = _compute_move_cost(job, moves)
        queued = _last_queue_s(job)
        if queued is not None:
            _add_sample(self._queue_s, job.id, queued)
        self.last_change_at = max(
            self.last_change_at, *(max(a.started_at, a.ended_at if a.started_at else 0.0) for a in job.executions), 0.0
        )
        self._slot_intervals[job.id] = tuple(
            [(a.started_at, a.ended_at or math.inf) for a in job.executions if a.started_at]
        )
        status = job.status
        earlier = self.running_jobs.pop(job.id, None)
        if status is JobStatus.RUNNING:
            under = RunningExecution.from_job(job)
            self.running_jobs[job.id] = under.merge_earlier(earlier) if under else None
        _set_membership(self.waiting_jobs, job.id, status in (JobStatus.QUEUED, JobStatus.WAITING))
        _set_membership(
            self.copied_jobs, job.id, job.n_attempts > 1 and any(attempt.copy_of for attempt in job.recent_executions)
        )

    def _update_ended(self, job: JobState) -> None:
        taken = sum(slot_seconds(job, attempt) for attempt in job.executions if not attempt.is_live)
        self.slot_s += taken - self._slot_s_by_job.get(job.id, 0.0)
        self._slot_s_by_job[job.id] = taken
        stint = next(_completed_runtimes(job), None)
        if stint:
            _add_sample(self.runtimes, job.id, stint)

    def update_progress(self, job: JobState) -> bool:
        """False if it is not known to run, or not known how far it is. Reports come by the thousand."""
        known = self.running_jobs.get(job.id)
        under = (known.with_progress(job) or _advance_stage(known, job)) if known else None
        if under:
            self.running_jobs[job.id] = under
        return under is not None

    def median_runtime_s(self) -> float:
        """What a training takes; 0: nobody knows yet."""
        return median(stint.total_s for stint in self.runtimes.values()) if self.runtimes else 0.0

    def median_queue_s(self) -> float:
        """For a machine."""
        return median(self._queue_s.values()) if self._queue_s else math.inf

    def estimate_free_nodes(self) -> int:
        """Machines that the run had once and has no more, as far as nobody waits for them."""
        return (
            0 if self._concurrency_bound() <= self._n_wanted else max(0, self._measure_concurrency() - self._n_wanted)
        )

    def is_saturated(self, stale_jobs: set[str]) -> bool:
        """Whether others surely wait for all the machines there are. `unseen`: jobs that may have been given one since
        they were drawn."""
        return not self.waiting_jobs <= stale_jobs and self._concurrency_bound(len(stale_jobs)) <= self._n_wanted

    @property
    def _n_wanted(self) -> int:
        return len(self.running_jobs) + len(self.waiting_jobs)

    def _concurrency_bound(self, n_stale: int = 0) -> int:
        """Machines at once, without counting: a job has no more than a copy beside it."""
        return max(self._max_concurrent, (2 if self.copied_jobs else 1) * (len(self._slot_intervals) + n_stale))

    def _measure_concurrency(self) -> int:
        """How many attempts were on machines at the same time."""
        turns = [
            turn
            for stays in self._slot_intervals.values()
            for began, over in stays
            for turn in ((began, 1), (over, -1))
        ]
        self._max_concurrent = max(
            self._max_concurrent, max(accumulate(change for _, change in sorted(turns)), default=0)
        )
        lasting = (
            (job, tuple(stay for stay in stays if stay[1] == math.inf)) for job, stays in self._slot_intervals.items()
        )
        self._slot_intervals = {
            job: stays for job, stays in lasting if stays
        }  # what is over meets nothing that is to come
        return self._max_concurrent


def _advance_stage(running: RunningExecution, job: JobState) -> RunningExecution | None:
    """Of the only attempt of a job, where nothing else can have changed."""
    under = RunningExecution.from_job(job) if len(job.executions) == 1 else None
    return under.merge_earlier(running) if under else None


def _compute_move_cost(job: JobState, moves: Collection[str]) -> MoveCost:
    """Of a decision that a pool started several times, the last one was late."""
    late = {a.attempt_id: a for a in job.executions if a.attempt_id in moves and a.started_at}.values()
    left = [attempt for attempt in late if attempt.status is not ExecutionStatus.SUCCEEDED]
    saved = sum(bool(attempt.checkpoint or attempt.restored_checkpoint) for attempt in left)
    return MoveCost(saved, sum(compute_redone_s(attempt, attempt.ended_at or job.changed_at) for attempt in left))


def compute_redone_s(execution: Execution, until_at: float) -> float:
    """Seconds of what its successor has to do again: all of it, or what it did since its newest checkpoint."""
    saved, done = execution.checkpoint or execution.restored_checkpoint, execution.training.fraction or 0.0
    if not saved:
        return max(0.0, until_at - execution.started_at)
    own, lost = (
        done - execution.training.checkpoint_fraction(known) for known in (execution.restored_checkpoint, saved)
    )
    since = (
        execution.stage_started_at
        if execution.stage == "steps" and execution.stage_started_at
        else execution.started_at
    )
    return max(0.0, _steps_duration_s(execution, until_at - since) * lost / own) if own > 0 else 0.0


def _last_queue_s(job: JobState) -> float | None:
    placed = next((attempt for attempt in reversed(job.executions) if attempt.execution_number), None)
    pool = job.pool_times(placed.attempt_id) if placed else None
    return pool.queue_s if pool else None


def _add_sample(samples: dict[str, V], name: str, value: V) -> None:
    samples.pop(name, None)
    samples[name] = value
    if len(samples) > _MAX_SAMPLES:
        del samples[next(iter(samples))]


def _set_membership(names: set[str], name: str, is_member: bool) -> None:
    (names.add if is_member else names.discard)(name)


def _completed_runtimes(job: JobState) -> Iterator[TrainingRuntime]:
    for attempt in job.executions:
        taken = slot_seconds(job, attempt) if attempt.status is ExecutionStatus.SUCCEEDED else None
        whole = estimate_steps_s(attempt, taken) if taken is not None else None
        if taken is not None and whole is not None:
            yield TrainingRuntime(execution_site(attempt), max(0.0, taken - _steps_duration_s(attempt, taken)), whole)


def _steps_duration_s(execution: Execution, slot_s: float) -> float:
    told = next((stage.duration_s for stage in execution.stages if stage.name == "steps"), None)
    return slot_s if told is None else told


def estimate_steps_s(execution: Execution, slot_s: float) -> float | None:
    """What the whole training takes, by one that succeeded; None where too much of it was restored to tell."""
    before = execution.training.checkpoint_fraction(execution.restored_checkpoint)
    if before > _MAX_RESTORED_FRACTION or (execution.restored_checkpoint and not before):
        return None
    return _steps_duration_s(execution, slot_s) / (1 - before)


def current_training_step(execution: Execution) -> int:
    """Its training step; -1 if nobody told one."""
    step = to_finite_float(execution.training.latest("step"))
    return max(execution.checkpoint_step, -1 if step is None else int(step))


def execution_site(execution: Execution) -> str:
    """Where it ran; of one that never did, what is called its site is only its engine."""
    return execution.site if execution.emitter or execution.execution_number else ""


def slot_seconds(job: JobState, execution: Execution) -> float:
    """Seconds of a machine; by the pool's log where there is one."""
    pool = job.pool_times(execution.attempt_id)
    stretch = pool.slot_times.get(execution.execution_number) if pool else None
    return max(execution.agent_duration_s, stretch.slot_s + stretch.transfer_s if stretch else 0.0)
