"""The story of a job in sentences: what happened, the evidence, whose fault, what was done, what comes next, what to
do. What comes next is what the policies themselves say."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from packtrain import formatting
from packtrain.engines.api import Overrides
from packtrain.events import FAILURE_KINDS, Failure
from packtrain.events.failure import MORE_MEMORY
from packtrain.plan import RunFolder
from packtrain.state import Execution, JobState, JobStatus, RunState
from packtrain.state.outcomes import ExecutionOutcome, failure_signature
from packtrain.state.timing import execution_site
from packtrain.supervise.policies.config import PolicyConfig
from packtrain.supervise.policies.holds import plan_hold_response
from packtrain.supervise.policies.overrides import make_overrides
from packtrain.supervise.policies.queue_timeout import is_queued, queue_deadline_at
from packtrain.supervise.policies.site_avoidance import find_avoided_locations, find_common_faults
from packtrain.supervise.policies.stop_run import find_stop_reason, has_ever_run
from packtrain.supervise.policies.submit import retry_delay_s

_MAX_LOG_LINES, _MAX_EXECUTIONS = 5, 3
_NOT_STARTED_KINDS = ("run_stopped", "budget_exceeded")
_FAULT_TEXT = {
    "user": "the workflow or its program",
    "data": "the data or the service that gives it",
    "site": "the machine it ran on",
    "pool": "nobody: that is how pools are",
    "packtrain": "packtrain itself",
}


@dataclass(frozen=True)
class JobExplanation:
    job_id: str
    has_failed: bool
    summary: str
    evidence: tuple[str, ...] = ()
    fault: str = ""
    actions_taken: str = ""
    next_action: str = ""
    remedy: str = ""
    exit_code: int | None = None

    @property
    def group_key(self) -> tuple[str, ...]:
        return (self.summary, self.fault, self.actions_taken, self.next_action, self.remedy)

    def labelled_lines(self) -> Iterator[tuple[str, str]]:
        yield "problem", self.summary
        for line in self.evidence:
            yield "evidence", line
        told = (("fault", self.fault), ("actions", self.actions_taken), ("next", self.next_action), ("fix", self.remedy))
        yield from (pair for pair in told if pair[1])

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class ExplainContext:
    """What is known besides the job itself."""

    state: RunState
    folder: RunFolder
    supervised: bool  # a supervisor lives
    rules: PolicyConfig = field(default_factory=PolicyConfig)
    now: float = 0.0  # by the store's clock
    known_bad_sites: Mapping[str, str] = field(
        default_factory=dict
    )  # places that earlier runs learned to avoid, and why

    @cached_property
    def avoided_locations(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Sites and machines that are avoided."""
        return find_avoided_locations(self.state, self.rules, self.now)


def explain_run(context: ExplainContext) -> list[str]:
    """What concerns the whole run: why it was stopped, which places it avoids."""
    state, rules = context.state, context.rules
    _, reason = find_stop_reason(state, rules)
    ended = (
        job for job in state.jobs.values() if job.result and _failure_kind(job.result.failure) in _NOT_STARTED_KINDS
    )
    idle = sum(not has_ever_run(job) for job in ended)
    told = (
        [f"{reason}; {_count_noun(idle, 'job')} {'was' if idle == 1 else 'were'} not started"]
        if reason and idle
        else []
    )
    sites, machines = ((), ()) if state.is_finished else context.avoided_locations
    for kind, names in (("sites", sites), ("machines", machines)):
        if names:
            told.append(f"{kind} that are avoided for now, since attempts failed there: {', '.join(names)}")
    if not state.is_finished:
        told += [
            f"{name} is avoided because of earlier runs: {reason}" for name, reason in context.known_bad_sites.items()
        ]
    return told


def explain_job(job: JobState, context: ExplainContext) -> JobExplanation:
    failure = _current_failure(job)
    if failure is None:
        return JobExplanation(
            job.id,
            False,
            _describe_healthy(job, context.now),
            tuple(_describe_failed_executions(job)),
            actions_taken=_describe_actions(job),
            next_action=_describe_next(job, context),
        )
    last = next(iter(reversed(_failed_executions(job))), None)
    row = FAILURE_KINDS.get(failure.kind)
    return JobExplanation(
        job.id,
        has_failed=True,
        summary=f"{failure.detail} ({failure.kind}, in the stage {failure.stage})",
        evidence=tuple(_collect_evidence(job, context)),
        fault=_describe_fault(failure, last, context),
        actions_taken=_describe_actions(job),
        next_action=_describe_next(job, context),
        remedy=row.remedy if row else "",
        exit_code=last.exit_code if last else failure.exit_code,
    )


