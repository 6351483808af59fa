"""How long executions take, and how far the running ones are.

`TimingStats` indexes the run times of finished trainings, the jobs that run or wait, and the slot time of everything
that has ended. It is updated only for the jobs that changed. `RunningExecution` estimates when an execution ends.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate
from statistics import median
from typing import NamedTuple, TypeVar

from packtrain.state.execution import Execution, stage_fraction
from packtrain.state.job import JobState
from packtrain.state.slot_time import Phase
from packtrain.state.training_progress import to_finite_float
from packtrain.state.transitions import ExecutionStatus, JobStatus

V = TypeVar("V")

_MAX_SAMPLES = 1000
_MIN_MEASURED_FRACTION = 0.05  # of a stage: progress between two reports that is enough to estimate the speed
_MIN_TOTAL_FRACTION = 0.1  # of a stage: progress since its start that is enough to estimate the speed
_MAX_RESTORED_FRACTION = 0.8  # of a training: if more was restored, the rest is too short to estimate the whole


class TrainingRuntime(NamedTuple):
    """How long a complete training takes, measured or extrapolated from one execution."""

    site: str
    overhead_s: float  # before and after the steps
    steps_s: float

    @property
    def total_s(self) -> float:
        """The total run time in seconds."""
        return self.overhead_s + self.steps_s


class MoveCost(NamedTuple):
    """The cost of moving a job to another site or node."""

    n_resumes: int  # number of resumes from a checkpoint, each of which repeats the overhead
    redone_s: float  # time of work that was not saved


@dataclass(slots=True)
class RunningExecution:
    """A running execution and its progress.

    Treat it as immutable. Derived values are computed once, because policies read thousands of these repeatedly.
    """

    execution: Execution
    site: str
    stage_started_at: float  # by the store's clock
    fraction: float  # of the current stage, 0 to 1
    restored_fraction: float  # the part of it that comes from a checkpoint
    progress_at: float  # when `fraction` was reported; 0: not known
    first_report: tuple[float, float] | None = None  # the first reported fraction, and when it was reported
    is_in_steps: bool = field(init=False)
    measured_fraction: float = field(init=False)  # the progress from which the speed is estimated
    has_estimate: bool = field(init=False)  # the execution's own progress predicts its end
    _measured_from: float = field(init=False)  # when the measured progress began
    _startup_s: float = field(init=False)  # setup time before the first training step

    def __post_init__(self) -> None:
        """Choose the progress from which the speed is estimated.

        That is the progress after the first report, so setup time is excluded, or all progress if that is much. Only
        progress of the steps is used: the speed of transfers varies too much.
        """
        self.is_in_steps = self.execution.stage == "steps"
        own_fraction = self.fraction - self.restored_fraction
        if self.first_report and self.fraction - self.first_report[0] >= _MIN_MEASURED_FRACTION:
            first_fraction, self._measured_from = self.first_report
            self.measured_fraction = self.fraction - first_fraction
            elapsed_s = self.progress_at - self._measured_from
            before_first_s = (first_fraction - self.restored_fraction) * elapsed_s / self.measured_fraction
            self._startup_s = max(0.0, self._measured_from - self.stage_started_at - before_first_s)
        else:
            is_enough = own_fraction >= _MIN_TOTAL_FRACTION or not self.is_in_steps
            self.measured_fraction = own_fraction if is_enough else 0.0
            self._measured_from, self._startup_s = self.stage_started_at, 0.0
        self.has_estimate = self.is_in_steps and self.measured_fraction >= _MIN_MEASURED_FRACTION

    @classmethod
    def from_job(cls, job: JobState) -> RunningExecution | None:
        """Return the running execution of a job, or None. If a second copy runs too, the original is returned."""
        running = [e for e in job.live_executions if e.status is ExecutionStatus.RUNNING and e.started_at]
        if not running:
            return None
        execution = min(running, key=lambda e: e.number)
        is_in_steps, progress_at = execution.stage == "steps", execution.progress_at
        fraction = stage_fraction(execution) or 0.0
        restored = execution.training.checkpoint_fraction(execution.restored_checkpoint) if is_in_steps else 0.0
        return cls(
            execution,
            execution_site(execution),
            execution.stage_started_at or execution.started_at,
            fraction,
            restored,
            progress_at,
            (fraction, progress_at) if progress_at and fraction > restored and is_in_steps else None,
        )

    def merge_earlier(self, earlier: RunningExecution | None) -> RunningExecution:
        """Return a copy with what was known at the beginning of the same stage of the same execution.

        What was restored counts as progress until the first report, which is the first to tell the total. A resumed
        execution would otherwise be compared with complete trainings and moved again before its speed is known.
        """
        if earlier is None or earlier._stage_key != self._stage_key:
            return self
        first_report = earlier.first_report or self.first_report
        return replace(self, first_report=first_report, restored_fraction=earlier.restored_fraction)

    @property
    def _stage_key(self) -> tuple[str, str, str]:
        return self.execution.attempt_id, self.execution.emitter, self.execution.stage

    def estimate_stage_s(self, now: float) -> float:
        """Estimate how long the current stage takes in total, in seconds.

        The speed is that until the last report. If the last report is older than the time that was measured before it,
        the execution seems to be stuck, and the estimate grows with the time since.
        """
        reported_at = self.progress_at or now
        measured_s = max(0.0, reported_at - self._measured_from, (now - self._measured_from) / 2)
        return self._startup_s + measured_s / self.measured_fraction

    def estimate_remaining_s(self, now: float) -> float:
        """Estimate how long the current stage still takes, in seconds."""
        remaining, reported_at = 1.0 - self.fraction, self.progress_at or now
        by_reports = remaining * (reported_at - self._measured_from) / self.measured_fraction - (now - reported_at)
        return max(0.0, by_reports, remaining * (now - self._measured_from) / 2 / self.measured_fraction)


@dataclass
class TimingStats:
    """The timing of all jobs of a run.

    Of run times and queue times only the newest are kept: of a hundred thousand jobs, a thousand are enough.
    """

    runtimes: dict[str, TrainingRuntime] = field(default_factory=dict)  # by job, of jobs that succeeded
    running_jobs: dict[str, RunningExecution | None] = field(default_factory=dict)  # None: start time not known
    waiting_jobs: set[str] = field(default_factory=set)  # for a node, or for their next attempt
    copied_jobs: set[str] = field(default_factory=set)  # jobs that have, or had, a second copy
    move_costs: dict[str, MoveCost] = field(default_factory=dict)  # by job, from the decision to move on
    last_change_at: float = 0.0  # when an execution last started or ended
    slot_s: float = 0.0  # slot time of all executions that have ended
    _slot_s_by_job: dict[str, float] = field(default_factory=dict)
    _queue_s: dict[str, float] = field(default_factory=dict)  # the last queue time of each job
    _max_concurrent: int = 0  # the maximum when it was last measured
    _slot_intervals: dict[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)  # start and end, by job

    def update(self, job: JobState) -> None:
        """Replace everything that is known about one job."""
        self._update_ended(job)
        if moves := job.moves:
            self.move_costs[job.id] = _compute_move_cost(job, moves)
        queue_s = _last_queue_s(job)
        if queue_s is not None:
            _add_sample(self._queue_s, job.id, queue_s)
        change_times = (max(e.started_at, e.ended_at if e.started_at else 0.0) for e in job.executions)
        self.last_change_at = max(self.last_change_at, *change_times, 0.0)
        intervals = tuple((e.started_at, e.ended_at or math.inf) for e in job.executions if e.started_at)
        if intervals:
            self._slot_intervals[job.id] = intervals
        status = job.status
        earlier = self.running_jobs.pop(job.id, None)
        if status is JobStatus.RUNNING:
            running = RunningExecution.from_job(job)
            self.running_jobs[job.id] = running.merge_earlier(earlier) if running else None
        _set_membership(self.waiting_jobs, job.id, status in (JobStatus.QUEUED, JobStatus.WAITING))
        has_copy = job.n_attempts > 1 and any(execution.copy_of for execution in job.recent_executions)
        _set_membership(self.copied_jobs, job.id, has_copy)

    def _update_ended(self, job: JobState) -> None:
        slot_s = sum(slot_seconds(job, execution) for execution in job.executions if not execution.is_live)
        self.slot_s += slot_s - self._slot_s_by_job.get(job.id, 0.0)
        self._slot_s_by_job[job.id] = slot_s
        runtime = next(_completed_runtimes(job), None)
        if runtime:
            _add_sample(self.runtimes, job.id, runtime)

    def median_runtime_s(self) -> float:
        """Return the median run time of a training, 0 if not known yet."""
        return median(runtime.total_s for runtime in self.runtimes.values()) if self.runtimes else 0.0

    def median_queue_s(self) -> float:
        """Return the median time that jobs waited for a node, infinity if not known yet."""
        return median(self._queue_s.values()) if self._queue_s else math.inf

    def estimate_free_nodes(self) -> int:
        """Estimate how many nodes that the run once used are free and not needed by its waiting jobs."""
        if self._concurrency_bound() <= self._n_wanted:
            return 0
        return max(0, self._measure_concurrency() - self._n_wanted)

    @property
    def _n_wanted(self) -> int:
        return len(self.running_jobs) + len(self.waiting_jobs)

    def _concurrency_bound(self) -> int:
        """Return a cheap upper bound of the concurrency: a job has at most one copy."""
        return max(self._max_concurrent, (2 if self.copied_jobs else 1) * len(self._slot_intervals))

    def _measure_concurrency(self) -> int:
        """Return the maximum number of executions that were on nodes at the same time."""
        changes = [
            change
            for intervals in self._slot_intervals.values()
            for started_at, ended_at in intervals
            for change in ((started_at, 1), (ended_at, -1))
        ]
        concurrent = max(accumulate(delta for _, delta in sorted(changes)), default=0)
        self._max_concurrent = max(self._max_concurrent, concurrent)
        # Intervals that have ended cannot overlap with later ones.
        open_intervals = (
            (job, tuple(interval for interval in intervals if interval[1] == math.inf))
            for job, intervals in self._slot_intervals.items()
        )
        self._slot_intervals = {job: intervals for job, intervals in open_intervals if intervals}
        return self._max_concurrent


def _compute_move_cost(job: JobState, moves: Collection[str]) -> MoveCost:
    """Return the cost of a job's moves. If the pool started a moved attempt several times, the last start counts."""
    moved = {e.attempt_id: e for e in job.executions if e.attempt_id in moves and e.started_at}.values()
    ended = [execution for execution in moved if execution.status is not ExecutionStatus.SUCCEEDED]
    n_resumes = sum(bool(execution.checkpoint or execution.restored_checkpoint) for execution in ended)
    return MoveCost(n_resumes, sum(compute_redone_s(e, e.ended_at or job.changed_at) for e in ended))


