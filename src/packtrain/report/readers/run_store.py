"""A run of packtrain as a history: slots by the engine's events, what was done in them by the agents' words. Pure.

A pool's log is one clock (that of the access point), an agent's another. On the local engine there is one machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from packtrain.events import Event
from packtrain.report.history import ExecutionRecord, JobHistory, JobRecord, Outcome, Phase, PhaseSpan
from packtrain.report.readers.agent_timeline import (
    AgentTimeline,
    add_agent_timelines,
    retained_compute_by_emitter,
    with_retained_compute,
)
from packtrain.report.readers.end_status import classify_execution, classify_job
from packtrain.report.readers.job_events import JobEvents
from packtrain.report.readers.pool_sessions import PoolSessions, build_pool_sessions
from packtrain.report.readers.site_names import guess_site
from packtrain.state import Execution as Drawn
from packtrain.state import JobState, RunState

_UNCHECKED_NOTE = "Nobody looked at what {} of the jobs made that succeeded: their workflow has no `expect`."
_NO_JOURNAL_NOTE = "Of {} attempts no word of an agent came home: of their slots only the pool's log tells."


def read_run_history(
    state: RunState, events: Iterable[Event], gpus_by_job: Mapping[str, float] | None = None
) -> JobHistory:
    """`gpus`: how many each job asked for."""
    told: dict[str, JobEvents] = {}
    now = 0.0
    for event in events:
        if event.job:
            told.setdefault(event.job, JobEvents()).add(event)
        if event.emitter.startswith(("engine", "supervisor")):
            now = max(now, event.wall)
    asked = gpus_by_job or {}
    jobs = [
        _JobHistoryBuilder(job, told.get(job.id, JobEvents()), now, asked.get(job.id, 0.0))
        for job in state.jobs.values()
    ]
    name = str(state.metadata.get("name") or state.run)
    return JobHistory(name, "run", tuple(job.build() for job in jobs), limitations=tuple(_limitations(jobs)))


def _limitations(jobs: Sequence[_JobHistoryBuilder]) -> Iterator[str]:
    unchecked = sum(job.outputs_checked is False for job in jobs)
    if unchecked:
        yield _UNCHECKED_NOTE.format(unchecked)
    unheard = sum(job.n_without_journal for job in jobs)
    if unheard:
        yield _NO_JOURNAL_NOTE.format(unheard)


class _JobHistoryBuilder:
    """One job."""

    def __init__(self, job: JobState, events: JobEvents, now: float, gpus: float) -> None:
        self._job, self._events, self._now, self._gpus = job, events, now, gpus
        self._agent_timelines = {
            attempt.emitter: events.agent_timeline(attempt.emitter) for attempt in job.executions if attempt.emitter
        }
        self._retained_s = retained_compute_by_emitter(self._agent_timelines.values())
        self._executions: list[ExecutionRecord] = []
        self._waits: list[PhaseSpan] = []
        self._held_in_phase: Phase | None = None
        self.n_without_journal = 0
        for decision, drawn in groupby(job.executions, key=lambda attempt: attempt.attempt_id):
            self._add_attempt(decision, list(drawn))

    @property
    def outputs_checked(self) -> bool | None:
        """Whether anybody looked at its outputs; of one that has not succeeded there is nothing to say."""
        verdict = self._job.result
        words = self._agent_timelines.get(verdict.emitter) if verdict else None
        looked = words.stage_count("check", "files") if words else None
        return None if looked is None else looked > 0

    def build(self) -> JobRecord:
        end = classify_job(self._job)
        attempts = sorted(self._executions, key=lambda attempt: (attempt.start, attempt.end))
        done = [attempt.end for attempt in attempts if attempt.outcome is Outcome.SUCCEEDED]  # a copy may end later
        ended = min(done) if done else attempts[-1].end if attempts else self._events.result_at
        return JobRecord(
            self._job.id,
            tuple(replace(attempt, number=number) for number, attempt in enumerate(attempts, 1)),
            end.outcome,
            min(self._events.submit_decided_at.values(), default=None),
            ended if self._job.result else None,
            tuple(self._waits),
            self.outputs_checked,
            end.category,
            end.reason,
            self._held_in_phase,
            dict(self._job.point),
        )

    def _add_attempt(self, attempt_id: str, executions: Sequence[Drawn]) -> None:
        stays = build_pool_sessions(self._events, attempt_id, self._now)
        if stays is None:
            for attempt in executions:
                self._add_local_execution(attempt)
        else:
            self._add_pool_executions(stays, executions)

    # In a pool

    def _add_pool_executions(self, sessions: PoolSessions, executions: Sequence[Drawn]) -> None:
        by_start = {
            number: list(some) for number, some in groupby(executions, key=lambda attempt: attempt.execution_number)
        }
        self._waits += sessions.waits
        self._held_in_phase = sessions.held_in_phase
        for place, attempt in enumerate(sessions.executions):
            starts = by_start.get(sessions.execution_numbers.get(place, -1), [])
            self._executions.append(self._with_agents(attempt, starts) if starts else replace(attempt, gpus=self._gpus))

    def _with_agents(self, record: ExecutionRecord, executions: Sequence[Drawn]) -> ExecutionRecord:
        """The last of its agents tells how it ended: the others left for it to go on in place."""
        agents = [self._agent_timelines[one.emitter] for one in executions if one.emitter]
        self.n_without_journal += not agents
        return self._with_end_status(add_agent_timelines(record, agents), executions[-1], agents)

    def _with_end_status(
        self, record: ExecutionRecord, execution: Drawn, agents: Sequence[AgentTimeline]
    ) -> ExecutionRecord:
        end = classify_execution(execution)
        ended = replace(
            record,
            outcome=end.outcome,
            category=end.category,
            reason=end.reason,
            site=execution.site or guess_site(execution.host),
            node=execution.host,
            gpus=self._gpus,
        )
        return with_retained_compute(ended, agents, self._retained_s)

    # On this machine

    def _add_local_execution(self, execution: Drawn) -> None:
        decided = self._events.submit_decided_at.get(execution.attempt_id)
        gone = self._events.gone_events.get(execution.attempt_id)
        words = self._agent_timelines.get(execution.emitter)
        began = words.started_wall_at if words and words.started_at is not None else None
        if began is None:
            if decided is not None:
                self._add_queue_wait(decided, self._now if gone is None else gone.wall)
            return
        assert words is not None
        self._add_queue_wait(decided, began)
        until = gone.wall if gone is not None and words.ended_at is None else self._now if execution.is_live else began
        slot = ExecutionRecord(
            0, (PhaseSpan(Phase.EXECUTE, began, max(until, began + words.duration_s)),), Outcome.RUNNING
        )
        self._executions.append(self._with_end_status(add_agent_timelines(slot, [words]), execution, [words]))

    def _add_queue_wait(self, start: float | None, end: float) -> None:
        if start is not None and end > start:
            self._waits.append(PhaseSpan(Phase.QUEUED, start, end))