def _failure_kind(failure: Failure | None) -> str:
    return failure.kind if failure else ""


def _current_failure(job: JobState) -> Failure | None:
    """What stands between the job and its end: the verdict's, or that of the attempt before now."""
    if job.result:
        return job.result.failure
    return job.latest_execution.failure if job.latest_execution and not job.latest_execution.is_live else None


def _describe_healthy(job: JobState, now: float) -> str:
    last = job.latest_execution
    if job.status is JobStatus.SUCCEEDED and last:
        return f"it succeeded: attempt {last.number} took {formatting.format_duration(last.agent_duration_s)} and passed its checks"
    if job.status is JobStatus.CANCELLED and job.result:
        return f"it was cancelled: {job.result.reason}"
    if job.status is JobStatus.RUNNING and last:
        return f"it runs on {last.host or last.site}, in the stage {last.stage or 'startup'}"
    if last and last.hold:
        return str(last.hold.event.data.get("detail", "the pool holds it"))
    if last and last.is_live and (why := job.latest_progress(last.attempt_id)[0].get("wait_reason")):
        return f"it is not in the pool's queue yet: {why}"
    if job.status is JobStatus.QUEUED and last and last.site == "htcondor":
        long = formatting.format_wait(job.waiting_since, now)
        return f"it waits for a machine of the pool{long}{_retry_reason(job)}; `condor_q -better-analyze {last.native_id}` says more"
    if job.status is JobStatus.QUEUED:
        return "it waits for room: the CPUs, memory or GPUs it asks for are taken by other jobs"
    return "its turn has not come"


def _retry_reason(job: JobState) -> str:
    before = job.executions[-2] if len(job.executions) > 1 else None
    return f", again: {before.failure.detail}" if before and before.failure else ""


def _describe_fault(failure: Failure, execution: Execution | None, context: ExplainContext) -> str:
    """With the places that say so."""
    record, like = context.state.stats, failure_signature(failure)
    if failure.action == MORE_MEMORY:
        return "what the workflow asks for: its program needs more memory"
    if failure.blame == "user":
        return f"{_FAULT_TEXT['user']}{_same_failure_sites(record.user_errors.get(like, ()))}"
    if like in find_common_faults(context.state, context.now):
        return f"most likely the workflow or a service, not the machines{_same_failure_sites(record.site_faults[like])}"
    if failure.blame != "site":
        return _FAULT_TEXT.get(failure.blame, failure.blame)
    where = _format_location(execution) if execution else ""
    return f"{_FAULT_TEXT['site']}: {where}" if where else "the pool or a machine of it, before the job ran"


def _same_failure_sites(outcomes: Collection[ExecutionOutcome]) -> str:
    sites = sorted({one.site for one in outcomes if one.site})
    return f": it failed alike at {', '.join(sites)}" if len(sites) > 1 else ""


def _format_location(execution: Execution) -> str:
    site, machine = execution_site(execution), execution.node
    return f"{machine} at {site}" if machine and site and site != "local" else machine or site


# What was done, and what comes next


def _describe_actions(job: JobState) -> str:
    failed = [a for a in _failed_executions(job) if a in job.recent_executions]
    released = sum(job.count_releases(decision) for decision in {a.attempt_id for a in job.recent_executions})
    told = [f"{_count_noun(len(failed), 'attempt')} failed"] if failed else []
    told += [f"it was let go {_count_noun(released, 'time')}"] if released else []
    told += [
        amended
        for a in job.recent_executions[1:]
        if (amended := format_overrides(Overrides.from_data(a.overrides), a.number))
    ][-1:]
    told += _straggler_actions(job)
    if job.result and job.result.status is JobStatus.FAILED:
        told.append(job.result.reason)
    return "; ".join(told)


def _straggler_actions(job: JobState) -> Iterator[str]:
    """What was done about attempts that were late."""
    numbers = {attempt.attempt_id: attempt.number for attempt in job.executions}
    for decision, moved in job.moves.items():
        yield f"attempt {numbers[decision]} was moved: {moved.get('reason', '')}"
    for copy in {a.attempt_id: a for a in job.recent_executions if a.copy_of}.values():
        first = numbers.get(copy.copy_of, 1)
        yield f"attempt {copy.number} was started beside attempt {first}: {job.submit_reason(copy.attempt_id)}"
        ended = job.cancel_reason(copy.attempt_id) or job.cancel_reason(copy.copy_of)
        if ended:
            yield ended


