"""The verdict on a job: succeeded, or failed for good."""

from __future__ import annotations

from collections.abc import Mapping

from packtrain.events import Failure
from packtrain.state import Attempt, AttemptStatus, JobState, JobStatus, RunState
from packtrain.supervise.decisions import Changed, Decision, End, Policy


def verdict(budget: Mapping[str, int]) -> Policy:
    """`budget`: how many attempts may fail, by job. One that left in time and got further costs nothing."""

    def policy(state: RunState, changed: Changed, now: float) -> list[Decision]:
        undecided = (job for name in changed if not (job := state.jobs[name]).verdict)
        return [decision for job in undecided if (decision := _judge(job, budget.get(job.id, 1)))]

    return policy


def _judge(job: JobState, allowed: int) -> End | None:
    winner = next((a for a in job.attempts if a.status is AttemptStatus.SUCCEEDED), None)
    if winner:
        return End(job.id, JobStatus.SUCCEEDED, f"attempt {winner.number} passed its checks", winner.emitter)
    spent = list(job.spent)
    if job.live or not spent or spent[-1] is not job.recent[-1]:
        return None
    return _give_up(job, spent, allowed)


def _give_up(job: JobState, spent: list[Attempt], allowed: int) -> End | None:
    last = spent[-1].failure or _no_further(spent[-1])
    if not last.transient and spent[-1].failure:
        return End(job.id, JobStatus.FAILED, "another attempt would end alike", failure=last)
    if len(spent) >= allowed:
        return End(job.id, JobStatus.FAILED, f"{len(spent)} of {allowed} attempts were used up", failure=last)
    return None


def _no_further(attempt: Attempt) -> Failure:
    """Of an attempt that left in time, but for nothing."""
    detail = f"attempt {attempt.number} left without a checkpoint that is further than the one before it"
    return Failure.of("step_failed", "steps", detail)
