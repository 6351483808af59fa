"""Histories of packtrain runs, built from the events of engines and agents."""

from __future__ import annotations

from itertools import pairwise

import pytest

from packtrain.events import kinds
from packtrain.report.history import FailureCategory, Outcome, Phase
from packtrain.report.readers.run_store import read_run_history
from tests.support.event_builder import RunBuilder

QUEUED, SETUP, IN, UNPACK, EXECUTE = Phase.QUEUED, Phase.SETUP, Phase.TRANSFER_IN, Phase.UNPACK, Phase.EXECUTE
CHECKPOINT, OUT = Phase.CHECKPOINT, Phase.TRANSFER_OUT
URL = "https://user@cache.example.edu:8443/data.tar"


class TimedRun(RunBuilder):
    """A run with times: events happen at the time that `at` sets, and stages take time."""

    def at(self, now):
        self.now = float(now)
        return self

    def run_stage(self, name, seconds, agent="agent-1", **data):
        self.add_event(agent, kinds.STAGE_STARTED, stage=name)
        self.now += seconds
        self.add_event(agent, kinds.STAGE_ENDED, stage=name, seconds=seconds, **data)

    def log(self, kind, /, **data):
        """Add an event of the pool's log."""
        self.add_event("engine-log", kind, attempt="0-1", **data)

    def log_transfer(self, direction, phase, execution=1):
        self.log(kinds.ATTEMPT_TRANSFER, direction=direction, phase=phase, execution=execution)

    def agent_ends(self, started_at, outcome="succeeded", agent="agent-1", failure=None, **data):
        seconds = self.now - started_at
        self.add_event(agent, kinds.AGENT_ENDED, outcome=outcome, exit_code=0, failure=failure, seconds=seconds, **data)

    def history(self):
        return read_run_history(self.state, self.events, {"0": 2.0})

    def job(self):
        (job,) = self.history().jobs
        for execution in job.executions:
            assert all(span.end == following.start for span, following in pairwise(execution.spans))
        return job


def spans(execution, since=0.0):
    return [(span.phase, round(span.start - since, 3), round(span.end - since, 3)) for span in execution.spans]


def run_agent(run, started_at):
    """Add all events of an agent that succeeds."""
    run.start_agent()
    run.run_stage("probe", 1)
    run.run_stage("fetch", 10, bytes=1000, files=1, source=URL)
    run.run_stage("unpack", 4)
    run.run_stage("steps", 100)
    run.run_stage("check", 1, files=2)
    run.run_stage("sync", 5, bytes=70)
    run.run_stage("clean", 1)
    run.agent_ends(started_at)


def test_local_run():
    run = TimedRun().at(1000)
    run.submit()
    run_agent(run.at(1002), 1002)
    run.end_attempt(exit_code=0)
    run.end_job("succeeded", emitter="agent-1")
    job = run.job()
    assert (job.outcome, job.submitted_at, job.ended_at, job.outputs_checked) == (Outcome.SUCCEEDED, 1000, 1124, True)
    assert [(wait.phase, wait.start, wait.end) for wait in job.waits] == [(QUEUED, 1000, 1002)]
    (execution,) = job.executions
    assert spans(execution, 1000) == [
        (SETUP, 2, 3),
        (IN, 3, 13),
        (UNPACK, 13, 17),
        (EXECUTE, 17, 117),
        (SETUP, 117, 118),
        (OUT, 118, 123),
        (SETUP, 123, 124),
    ]
    (transfer,) = execution.input_transfers
    assert (transfer.start, transfer.duration_s, transfer.size_bytes, transfer.source, transfer.complete) == (
        1003, 10, 1000, "cache.example.edu:8443", True,
    )  # fmt: skip
    assert (execution.site, execution.node, execution.gpus) == ("here", "w1", 2)
    assert (execution.input_bytes, execution.output_bytes, execution.retained_compute_s) == (1000, 70, 100)


def run_in_pool(run, agent_clock):
    """Add a slot session from 1010 to 1156. The agent has another clock."""
    run.at(1000).submit()
    for now, direction, phase in ((1010, "in", "queued"), (1012, "in", "started"), (1015, "in", "finished")):
        run.at(now).log_transfer(direction, phase)
    run.at(1016).log(kinds.EXECUTION_STARTED, execution=1, host="n1.example.edu", site="PDX")
    run_agent(run.at(agent_clock), agent_clock)
    for now, phase in ((1150, "started"), (1155, "finished")):
        run.at(now).log_transfer("out", phase)
    run.at(1156).end_attempt(exit_code=0)