def _describe_next(job: JobState, context: ExplainContext) -> str:
    """What follows by itself; nothing once there is a verdict."""
    if job.result:
        return ""
    if not context.supervised:
        return "nobody supervises the run; `packtrain resume` goes on"
    last = job.latest_execution
    if last and last.hold:
        return _hold_response_text(job, last, context)
    if job.live_executions or not job.recent_executions:
        return _queue_timeout_text(job, context)
    wait = job.changed_at + retry_delay_s(job, context.rules) - context.now
    amended = format_overrides(make_overrides(job, context.rules, context.avoided_locations))
    when = f"in {formatting.format_duration(wait)}" if wait >= 1 else "now"
    return f"another attempt follows {when}{', ' if amended else ''}{amended}"


def _queue_timeout_text(job: JobState, context: ExplainContext) -> str:
    """Of one that waits in a pool where nothing of the run runs."""
    if (
        not any(map(is_queued, job.live_executions))
        or not context.rules.many_sites
        or context.state.stats.timing.running_jobs
    ):
        return ""
    left = queue_deadline_at(context.state, job, context.rules) - context.now
    if left > context.rules.recovery.max_queue_time_s / 2:
        return ""
    return (
        f"it fails in {formatting.format_duration(max(0.0, left))} if no machine takes anything of the run until then"
    )


def _hold_response_text(job: JobState, execution: Execution, context: ExplainContext) -> str:
    assert execution.hold is not None
    given = job.hold_decision(execution.hold)
    if given:
        return "packtrain has asked for its release" if given == "release" else "packtrain has given it up"
    answer = plan_hold_response(job, execution, context.rules)
    wait = answer.due_at - context.now
    when = f"in {formatting.format_duration(wait)}" if wait >= 1 else "now"
    does = "lets it go again" if answer.should_release else "gives this attempt up"
    return f"packtrain {does} {when}: {answer.reason}"


def format_overrides(overrides: Overrides, attempt_number: int = 0) -> str:
    """with twice the memory, not at Slow"""
    told = [f"with {overrides.memory_factor:g} times the memory"] if overrides.memory_factor > 1 else []
    told += [f"with {overrides.disk_factor:g} times the disk"] if overrides.disk_factor > 1 else []
    told += [f"not at {', '.join(overrides.avoid_sites)}"] if overrides.avoid_sites else []
    told += [f"not on {', '.join(overrides.avoid_nodes)}"] if overrides.avoid_nodes else []
    told += ["with its data fetched by the agent"] if overrides.fetch_with_agent else []
    return (f"attempt {attempt_number}: " if told and attempt_number else "") + ", ".join(told)


# The evidence


def _collect_evidence(job: JobState, context: ExplainContext) -> Iterator[str]:
    """The attempts that failed, the last one's own words, and what is saved of the training."""
    yield from _describe_failed_executions(job)
    last = next(iter(reversed(_failed_executions(job))), None)
    if last and last.failure and last.failure.stage == "steps" and last.step_name:
        yield from tail_step_stderr(context.folder.attempt_folder(job.id, last.attempt_id).logs, last.step_name)
    saved = max((a.checkpoint_step for a in job.executions), default=-1)
    if saved >= 0:
        yield f"its newest checkpoint is that of training step {saved}"


def _failed_executions(job: JobState) -> list[Execution]:
    """Without those that a supervisor ended."""
    return [a for a in job.executions if a.failure and not a.is_live and not job.has_cancel_decision(a.attempt_id)]


def _describe_failed_executions(job: JobState) -> Iterator[str]:
    failed = _failed_executions(job)
    if len(failed) > _MAX_EXECUTIONS:
        yield f"{_count_noun(len(failed) - _MAX_EXECUTIONS, 'attempt')} before these failed, too"
    for attempt in failed[-_MAX_EXECUTIONS:]:
        place = _format_location(attempt)
        code = "" if attempt.exit_code is None else f", exit code {attempt.exit_code}"
        where = f" on {place}" if place else ""
        yield f"attempt {attempt.number}{where}, {formatting.format_duration(attempt.agent_duration_s)}{code}: {_failure_kind(attempt.failure)}"


def tail_step_stderr(logs_dir: Path, step: str) -> list[str]:
    """The end of what the step wrote to its error stream."""
    path = logs_dir / (step.replace("/", ".") + ".err")
    try:
        text = path.read_bytes()[-4096:].decode("utf-8", "replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()][-_MAX_LOG_LINES:]


def _count_noun(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
