"""Explanations of jobs and runs for `packtrain why`.

A job's explanation has the problem, the evidence, whose fault it is, what packtrain did, what happens next, and how to
fix it. What happens next comes from the policies themselves.
"""

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
from packtrain.supervise.policies.submit_and_retry import retry_delay_s

_MAX_LOG_LINES, _MAX_EXECUTIONS = 5, 3
_NOT_STARTED_KINDS = ("run_stopped", "budget_exceeded")
_FAULT_TEXT = {
    "user": "the workflow or its program",
    "data": "the data or the server that provides it",
    "site": "the node it ran on",
    "pool": "none (normal pool preemption)",
    "packtrain": "packtrain itself",
}


@dataclass(frozen=True)
class JobExplanation:
    """The explanation of one job, as lines of text."""

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
        """A key that is the same for jobs with the same explanation, apart from the evidence."""
        return (self.summary, self.fault, self.actions_taken, self.next_action, self.remedy)

    def labelled_lines(self) -> Iterator[tuple[str, str]]:
        """Yield the label and the text of each line to print."""
        yield "problem" if self.has_failed else "status", self.summary
        for line in self.evidence:
            yield "evidence", line
        lines = (
            ("fault", self.fault),
            ("actions", self.actions_taken),
            ("next", self.next_action),
            ("fix", self.remedy),
        )
        yield from (line for line in lines if line[1])

    def to_json(self) -> dict[str, Any]:
        """Return the explanation as JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class ExplainContext:
    """What is known about the run of the job."""

    state: RunState
    folder: RunFolder
    has_live_supervisor: bool
    config: PolicyConfig = field(default_factory=PolicyConfig)
    now: float = 0.0  # Unix time by the store's clock
    known_bad_sites: Mapping[str, str] = field(default_factory=dict)  # avoided since the start of the run, with reasons

    @cached_property
    def avoided_locations(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The sites and the nodes that the run avoids now."""
        return find_avoided_locations(self.state, self.config, self.now)


def explain_run(context: ExplainContext) -> list[str]:
    """Return lines about the whole run: why it was stopped, and which sites and nodes it avoids."""
    state = context.state
    _, reason = find_stop_reason(state, context.config)
    stopped_jobs = (
        job for job in state.jobs.values() if job.result and _failure_kind(job.result.failure) in _NOT_STARTED_KINDS
    )
    n_not_started = sum(not has_ever_run(job) for job in stopped_jobs)
    lines = []
    if reason and n_not_started:
        verb = "was" if n_not_started == 1 else "were"
        lines.append(f"{reason}; {_count_noun(n_not_started, 'job')} {verb} not started")
    if state.is_finished:
        return lines
    for noun, names in zip(("sites", "nodes"), context.avoided_locations, strict=True):
        if names:
            lines.append(f"{noun} that the run avoids for now, because executions failed there: {', '.join(names)}")
    lines += [f"{name} is avoided because of earlier runs: {why}" for name, why in context.known_bad_sites.items()]
    return lines


def explain_job(job: JobState, context: ExplainContext) -> JobExplanation:
    """Explain the current situation of a job."""
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
    last_failed = next(iter(reversed(_failed_executions(job))), None)
    kind = FAILURE_KINDS.get(failure.kind)
    return JobExplanation(
        job.id,
        has_failed=True,
        summary=f"{failure.detail} ({failure.kind}, in the stage {failure.stage})",
        evidence=tuple(_collect_evidence(job, context)),
        fault=_describe_fault(failure, last_failed, context),
        actions_taken=_describe_actions(job),
        next_action=_describe_next(job, context),
        remedy=kind.remedy if kind else "",
        exit_code=last_failed.exit_code if last_failed else failure.exit_code,
    )


def _failure_kind(failure: Failure | None) -> str:
    return failure.kind if failure else ""


def _current_failure(job: JobState) -> Failure | None:
    """Return the failure of the result, or that of the latest execution if it has ended."""
    if job.result:
        return job.result.failure
    return job.latest_execution.failure if job.latest_execution and not job.latest_execution.is_live else None


