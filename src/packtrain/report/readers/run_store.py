"""Reads the history of a packtrain run: slot times from the engine's events, phases inside a slot from agent journals.

The engine's log and the agents run on different clocks, which are never compared. Only on the local engine do they
share one clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from packtrain.events import Event, kinds
from packtrain.report.history import ExecutionRecord, FailureCategory, JobHistory, JobRecord, Outcome, Phase, PhaseSpan
from packtrain.report.readers.agent_timeline import (
    AGENT_EVENT_KINDS,
    AgentTimeline,
    add_agent_timelines,
    record_from_session,
    retained_compute_by_emitter,
    with_retained_compute,
)
from packtrain.report.readers.condor_attributes import guess_site
from packtrain.report.readers.end_status import classify_execution, classify_job, classify_session
from packtrain.state import Execution, ExecutionStatus, JobState, RunState
from packtrain.state.slot_time import SlotTimeline

_UNKNOWN_CATEGORIES = (FailureCategory.NONE, FailureCategory.UNKNOWN)
_UNCHECKED_NOTE = "The outputs of {} succeeded jobs were not checked: their workflow has no `expect`."
_NO_JOURNAL_NOTE = "{} executions returned no agent journal; their times come from the HTCondor log alone."
_ONE_UNCHECKED_NOTE = "The outputs of 1 succeeded job were not checked: its workflow has no `expect`."
_ONE_NO_JOURNAL_NOTE = "1 execution returned no agent journal; its times come from the HTCondor log alone."


@dataclass
class JobEvents:
    """The events of one job that a report needs and the state does not keep. Order and duplicates do not matter."""

    agent_events: dict[str, dict[int, Event]] = field(default_factory=dict)  # by emitter and seq
    submit_decided_at: dict[str, float] = field(default_factory=dict)  # by attempt id
    gone_at: dict[str, float] = field(default_factory=dict)  # by attempt id
    result_at: float | None = None  # when the job got its result

    def add(self, event: Event) -> None:
        attempt_id = str(event.data.get("attempt", ""))
        if event.kind in AGENT_EVENT_KINDS:
            self.agent_events.setdefault(event.emitter, {})[event.seq] = event
        elif event.kind == kinds.ATTEMPT_GONE:
            self.gone_at[attempt_id] = event.wall
        elif event.kind == kinds.DECISION_MADE and event.data.get("action") == "submit":
            self.submit_decided_at[attempt_id] = event.wall
        elif event.kind == kinds.JOB_ENDED:
            self.result_at = max(self.result_at or 0.0, event.wall)

    def agent_timeline(self, emitter: str) -> AgentTimeline:
        timeline = AgentTimeline(emitter)
        for _, event in sorted(self.agent_events.get(emitter, {}).items()):
            timeline.add_event(event)
        return timeline


def read_run_history(
    state: RunState, events: Iterable[Event], gpus_by_job: Mapping[str, float] | None = None
) -> JobHistory:
    """Build the history of a run.

    Args:
        state: The folded state of the run.
        events: All stored events of the run, in any order.
        gpus_by_job: The number of GPUs that each job requested, by job id.
    """
    events_by_job: dict[str, JobEvents] = {}
    now = 0.0
    for event in events:
        if event.job:
            events_by_job.setdefault(event.job, JobEvents()).add(event)
        if event.emitter.startswith(("engine", "supervisor")):
            now = max(now, event.wall)
    gpus = gpus_by_job or {}
    builders = [
        _JobHistoryBuilder(job, events_by_job.get(job.id, JobEvents()), now, gpus.get(job.id, 0.0))
        for job in state.jobs.values()
    ]
    name = str(state.metadata.get("name") or state.run)
    jobs = tuple(builder.build() for builder in builders)
    return JobHistory(name, "run", jobs, limitations=tuple(_limitations(builders)))


def _limitations(builders: Sequence[_JobHistoryBuilder]) -> Iterator[str]:
    unchecked = sum(builder.outputs_checked is False for builder in builders)
    if unchecked:
        yield _ONE_UNCHECKED_NOTE if unchecked == 1 else _UNCHECKED_NOTE.format(unchecked)
    without_journal = sum(builder.n_without_journal for builder in builders)
    if without_journal:
        yield _ONE_NO_JOURNAL_NOTE if without_journal == 1 else _NO_JOURNAL_NOTE.format(without_journal)


class _JobHistoryBuilder:
    """Builds the record of one job."""

    def __init__(self, job: JobState, events: JobEvents, now: float, gpus: float) -> None:
        self._job, self._events, self._now, self._gpus = job, events, now, gpus
        self._agent_timelines = {
            execution.emitter: events.agent_timeline(execution.emitter)
            for execution in job.executions
            if execution.emitter
        }
        self._retained_s = retained_compute_by_emitter(self._agent_timelines.values())
        self._executions: list[ExecutionRecord] = []
        self._waits: list[PhaseSpan] = []
        self._held_in_phase: Phase | None = None
        self.n_without_journal = 0
        for attempt_id, executions in groupby(job.executions, key=lambda execution: execution.attempt_id):
            self._add_attempt(attempt_id, list(executions))

    @property
    def outputs_checked(self) -> bool | None:
        """True if the agent checked the outputs; None if the job has not succeeded."""
        result = self._job.result
        timeline = self._agent_timelines.get(result.emitter) if result else None
        checked_files = timeline.stage_count("check", "files") if timeline else None
        return None if checked_files is None else checked_files > 0

    def build(self) -> JobRecord:
        status = classify_job(self._job)
        executions = sorted(self._executions, key=lambda execution: (execution.start, execution.end))
        # A second copy of the job may end after the one that succeeded.
        succeeded_at = [execution.end for execution in executions if execution.outcome is Outcome.SUCCEEDED]
        ended_at = min(succeeded_at) if succeeded_at else executions[-1].end if executions else self._events.result_at
        return JobRecord(
            self._job.id,
            tuple(replace(execution, number=number) for number, execution in enumerate(executions, 1)),
            status.outcome,
            self._submitted_at(executions),
            ended_at if self._job.result else None,
            tuple(self._waits),
            self.outputs_checked,
            status.category,
            status.reason,
            self._held_in_phase,
            dict(self._job.point),
        )

    def _submitted_at(self, executions: Sequence[ExecutionRecord]) -> float | None:
        """Return when the job was first submitted; not after its first start, since pool logs have whole seconds."""
        decided_at = self._events.submit_decided_at.values()
        return min([*decided_at, *(execution.start for execution in executions)]) if decided_at else None

    def _add_attempt(self, attempt_id: str, executions: Sequence[Execution]) -> None:
        timeline = self._job.attempts[attempt_id].timeline
        if timeline is None:
            for execution in executions:
                self._add_local_execution(execution)
        else:
            self._add_pool_executions(timeline, executions)

    # In a pool

    def _add_pool_executions(self, timeline: SlotTimeline, executions: Sequence[Execution]) -> None:
        now = max(self._now, timeline.last_event_at)
        by_number = {
            number: list(group) for number, group in groupby(executions, key=lambda item: item.execution_number)
        }
        self._waits += timeline.waits(now)
        self._held_in_phase = timeline.held_in_phase
        for session in timeline.sessions:
            record = record_from_session(session, 0, now, classify_session(session))
            matching = by_number.get(session.number, []) if session.has_executed else []
            self._executions.append(
                self._with_agents(record, matching) if matching else replace(record, gpus=self._gpus)
            )

    def _with_agents(self, record: ExecutionRecord, executions: Sequence[Execution]) -> ExecutionRecord:
        """Add the agents' phases. The last agent determines the outcome; the others exited to resume in place."""
        agents = [self._agent_timelines[execution.emitter] for execution in executions if execution.emitter]
        self.n_without_journal += not agents
        return self._with_end_status(add_agent_timelines(record, agents), executions[-1], agents)

    def _with_end_status(
        self, record: ExecutionRecord, execution: Execution, agents: Sequence[AgentTimeline]
    ) -> ExecutionRecord:
        status = classify_execution(execution)
        is_known_by_pool = execution.status is ExecutionStatus.LOST and record.category not in _UNKNOWN_CATEGORIES
        ended = replace(
            record,
            outcome=status.outcome,
            category=record.category if is_known_by_pool else status.category,
            reason=status.reason,
            site=execution.site or guess_site(execution.host),
            node=execution.host,
            gpus=self._gpus,
        )
        return with_retained_compute(ended, agents, self._retained_s)

    # On this machine

    def _add_local_execution(self, execution: Execution) -> None:
        decided_at = self._events.submit_decided_at.get(execution.attempt_id)
        gone_at = self._events.gone_at.get(execution.attempt_id)
        timeline = self._agent_timelines.get(execution.emitter)
        if timeline is None or timeline.started_at is None:
            if decided_at is not None:
                self._add_queue_wait(decided_at, self._now if gone_at is None else gone_at)
            return
        started_at = timeline.started_wall_at
        self._add_queue_wait(decided_at, started_at)
        ended_at = started_at
        if gone_at is not None and timeline.ended_at is None:
            ended_at = gone_at
        elif execution.is_live:
            ended_at = self._now
        span = PhaseSpan(Phase.EXECUTE, started_at, max(ended_at, started_at + timeline.duration_s))
        record = add_agent_timelines(ExecutionRecord(0, (span,), Outcome.RUNNING), [timeline])
        self._executions.append(self._with_end_status(record, execution, [timeline]))

    def _add_queue_wait(self, start: float | None, end: float) -> None:
        if start is not None and end > start:
            self._waits.append(PhaseSpan(Phase.QUEUED, start, end))
