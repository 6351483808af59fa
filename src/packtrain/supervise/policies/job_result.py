"""The verdict on a job: succeeded, or failed for good."""

from __future__ import annotations

from packtrain.events import Failure
from packtrain.events.failure import CONFIRM, END, RETRY, STOP
from packtrain.state import Attempt, JobState, JobStatus, RunState
from packtrain.state.outcomes import signature
from packtrain.state.timing import on_machine
from packtrain.supervise.decisions import Changed, Decision, End, Policy
from packtrain.supervise.policies.config import Rules

_CHEAP_S = 1800.0  # a mistake that showed sooner is worth another look elsewhere


def verdict(rules: Rules) -> Policy:
    """An attempt that left in time and got further costs nothing of the budget."""

    def policy(state: RunState, changed: Changed, now: float) -> list[Decision]:
        undecided = (job for name in changed if not (job := state.jobs[name]).verdict)
        return [decision for job in undecided if (decision := _judge(state, job, rules))]

    return policy


def _judge(state: RunState, job: JobState, rules: Rules) -> End | None:
    winner = job.winner
    if winner:
        return End(job.id, JobStatus.SUCCEEDED, f"attempt {winner.number} passed its checks", winner.emitter)
    spent, tried = list(job.spent), [a for a in job.recent if not job.cancel_decided(a.decision)]
    if job.live or not spent:
        return None
    # A pool may have spent all by itself while nobody looked, before one that was free.
    mistake = _mistake(state, job, spent, rules) if spent[-1] is tried[-1] else ""
    reason = mistake or used_up(job, rules)
    failure = spent[-1].failure or _no_further(spent[-1])
    return End(job.id, JobStatus.FAILED, reason, failure=failure) if reason else None


def _mistake(state: RunState, job: JobState, spent: list[Attempt], rules: Rules) -> str:
    """Why no other attempt can help; "": one may."""
    last = spent[-1].failure
    if last is not None and _would_end_alike(last, rules):
        return "another attempt would end alike"
    return _confirmed(state, job, spent, rules) if last is not None and last.action == CONFIRM else ""


def used_up(job: JobState, rules: Rules) -> str:
    """Which of its budgets; "": none."""
    limits, spent = rules.limits(job.id), job.spent
    if len(spent) >= limits.attempts:
        return f"{len(spent)} of {limits.attempts} attempts were used up"
    wasted = sum(on_machine(job, attempt) for attempt in spent) if limits.wasted_s is not None else 0.0
    if limits.wasted_s is not None and wasted >= limits.wasted_s:
        return f"its failed attempts took {wasted / 3600:.1f} h of the {limits.wasted_s / 3600:.1f} h that they may"
    return ""


def _would_end_alike(failure: Failure, rules: Rules) -> bool:
    """Where there is but one place, what is not transient is so in the next attempt, too."""
    if failure.action == CONFIRM:
        return not rules.can_move
    return failure.action in (END, STOP) or (
        not failure.transient and not (failure.action == RETRY and rules.many_sites)
    )


def _confirmed(state: RunState, job: JobState, spent: list[Attempt], rules: Rules) -> str:
    """Why no other site need be asked whether it is a mistake of the user's."""
    last = spent[-1]
    assert last.failure is not None
    like = signature(last.failure)
    own = [attempt for attempt in spent if attempt.failure and signature(attempt.failure) == like]
    sites = {finding.site for finding in state.outcomes.mistakes.get(like, ()) if finding.site}
    if len(sites) >= rules.places:
        return f"it failed alike at {len(sites)} sites"
    if len(own) > 1:
        return f"{len(own)} attempts failed alike"
    return "it ran for long before it failed, and another attempt would most likely end alike" if _is_dear(last) else ""


def _is_dear(attempt: Attempt) -> bool:
    return attempt.seconds > _CHEAP_S


def _no_further(attempt: Attempt) -> Failure:
    """Of an attempt that left in time, but for nothing."""
    detail = f"attempt {attempt.number} left without a checkpoint that is further than the one before it"
    return Failure.of("step_failed", "steps", detail)