def _describe_healthy(job: JobState, now: float) -> str:
    latest = job.latest_execution
    if job.status is JobStatus.SUCCEEDED and latest:
        duration = formatting.format_duration(latest.agent_duration_s)
        return f"the job succeeded: execution {latest.number} took {duration} and passed all checks"
    if job.status is JobStatus.CANCELLED and job.result:
        return f"the job was cancelled: {job.result.reason}"
    if job.status is JobStatus.RUNNING and latest:
        return f"running on {latest.host or latest.site}, in the stage {latest.stage or 'startup'}"
    if latest and latest.hold:
        return str(latest.hold.event.data.get("detail", "the pool holds the attempt"))
    if latest and latest.is_live and (reason := job.attempts[latest.attempt_id].progress.get("wait_reason")):
        if latest.site == "slurm" and latest.native_id:
            wait = formatting.format_wait(job.waiting_since, now)
            return f"waiting in Slurm's queue as job {latest.native_id}{wait}{_retry_reason(job)}: {reason}"
        return f"not in the pool's queue yet: {reason}"
    if job.status is JobStatus.QUEUED and latest and latest.site == "htcondor":
        wait = formatting.format_wait(job.waiting_since, now)
        return (
            f"waiting for a node of the pool{wait}{_retry_reason(job)}; "
            f"run `condor_q -better-analyze {latest.native_id}` for details"
        )
    if job.status is JobStatus.QUEUED:
        return "waiting for free resources: other jobs use the CPUs, memory or GPUs that this job requests"
    return "not submitted yet"


def _retry_reason(job: JobState) -> str:
    previous = job.executions[-2] if len(job.executions) > 1 else None
    return f", again: {previous.failure.detail}" if previous and previous.failure else ""


def _describe_fault(failure: Failure, execution: Execution | None, context: ExplainContext) -> str:
    """Return who is to blame, with the sites that confirm it."""
    stats, signature = context.state.stats, failure_signature(failure)
    if failure.action == MORE_MEMORY:
        return "the workflow: its program needs more memory than it requests"
    if failure.blame == "user":
        return f"{_FAULT_TEXT['user']}{_same_failure_sites(stats.user_errors.get(signature, ()))}"
    if signature in find_common_faults(context.state, context.now):
        sites = _same_failure_sites(stats.site_faults[signature])
        return f"most likely the workflow or a server, not the nodes{sites}"
    if failure.blame != "site":
        return _FAULT_TEXT.get(failure.blame, failure.blame)
    location = _format_location(execution) if execution else ""
    return f"{_FAULT_TEXT['site']}: {location}" if location else "the pool or one of its nodes, before the job ran"


def _same_failure_sites(outcomes: Collection[ExecutionOutcome]) -> str:
    sites = sorted({outcome.site for outcome in outcomes if outcome.site})
    return f": it failed in the same way at {', '.join(sites)}" if len(sites) > 1 else ""


def _format_location(execution: Execution) -> str:
    site, node = execution_site(execution), execution.node
    return f"{node} at {site}" if node and site and site != "local" else node or site


# What packtrain did, and what happens next


def _describe_actions(job: JobState) -> str:
    recent = job.recent_executions
    n_failed = sum(execution in recent for execution in _failed_executions(job))
    n_releases = sum(job.count_releases(attempt_id) for attempt_id in {e.attempt_id for e in recent})
    actions = [f"{_count_noun(n_failed, 'execution')} failed"] if n_failed else []
    actions += [f"released {_count_noun(n_releases, 'time')}"] if n_releases else []
    changed = ((e.attempt_id, format_overrides(Overrides.from_data(e.overrides))) for e in recent[1:])
    submitted = [f"attempt {attempt_id} was submitted {text}" for attempt_id, text in changed if text]
    actions += submitted[-1:]
    actions += _straggler_actions(job)
    if job.result and job.result.status is JobStatus.FAILED:
        actions.append(job.result.reason)
    return "; ".join(actions)


def _straggler_actions(job: JobState) -> Iterator[str]:
    """Yield what packtrain did about slow executions."""
    for attempt_id, move in job.moves.items():
        yield f"attempt {attempt_id} was moved: {move.get('reason', '')}"
    for copy in {e.attempt_id: e for e in job.recent_executions if e.copy_of}.values():
        reason = job.attempts[copy.attempt_id].reason
        yield f"attempt {copy.attempt_id} was submitted as a copy of attempt {copy.copy_of}: {reason}"
        cancel_reason = job.cancel_reason(copy.attempt_id) or job.cancel_reason(copy.copy_of)
        if cancel_reason:
            yield cancel_reason