@pytest.mark.parametrize("agent_clock", [5.0, 1020.0, 1e9])
def test_pool_run_with_any_agent_clock(agent_clock):
    run = TimedRun()
    run_in_pool(run, agent_clock)
    run.end_job("succeeded", emitter="agent-1")
    (execution,) = run.job().executions
    assert spans(execution, 1000) == [
        (SETUP, 10, 12),
        (IN, 12, 15),
        (SETUP, 15, 29),  # the agent accounts for 122 of 134 s
        (IN, 29, 39),
        (UNPACK, 39, 43),
        (EXECUTE, 43, 143),
        (SETUP, 143, 144),
        (OUT, 144, 149),
        (SETUP, 149, 150),
        (OUT, 150, 155),
        (SETUP, 155, 156),
    ]
    assert [(transfer.start, transfer.duration_s, transfer.size_bytes) for transfer in execution.input_transfers] == [
        (1012, 3, None),
        (1029, 10, 1000),
    ]


def test_agent_phases_are_scaled_down():
    """The clock of the agent is faster, or the log rounds its times."""
    run = TimedRun().at(1000)
    run.submit()
    run.at(1010).log(kinds.EXECUTION_STARTED, execution=1, host="n1", site="PDX")
    run_agent(run.at(5), 5)
    run.at(1071).end_attempt(exit_code=0)  # 61 s for 122 s
    run.end_job("succeeded", emitter="agent-1")
    (execution,) = run.job().executions
    assert execution.duration_s == 61
    assert execution.seconds_in(EXECUTE) == pytest.approx(50)
    assert execution.retained_compute_s == pytest.approx(50)


def test_evicted_agent():
    """Its last phase continues until its end."""
    run = TimedRun().at(1000)
    run.submit()
    run.at(1010).log(kinds.EXECUTION_STARTED, execution=1, host="n1", site="PDX")
    run.at(5).start_agent()
    run.run_stage("fetch", 10, bytes=1000, source=URL)
    run.add_event("agent-1", kinds.STAGE_STARTED, stage="steps")
    run.at(5000).log(
        kinds.EXECUTION_INTERRUPTED, execution=1, kind="evicted", detail="taken back", emitters=["agent-1"]
    )
    job = run.job()
    assert job.outcome is Outcome.QUEUED
    first = job.executions[0]
    assert (first.outcome, first.category) == (Outcome.EVICTED, FailureCategory.EVICTION)
    assert spans(first, 1000) == [(IN, 10, 20), (EXECUTE, 20, 4000)]
    assert first.retained_compute_s == 0


def test_stages_without_end_events():
    """A removed job returns no journal. Each stage ends when the next one starts."""
    run = TimedRun().at(1000)
    run.submit()
    run.at(1010).log(kinds.EXECUTION_STARTED, execution=1, host="n1", site="PDX")
    run.at(5).start_agent()
    for now, stage in ((5, "probe"), (6, "fetch"), (16, "steps"), (76, "clean")):
        run.at(now).add_event("agent-1", kinds.STAGE_STARTED, stage=stage)
    run.at(77).agent_ends(5, "requeued", step=5)
    run.at(1082).log(kinds.EXECUTION_INTERRUPTED, execution=1, kind="evicted", detail="removed", emitters=["agent-1"])
    first = run.job().executions[0]
    assert [first.seconds_in(phase) for phase in (IN, EXECUTE)] == [10, 60]


