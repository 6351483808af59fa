"""Figures that views show, drawn from the state: where the time went, how a run stands."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from packtrain.state.execution import STAGES, Execution, stage_fraction
from packtrain.state.job import JobState
from packtrain.state.pool_time import PoolTimes, SlotTime
from packtrain.state.run import RunState
from packtrain.state.transitions import ExecutionStatus, JobStatus

_POOL_PHASES = ("queue", "held", "transfer")
_WASTED_STATUSES = (ExecutionStatus.FAILED, ExecutionStatus.LOST)
FINAL_STATUSES = (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED)


@dataclass(frozen=True)
class TimeSummary:
    """Seconds of all attempts of a run, by stage, and those of attempts that came to nothing. In a pool also those in
    its queue, those of its own transfers, and those that it held them back."""

    seconds_by_stage: Mapping[str, float]
    wasted_s: float

    @property
    def total_s(self) -> float:
        return sum(self.seconds_by_stage.values()) + self.wasted_s


def summarize_times(state: RunState) -> TimeSummary:
    sums = _TimeTotals()
    for job in state.jobs.values():
        for decision, attempts in groupby(job.executions, key=lambda attempt: attempt.attempt_id):
            sums.add(list(attempts), job.pool_times(decision))
    return sums.summarize()


class _TimeTotals:
    """What an agent counts and what a pool counts are durations by two clocks: the pool's transfers lie outside of an
    agent's life, and of a slot's time what its agents do not explain is `start`."""

    def __init__(self) -> None:
        self._seconds_by_stage: defaultdict[str, float] = defaultdict(float)
        self._wasted_s = 0.0
        self._unexplained_s = 0.0  # of slots; the log's whole seconds even out in the sum only

    def add(self, executions: Sequence[Execution], pool_times: PoolTimes | None) -> None:
        """The attempts of one decision."""
        if pool_times is not None:
            self._seconds_by_stage["queue"] += pool_times.queue_s
            self._seconds_by_stage["held"] += pool_times.held_s
            self._wasted_s += pool_times.wasted_transfer_s
        starts = pool_times.slot_times if pool_times else {}
        for number, of_start in groupby(executions, key=lambda attempt: attempt.execution_number):
            self._add_execution(list(of_start), starts.get(number, SlotTime()))

    def _add_execution(self, executions: Sequence[Execution], slot_time: SlotTime) -> None:
        good = [attempt for attempt in executions if attempt.status not in _WASTED_STATUSES]
        for attempt in good:
            self._add_stages(attempt)
        explained = sum(attempt.agent_duration_s for attempt in good)
        if len(good) == len(executions):
            self._seconds_by_stage["transfer"] += slot_time.transfer_s
            self._unexplained_s += slot_time.slot_s - explained if slot_time.has_ended else 0.0
            return
        used = slot_time.transfer_s if good else 0.0
        told = sum(attempt.agent_duration_s for attempt in executions) - explained
        self._seconds_by_stage["transfer"] += used
        self._wasted_s += (
            slot_time.transfer_s - used + (max(0.0, slot_time.slot_s - explained) if slot_time.has_ended else told)
        )

    def _add_stages(self, execution: Execution) -> None:
        for stage in execution.stages:
            self._seconds_by_stage[stage.name] += stage.duration_s or 0.0
        self._seconds_by_stage["startup"] += max(
            0.0, execution.agent_duration_s - sum(stage.duration_s or 0.0 for stage in execution.stages)
        )

    def summarize(self) -> TimeSummary:
        self._seconds_by_stage["startup"] += max(0.0, self._unexplained_s)
        names = (*_POOL_PHASES, "startup", *STAGES)
        return TimeSummary(
            {name: self._seconds_by_stage[name] for name in names if self._seconds_by_stage[name]}, self._wasted_s
        )


def run_status(state: RunState, has_live_supervisor: bool) -> str:
    """succeeded, failed, cancelled; running while a supervisor lives; interrupted or unattended otherwise."""
    if state.is_finished:
        worst = (JobStatus.FAILED, JobStatus.CANCELLED, JobStatus.SUCCEEDED)
        return next(status.value for status in worst if state.count_jobs(status))
    if has_live_supervisor:
        return "running"
    return "orphaned" if state.is_supervised else "interrupted"


def job_to_json(job: JobState) -> dict[str, Any]:
    """A job for --json."""
    last = job.latest_execution
    failure = (job.result.failure if job.result else None) or (last.failure if last else None)
    return {
        "job": job.id,
        "point": dict(job.point),
        "status": job.status.value,
        "executions": [execution_to_json(attempt) for attempt in job.executions],
        "failure": failure.to_data() if failure else None,
        "metrics": dict(last.metrics) if last else {},
        "fraction": stage_fraction(last) if last and last.is_live else None,
        "remaining_s": last.training.remaining_s if last and last.is_live else None,
    }


def execution_to_json(execution: Execution) -> dict[str, Any]:
    return {
        "number": execution.number,
        "attempt": execution.attempt_id,
        "status": execution.status.value,
        "stage": execution.stage,
        "host": execution.host,
        "native_id": execution.native_id,
        "execution": execution.execution_number,
        "hold_reason": execution.hold.event.data.get("detail") if execution.hold else None,
        "site": execution.site,
        "seconds": execution.agent_duration_s,
        "stages": {stage.name: stage.duration_s for stage in execution.stages},
        "exit_code": execution.exit_code,
        "failure": execution.failure.to_data() if execution.failure else None,
        "notices": list(execution.notices),
        "checkpoint": dict(execution.checkpoint),
        "restored_checkpoint": dict(execution.restored_checkpoint),
    }