def compute_redone_s(execution: Execution, until_at: float) -> float:
    """Return the time of the work that a successor has to repeat, in seconds.

    That is everything, or what was done since the newest checkpoint.

    Args:
        execution: The execution that is, or was, ended early.
        until_at: When it ends (by the store's clock).
    """
    checkpoint = execution.checkpoint or execution.restored_checkpoint
    if not checkpoint:
        return max(0.0, until_at - execution.started_at)
    training, done = execution.training, execution.training.fraction or 0.0
    own_fraction = done - training.checkpoint_fraction(execution.restored_checkpoint)
    lost_fraction = done - training.checkpoint_fraction(checkpoint)
    is_in_steps = execution.stage == "steps" and execution.stage_started_at
    since = execution.stage_started_at if is_in_steps else execution.started_at
    if own_fraction <= 0:
        return 0.0
    return max(0.0, _steps_duration_s(execution, until_at - since) * lost_fraction / own_fraction)


def _last_queue_s(job: JobState) -> float | None:
    started = next((execution for execution in reversed(job.executions) if execution.execution_number), None)
    timeline = job.attempts[started.attempt_id].timeline if started else None
    return timeline.wait_s(Phase.QUEUED) if timeline else None


def _add_sample(samples: dict[str, V], name: str, value: V) -> None:
    samples.pop(name, None)
    samples[name] = value
    if len(samples) > _MAX_SAMPLES:
        del samples[next(iter(samples))]


