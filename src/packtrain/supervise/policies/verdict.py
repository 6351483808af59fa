"""The verdict on a job: succeeded, or failed for good."""

from __future__ import annotations

from collections.abc import Mapping

from packtrain.state import Attempt, AttemptStatus, JobState, JobStatus, RunState
from packtrain.supervise.decisions import Changed, Decision, End, Policy

_SPENT = (AttemptStatus.FAILED, AttemptStatus.LOST)


def verdict(budget: Mapping[str, int]) -> Policy:
    """`budget`: how many attempts may fail, by job."""

    def policy(state: RunState, changed: Changed, now: float) -> list[Decision]:
        undecided = (job for name in changed if not (job := state.jobs[name]).verdict)
        return [decision for job in undecided if (decision := _judge(job, budget.get(job.id, 1)))]

    return policy


def _judge(job: JobState, allowed: int) -> End | None:
    winner = next((a for a in job.attempts if a.status is AttemptStatus.SUCCEEDED), None)
    if winner:
        return End(job.id, JobStatus.SUCCEEDED, f"attempt {winner.number} passed its checks", winner.emitter)
    # An attempt that a supervisor ended, since it was interrupted itself, says nothing of the job.
    spent = [a for a in job.recent if a.status in _SPENT and not job.cancel_decided(a.decision)]
    if job.live or not spent or spent[-1] is not job.recent[-1]:
        return None
    return _give_up(job, spent, allowed)


def _give_up(job: JobState, spent: list[Attempt], allowed: int) -> End | None:
    last = spent[-1].failure
    if last and not last.transient:
        return End(job.id, JobStatus.FAILED, "another attempt would end alike", failure=last)
    if len(spent) >= allowed:
        return End(job.id, JobStatus.FAILED, f"{len(spent)} of {allowed} attempts were used up", failure=last)
    return None