def test_resumed_execution():
    run = TimedRun().at(1000)
    run.submit()
    run.at(1010).log(kinds.EXECUTION_STARTED, execution=1, host="n1", site="PDX")
    run.at(5).start_agent("agent-1")
    run.run_stage("fetch", 10, bytes=1000, source=URL)
    run.add_event("agent-1", kinds.STAGE_STARTED, stage="steps")
    for now, generation in ((65, 1), (125, 2)):
        run.at(now)
        run.add_event("agent-1", kinds.CHECKPOINT_SAVED, generation=generation, step=generation, seconds=10.0)
    run.at(1200).log(
        kinds.EXECUTION_INTERRUPTED, execution=1, kind="evicted", detail="taken back", emitters=["agent-1"]
    )
    run.at(1300).log(kinds.EXECUTION_STARTED, execution=2, host="n2", site="CHTC")
    run.at(7).start_agent("agent-2")
    run.add_event("agent-2", kinds.STAGE_STARTED, stage="fetch")
    run.at(20)
    run.add_event("agent-2", kinds.CHECKPOINT_RESTORED, emitter="agent-1", generation=2, step=2, bytes=9, seconds=3.0)
    run.add_event("agent-2", kinds.STAGE_ENDED, stage="fetch", seconds=13.0, bytes=1000, source=URL)
    run.run_stage("steps", 50, "agent-2")
    run.agent_ends(7, agent="agent-2")
    run.at(1400).end_attempt(exit_code=0)
    run.end_job("succeeded", emitter="agent-2")
    first, second = run.job().executions
    assert first.retained_compute_s == 100  # until saving the second checkpoint began, 10 s before it ended
    assert (first.node, second.node) == ("w1", "w1")
    assert (second.seconds_in(IN), second.seconds_in(CHECKPOINT), second.seconds_in(EXECUTE)) == (10, 3, 50)
    assert [(wait.phase, wait.start, wait.end) for wait in run.job().waits] == [
        (QUEUED, 1000, 1010),
        (QUEUED, 1200, 1300),
    ]


def test_checkpointed_attempt():
    run = TimedRun().at(1000)
    run.submit("0-1")
    run.at(1001).start_agent("agent-1", "0-1")
    run.run_stage("fetch", 10, bytes=1000, source=URL)
    run.add_event("agent-1", kinds.STAGE_STARTED, stage="steps")
    run.at(1061).add_event("agent-1", kinds.CHECKPOINT_SAVED, generation=1, step=5, seconds=0.0)
    run.at(1071).add_event("agent-1", kinds.STAGE_ENDED, stage="steps", seconds=60.0)
    run.agent_ends(1001, "requeued", step=5, reason="the limit is near")
    run.end_attempt("0-1", exit_code=85)
    run.at(1080).submit("0-2")
    run.at(1081).start_agent("agent-2", "0-2")
    run.add_event("agent-2", kinds.STAGE_STARTED, stage="fetch")
    run.at(1083).add_event("agent-2", kinds.CHECKPOINT_RESTORED, emitter="agent-1", generation=1, step=5, seconds=2.0)
    run.add_event("agent-2", kinds.STAGE_ENDED, stage="fetch", seconds=2.0, bytes=0, source="reused")
    run.run_stage("steps", 30, "agent-2")
    run.agent_ends(1081, agent="agent-2")
    run.end_attempt("0-2", exit_code=0)
    run.end_job("succeeded", emitter="agent-2")
    first, second = run.job().executions
    assert (first.outcome, first.category, first.retained_compute_s) == (Outcome.CHECKPOINTED, FailureCategory.NONE, 50)
    assert [transfer.complete for transfer in first.input_transfers] == [True]
    assert second.input_transfers == ()  # the inputs were reused
    assert spans(second, 1081) == [(CHECKPOINT, 0, 2), (EXECUTE, 2, 32)]


def test_agent_killed_during_fetch():
    run = TimedRun().at(1000)
    run.submit()
    run.at(1001).start_agent()
    run.add_event("agent-1", kinds.STAGE_STARTED, stage="fetch")
    run.at(1031).add_event("agent-1", kinds.PROGRESS, stage="fetch", done=500, total=1000, unit="bytes")
    run.at(1041).end_attempt()
    run.end_job("failed")
    job = run.job()
    (execution,) = job.executions
    assert (execution.outcome, execution.category, job.outcome) == (
        Outcome.LOST,
        FailureCategory.EVICTION,
        Outcome.FAILED,
    )
    assert spans(execution, 1001) == [(IN, 0, 40)]
    assert [(transfer.size_bytes, transfer.complete) for transfer in execution.input_transfers] == [(500, False)]


@pytest.mark.parametrize(
    ("failure", "outcome", "category"),
    [
        ("output_missing", Outcome.WRONG_OUTPUT, FailureCategory.WRONG_OUTPUT),
        ("object_missing", Outcome.FAILED, FailureCategory.TRANSFER),
        ("step_failed", Outcome.FAILED, FailureCategory.PROGRAM),
        ("wall_time", Outcome.TIME_LIMIT, FailureCategory.TIME_LIMIT),
        ("gpu_unusable", Outcome.FAILED, FailureCategory.NODE),
        ("cancelled", Outcome.REMOVED, FailureCategory.USER),
        ("unknown_kind", Outcome.FAILED, FailureCategory.UNKNOWN),
    ],
)
def test_failure_kinds(failure, outcome, category):
    run = TimedRun().at(1000)
    run.submit()
    run.start_agent()
    run.at(1010)
    run.agent_ends(
        1000,
        "failed",
        failure={"kind": failure, "stage": "steps", "detail": "details", "blame": "", "transient": False},
    )
    run.end_attempt(exit_code=1)
    (execution,) = run.job().executions
    assert (execution.outcome, execution.category, execution.reason) == (outcome, category, "details")