def _set_membership(names: set[str], name: str, is_member: bool) -> None:
    (names.add if is_member else names.discard)(name)


def _completed_runtimes(job: JobState) -> Iterator[TrainingRuntime]:
    for execution in job.executions:
        if execution.status is not ExecutionStatus.SUCCEEDED:
            continue
        slot_s = slot_seconds(job, execution)
        steps_s = estimate_steps_s(execution, slot_s)
        if steps_s is not None:
            overhead_s = max(0.0, slot_s - _steps_duration_s(execution, slot_s))
            yield TrainingRuntime(execution_site(execution), overhead_s, steps_s)


def _steps_duration_s(execution: Execution, slot_s: float) -> float:
    duration_s = next((stage.duration_s for stage in execution.stages if stage.name == "steps"), None)
    return slot_s if duration_s is None else duration_s


def estimate_steps_s(execution: Execution, slot_s: float) -> float | None:
    """Estimate how long the steps of a complete training take, from an execution that succeeded.

    Args:
        execution: The execution.
        slot_s: Its slot time, used if the duration of its steps is not known.

    Returns:
        The time in seconds, or None if too much was restored from a checkpoint to estimate it.
    """
    restored_fraction = execution.training.checkpoint_fraction(execution.restored_checkpoint)
    if restored_fraction > _MAX_RESTORED_FRACTION or (execution.restored_checkpoint and not restored_fraction):
        return None
    return _steps_duration_s(execution, slot_s) / (1 - restored_fraction)


def current_training_step(execution: Execution) -> int:
    """Return the training step that was reported last, or -1."""
    step = to_finite_float(execution.training.latest("step"))
    return max(execution.checkpoint_step, -1 if step is None else int(step))


def execution_site(execution: Execution) -> str:
    """Return the site of an execution; "" if it never ran, because its `site` field is then the engine's name."""
    return execution.site if execution.emitter or execution.execution_number else ""


def slot_seconds(job: JobState, execution: Execution) -> float:
    """Return the slot time of an execution in seconds, from the pool's log if there is one."""
    timeline = job.attempts[execution.attempt_id].timeline
    session = timeline.find_session(execution.execution_number) if timeline else None
    return max(execution.agent_duration_s, session.duration_s(timeline.last_event_at) if timeline and session else 0.0)
