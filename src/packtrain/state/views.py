"""Figures that views show, drawn from the state: where the time went, how a run stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from packtrain.state.attempt import Attempt
from packtrain.state.fold import RunState
from packtrain.state.job import JobState
from packtrain.state.table import AttemptStatus, JobStatus

STAGES = ("probe", "fetch", "unpack", "steps", "check", "sync", "clean")
FINAL = (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED)


@dataclass(frozen=True)
class Times:
    """Seconds of all attempts of a run, by stage, and those of attempts that came to nothing."""

    by_stage: Mapping[str, float]
    lost: float

    @property
    def total(self) -> float:
        return sum(self.by_stage.values()) + self.lost


def times_of(state: RunState) -> Times:
    by_stage: Counter[str] = Counter()
    lost = 0.0
    for attempt in (a for job in state.jobs.values() for a in job.attempts):
        if attempt.status in (AttemptStatus.FAILED, AttemptStatus.LOST):
            lost += attempt.seconds
        else:
            named = {stage.name: stage.seconds or 0.0 for stage in attempt.stages}
            by_stage.update({"start": max(0.0, attempt.seconds - sum(named.values())), **named})
    return Times({name: by_stage[name] for name in ("start", *STAGES) if by_stage[name]}, lost)


def run_status(state: RunState, attended: bool) -> str:
    """succeeded, failed, cancelled; running while a supervisor lives; interrupted or unattended otherwise."""
    if state.finished:
        worst = (JobStatus.FAILED, JobStatus.CANCELLED, JobStatus.SUCCEEDED)
        return next(status.value for status in worst if state.count(status))
    if attended:
        return "running"
    return "unattended" if state.supervised else "interrupted"


def fraction_of(attempt: Attempt) -> float | None:
    """How far the current stage is, where somebody said it: 0 to 1."""
    if attempt.stage == "steps":
        return attempt.training.fraction
    done, total = attempt.progress.get("done"), attempt.progress.get("total")
    if not isinstance(done, (int, float)) or not isinstance(total, (int, float)) or total <= 0:
        return None
    return min(1.0, done / total)


def job_data(job: JobState) -> dict[str, Any]:
    """A job for --json."""
    last = job.latest
    failure = (job.verdict.failure if job.verdict else None) or (last.failure if last else None)
    return {
        "job": job.id,
        "point": dict(job.point),
        "status": job.status.value,
        "attempts": [attempt_data(attempt) for attempt in job.attempts],
        "failure": failure.to_data() if failure else None,
        "metric": dict(last.metric) if last else {},
        "fraction": fraction_of(last) if last and last.live else None,
        "left_s": last.training.left_s if last and last.live else None,
    }


def attempt_data(attempt: Attempt) -> dict[str, Any]:
    return {
        "attempt": attempt.number,
        "decision": attempt.decision,
        "status": attempt.status.value,
        "stage": attempt.stage,
        "host": attempt.host,
        "native": attempt.native,
        "start": attempt.start,
        "held": attempt.hold.event.data.get("detail") if attempt.hold else None,
        "site": attempt.site,
        "seconds": attempt.seconds,
        "stages": {stage.name: stage.seconds for stage in attempt.stages},
        "exit_code": attempt.exit_code,
        "failure": attempt.failure.to_data() if attempt.failure else None,
        "notices": list(attempt.notices),
        "checkpoint": dict(attempt.checkpoint),
        "restored": dict(attempt.restored),
    }
