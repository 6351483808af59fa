"""Respond to attempts that the pool holds: release them if that may help, else give them up.

The response to a hold, and when it is due, are known as soon as the hold is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from packtrain.backoff import Backoff
from packtrain.events import FAILURE_KINDS
from packtrain.events.failure import SWITCH_TRANSFER
from packtrain.state import Execution, ExecutionStatus, JobState, RunState
from packtrain.supervise.decisions import ChangedJobs, Decision, GiveUp, Policy, Release
from packtrain.supervise.policies.config import PolicyConfig

_MAX_RELEASES = 3
_RELEASE_BACKOFF = Backoff(10.0, 360.0, factor=6.0)
_RESTART_LOOP = "restart_loop"  # the pool started the attempt many times
HOLD_REPEATED_FAILURES = 0  # used as the hold number of a decision to give up an attempt whose executions keep failing
_MAX_USER_HOLD_S = 24 * 3600.0  # how long a hold by a user is respected


@dataclass(frozen=True)
class HoldResponse:
    """The planned response to a hold."""

    should_release: bool  # if not, the attempt is given up
    due_at: float  # by the store's clock
    reason: str


def hold_policy(config: PolicyConfig) -> Policy:
    """Return the policy that responds to holds."""

    def policy(state: RunState, changed_jobs: ChangedJobs, now: float) -> list[Decision]:
        jobs = (state.jobs[job_id] for job_id in changed_jobs if not state.jobs[job_id].result)
        return [decision for job in jobs for decision in _respond_to_holds(job, config, now)]

    return policy


def _respond_to_holds(job: JobState, config: PolicyConfig, now: float) -> Iterator[Decision]:
    for execution in job.live_executions:
        if execution.hold and not job.hold_decision(execution.hold):
            response = plan_hold_response(job, execution, config)
            if now >= response.due_at:
                decision = Release if response.should_release else GiveUp
                yield decision(job.id, execution.attempt_id, response.reason, execution.hold.seq)
        elif _fails_repeatedly(job, execution, config.limits(job.id).max_attempts):
            reason = "the pool keeps restarting the attempt, and it keeps failing"
            yield GiveUp(job.id, execution.attempt_id, reason, HOLD_REPEATED_FAILURES)


def _fails_repeatedly(job: JobState, execution: Execution, max_attempts: int) -> bool:
    """Return whether a queued attempt has already failed as often as attempts may."""
    is_queued = execution.status is ExecutionStatus.QUEUED
    is_decided = job.decision_for(execution.attempt_id, HOLD_REPEATED_FAILURES)
    return is_queued and not is_decided and len(job.counted_failures) >= max_attempts


def plan_hold_response(job: JobState, execution: Execution, config: PolicyConfig) -> HoldResponse:
    """Return the response to the current hold of an execution."""
    assert execution.hold is not None
    hold, data = execution.hold, execution.hold.event.data
    action = data.get("action")
    n_releases = job.count_releases(execution.attempt_id, except_kind=_RESTART_LOOP)
    if hold.failure_kind == _RESTART_LOOP and job.has_progressed_since(hold):
        return HoldResponse(True, hold.received_at, "the training has progressed since the last hold")
    if action == "wait":
        return HoldResponse(False, hold.received_at + _MAX_USER_HOLD_S, "it has been held for a day")
    if action != "release":
        return HoldResponse(False, hold.received_at, str(data.get("detail", "")))
    if n_releases and _can_switch_transfer(job, str(data.get("kind", "")), config):
        reason = "the pool's transfer plugin failed again; the agent of the next attempt fetches the inputs"
        return HoldResponse(False, hold.received_at, reason)
    if n_releases >= _MAX_RELEASES:
        return HoldResponse(False, hold.received_at, f"released {n_releases} times and held again")
    if len(job.counted_failures) >= config.limits(job.id).max_attempts:
        return HoldResponse(False, hold.received_at, "the job has no attempts left")
    due_at = hold.received_at + _RELEASE_BACKOFF.delay_s(n_releases + 1)
    return HoldResponse(True, due_at, "the cause of the hold may be gone")


def _can_switch_transfer(job: JobState, kind: str, config: PolicyConfig) -> bool:
    """Return whether the agent can fetch the inputs that the pool's transfer plugin failed to fetch."""
    is_transfer_failure = kind in FAILURE_KINDS and FAILURE_KINDS[kind].action == SWITCH_TRANSFER
    return is_transfer_failure and config.recovery.fallback_to_agent and config.uses_transfer_plugin(job.id)