def _describe_next(job: JobState, context: ExplainContext) -> str:
    """Return what happens next without the user, "" if the job has a result or nothing special happens."""
    if job.result:
        return ""
    if not context.has_live_supervisor:
        return f"no supervisor is running; resume the run with `packtrain resume {context.state.run}`"
    latest = job.latest_execution
    if latest and latest.hold:
        return _hold_response_text(job, latest, context)
    if job.live_executions or not job.recent_executions:
        return _queue_timeout_text(job, context)
    delay_s = job.changed_at + retry_delay_s(job, context.config) - context.now
    overrides = format_overrides(make_overrides(job, context.config, context.avoided_locations))
    return f"packtrain submits another attempt {_format_delay(delay_s)}{', ' if overrides else ''}{overrides}"


def _format_delay(delay_s: float) -> str:
    return f"in {formatting.format_duration(delay_s)}" if delay_s >= 1 else "now"


def _queue_timeout_text(job: JobState, context: ExplainContext) -> str:
    """Return when a queued job fails, if no job of the run runs and half of the maximum queue time has passed."""
    is_waiting = any(map(is_queued, job.live_executions)) and context.config.has_multiple_sites
    if not is_waiting or context.state.stats.timing.running_jobs:
        return ""
    remaining_s = queue_deadline_at(context.state, job, context.config) - context.now
    if remaining_s > context.config.recovery.max_queue_time_s / 2:
        return ""
    duration = formatting.format_duration(remaining_s)
    return f"the job fails in {duration} unless a node of the pool takes one of the run's jobs before"


def _hold_response_text(job: JobState, execution: Execution, context: ExplainContext) -> str:
    assert execution.hold is not None
    decision = job.hold_decision(execution.hold)
    if decision:
        return "packtrain has requested its release" if decision == "release" else "packtrain has given up this attempt"
    response = plan_hold_response(job, execution, context.config)
    action = "releases it" if response.should_release else "gives up this attempt"
    return f"packtrain {action} {_format_delay(response.due_at - context.now)}: {response.reason}"


def format_overrides(overrides: Overrides) -> str:
    """Return what differs from the plan, for example `with 2 times the memory, avoiding the site Slow`."""
    parts = [f"with {overrides.memory_factor:g} times the memory"] if overrides.memory_factor > 1 else []
    parts += [f"with {overrides.disk_factor:g} times the disk"] if overrides.disk_factor > 1 else []
    for noun, names in (("site", overrides.avoid_sites), ("node", overrides.avoid_nodes)):
        if names:
            parts.append(f"avoiding the {noun}{'' if len(names) == 1 else 's'} {', '.join(names)}")
    parts += ["with its inputs fetched by the agent"] if overrides.fetch_with_agent else []
    return ", ".join(parts)


# Evidence


def _collect_evidence(job: JobState, context: ExplainContext) -> Iterator[str]:
    """Yield the failed executions, the end of the last one's log, and the newest checkpoint."""
    yield from _describe_failed_executions(job)
    last_failed = next(iter(reversed(_failed_executions(job))), None)
    if last_failed and last_failed.failure and last_failed.failure.stage == "steps" and last_failed.step_name:
        logs_dir = context.folder.attempt_folder(job.id, last_failed.attempt_id).logs
        yield from tail_step_stderr(logs_dir, last_failed.step_name)
    checkpoint_step = max((execution.checkpoint_step for execution in job.executions), default=-1)
    if checkpoint_step >= 0:
        yield f"the newest checkpoint is of training step {checkpoint_step}"


def _failed_executions(job: JobState) -> list[Execution]:
    """Return the failed executions, without those that a supervisor ended."""
    return [e for e in job.executions if e.failure and not e.is_live and not job.has_cancel_decision(e.attempt_id)]


def _describe_failed_executions(job: JobState) -> Iterator[str]:
    failed = _failed_executions(job)
    if len(failed) > _MAX_EXECUTIONS:
        yield f"{_count_noun(len(failed) - _MAX_EXECUTIONS, 'earlier execution')} failed, too"
    for execution in failed[-_MAX_EXECUTIONS:]:
        location = _format_location(execution)
        on_location = f" on {location}" if location else ""
        duration = formatting.format_duration(execution.agent_duration_s)
        exit_code = "" if execution.exit_code is None else f", exit code {execution.exit_code}"
        yield f"execution {execution.number}{on_location}, {duration}{exit_code}: {_failure_kind(execution.failure)}"


def tail_step_stderr(logs_dir: Path, step: str) -> list[str]:
    """Return the last lines that a step wrote to standard error."""
    path = logs_dir / (step.replace("/", ".") + ".err")
    try:
        text = path.read_bytes()[-4096:].decode("utf-8", "replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()][-_MAX_LOG_LINES:]


def _count_noun(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
