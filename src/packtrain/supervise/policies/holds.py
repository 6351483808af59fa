"""Attempts that the engine keeps back: let go again where that may help, given up where it does not. Each hold has an
answer from the moment it is known, and a time at which that is given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from packtrain.events import FAILURE_KINDS
from packtrain.events.failure import SWITCH_TRANSFER
from packtrain.state import Execution, ExecutionStatus, JobState, RunState
from packtrain.supervise.decisions import ChangedJobs, Decision, GiveUp, Policy, Release
from packtrain.supervise.policies.config import PolicyConfig

_MAX_RELEASES = 3
_FIRST_RELEASE_DELAY_S, _DELAY_FACTOR = 10.0, 6.0
_RESTART_LOOP = "restart_loop"  # the pool started it many times
HOLD_REPEATED_FAILURES = 0  # an answer to starts that fail alike, not to a hold
_MAX_USER_HOLD_S = 24 * 3600.0  # somebody held it on purpose: that is respected, but not for ever


@dataclass(frozen=True)
class HoldResponse:
    """What will be done about a hold, when, and why."""

    should_release: bool
    due_at: float  # by the store's clock
    reason: str


def hold_policy(config: PolicyConfig) -> Policy:
    def policy(state: RunState, changed_jobs: ChangedJobs, now: float) -> list[Decision]:
        jobs = (state.jobs[name] for name in changed_jobs if not state.jobs[name].result)
        return [decision for job in jobs for decision in _respond_to_holds(job, config, now)]

    return policy


def _respond_to_holds(job: JobState, config: PolicyConfig, now: float) -> Iterator[Decision]:
    for attempt in job.live_executions:
        if attempt.hold and not job.hold_decision(attempt.hold):
            answer = plan_hold_response(job, attempt, config)
            if now >= answer.due_at:
                kind = Release if answer.should_release else GiveUp
                yield kind(job.id, attempt.attempt_id, answer.reason, attempt.hold.seq)
        elif _fails_repeatedly(job, attempt, config.limits(job.id).max_attempts):
            yield GiveUp(
                job.id,
                attempt.attempt_id,
                "the pool starts it again and again, and it fails alike",
                HOLD_REPEATED_FAILURES,
            )


def _fails_repeatedly(job: JobState, execution: Execution, max_attempts: int) -> bool:
    """It waits for its next start, but its starts so far failed as often as attempts may."""
    waits = execution.status is ExecutionStatus.QUEUED and not job.decision_for(
        execution.attempt_id, HOLD_REPEATED_FAILURES
    )
    return waits and len(job.counted_failures) >= max_attempts


def plan_hold_response(job: JobState, execution: Execution, config: PolicyConfig) -> HoldResponse:
    assert execution.hold is not None
    hold, data = execution.hold, execution.hold.event.data
    action, released = data.get("action"), job.count_releases(execution.attempt_id, except_kind=_RESTART_LOOP)
    if hold.failure_kind == _RESTART_LOOP and job.has_progressed_since(hold):
        return HoldResponse(True, hold.received_at, "its training got further since it was last held")
    if action == "wait":
        return HoldResponse(False, hold.received_at + _MAX_USER_HOLD_S, "it was held for a day")
    if action != "release":
        return HoldResponse(False, hold.received_at, str(data.get("detail", "")))
    if released and _can_switch_transfer(job, str(data.get("kind", "")), config):
        return HoldResponse(
            False, hold.received_at, "the pool's plugins failed to bring its data again; the agent fetches them"
        )
    if released >= _MAX_RELEASES:
        return HoldResponse(False, hold.received_at, f"it was let go {released} times and is held again")
    if len(job.counted_failures) >= config.limits(job.id).max_attempts:
        return HoldResponse(False, hold.received_at, "its last attempt ended with it")
    wait = _FIRST_RELEASE_DELAY_S * _DELAY_FACTOR**released
    return HoldResponse(True, hold.received_at + wait, "what kept it back may have passed")


def _can_switch_transfer(job: JobState, kind: str, config: PolicyConfig) -> bool:
    redeliver = kind in FAILURE_KINDS and FAILURE_KINDS[kind].action == SWITCH_TRANSFER
    return redeliver and config.recovery.fallback_to_agent and config.uses_transfer_plugin(job.id)