def test_held_attempt():
    run = TimedRun().at(1000)
    run.submit()
    run.at(1010).log(kinds.EXECUTION_STARTED, execution=1, host="n1", site="PDX")
    run.at(1100).log(kinds.ATTEMPT_HELD, execution=1, kind="pool_time_limit", detail="20 h", code=47, action="give_up")
    job = run.job()
    (execution,) = job.executions
    assert (execution.outcome, execution.category, spans(execution, 1000)) == (
        Outcome.TIME_LIMIT, FailureCategory.TIME_LIMIT, [(EXECUTE, 10, 100)],
    )  # fmt: skip
    assert (job.outcome, job.held_in_phase) == (Outcome.TIME_LIMIT, EXECUTE)


def test_failed_pool_transfer():
    run = TimedRun().at(1000)
    run.submit()
    run.at(1010).log_transfer("in", "started")
    run.at(1050).log(kinds.ATTEMPT_HELD, kind="transfer_failed", detail="404", code=13, action="release")
    run.at(1100).log(kinds.ATTEMPT_RELEASED)
    run.at(1110).log_transfer("in", "started")
    run.at(1120).log_transfer("in", "finished")
    run.at(1121).log(kinds.EXECUTION_STARTED, execution=1, host="n1", site="PDX")
    run_agent(run.at(5), 5)
    run.at(1300).end_attempt(exit_code=0)
    run.end_job("succeeded", emitter="agent-1")
    first, second = run.job().executions
    assert (first.outcome, first.category, spans(first, 1000)) == (
        Outcome.HELD,
        FailureCategory.TRANSFER,
        [(IN, 10, 50)],
    )
    assert [transfer.complete for transfer in first.input_transfers] == [False]
    assert (second.outcome, second.number) == (Outcome.SUCCEEDED, 2)
    assert [wait.phase for wait in run.job().waits] == [QUEUED, Phase.HELD, QUEUED]


def test_unchecked_outputs():
    run = TimedRun().at(1000)
    run.submit()
    run.start_agent()
    run.run_stage("steps", 5)
    run.run_stage("check", 0, files=0)
    run.agent_ends(1000)
    run.end_attempt(exit_code=0)
    run.end_job("succeeded", emitter="agent-1")
    history = run.history()
    assert history.jobs[0].outputs_checked is False
    assert any("no `expect`" in text for text in history.limitations)


def test_queued_job():
    run = TimedRun().at(1000)
    run.submit()
    run.at(1060).add_supervisor_event(kinds.SUPERVISOR_ENDED, "", reason="interrupted")
    job = run.job()
    assert (job.outcome, job.executions, job.ended_at) == (Outcome.QUEUED, (), None)
    assert [(wait.phase, wait.end - wait.start) for wait in job.waits] == [(QUEUED, 60)]


def test_first_copy_ends_the_job():
    run = TimedRun()
    run.at(0).submit()
    run.at(10).start_agent("agent-1")
    run.at(50).add_supervisor_event(kinds.DECISION_MADE, action="submit", attempt="0-2", reason="late", copy_of="0-1")
    run.at(60).start_agent("agent-2", "0-2")
    run.at(90).agent_ends(60, agent="agent-2")
    run.add_supervisor_event(kinds.DECISION_MADE, action="accept", attempt="0-2", reason="r")
    run.add_supervisor_event(kinds.DECISION_MADE, action="cancel", attempt="0-1", reason="attempt 2 succeeded first")
    run.end_job("succeeded", emitter="agent-2")
    failure = {"kind": "terminated", "stage": "steps", "blame": "pool", "transient": True, "detail": "TERM"}
    run.at(120).agent_ends(10, "failed", failure=failure)
    job = run.job()
    assert (job.outcome, job.ended_at) == (Outcome.SUCCEEDED, 90.0)
    late, first = sorted(job.executions, key=lambda execution: execution.start)
    assert (late.category, late.reason) == (FailureCategory.NODE, "attempt 2 succeeded first")
    assert first.outcome is Outcome.SUCCEEDED
