"""Runs of packtrain as histories: what the engine's events and the agents' words make of an attempt."""

from __future__ import annotations

from itertools import pairwise

import pytest

from packtrain.events import kinds
from packtrain.report.history import FailureCategory, Outcome, Phase
from packtrain.report.readers.run_store import read_run_history
from tests.support.event_builder import RunBuilder

Q, START, IN, UNPACK, RUN = Phase.QUEUED, Phase.SETUP, Phase.TRANSFER_IN, Phase.UNPACK, Phase.EXECUTE
SAVE, OUT = Phase.CHECKPOINT, Phase.TRANSFER_OUT
URL = "https://user@cache.example.edu:8443/data.tar"


class Tale(RunBuilder):
    """With times: everything happens at `at`, stages take their time."""

    def at(self, now):
        self.now = float(now)
        return self

    def lasting(self, name, seconds, agent="agent-1", **data):
        self.add_event(agent, kinds.STAGE_STARTED, stage=name)
        self.now += seconds
        self.add_event(agent, kinds.STAGE_ENDED, stage=name, seconds=seconds, **data)

    def log(self, kind, /, **data):
        """Of a pool's log."""
        self.add_event("engine-log", kind, decision="0-1", **data)

    def moves(self, direction, what, start=1):
        self.log(kinds.ATTEMPT_TRANSFER, direction=direction, what=what, start=start)

    def ends(self, began, outcome="succeeded", agent="agent-1", failure=None, **more):
        seconds = self.now - began
        self.add_event(agent, kinds.AGENT_ENDED, outcome=outcome, exit_code=0, failure=failure, seconds=seconds, **more)

    def history(self):
        return read_run_history(self.state, self.events, {"0": 2.0})

    def job(self):
        (job,) = self.history().jobs
        for attempt in job.executions:
            assert all(one.end == other.start for one, other in pairwise(attempt.spans))
        return job


def laid(attempt, since=0.0):
    return [(span.phase, round(span.start - since, 3), round(span.end - since, 3)) for span in attempt.spans]


def simple(tale, began, **fetched):
    """The life of an agent that succeeds, after it woke up."""
    tale.start()
    tale.lasting("probe", 1)
    tale.lasting("fetch", 10, bytes=1000, files=1, source=URL, **fetched)
    tale.lasting("unpack", 4)
    tale.lasting("steps", 100)
    tale.lasting("check", 1, files=2)
    tale.lasting("sync", 5, bytes=70)
    tale.lasting("clean", 1)
    tale.ends(began)


def test_on_this_machine_the_agents_clock_tells_all():
    tale = Tale().at(1000)
    tale.submit()
    simple(tale.at(1002), 1002)
    tale.end_attempt(exit_code=0)
    tale.end_job("succeeded", emitter="agent-1")
    job = tale.job()
    assert (job.outcome, job.submitted_at, job.ended_at, job.outputs_checked) == (Outcome.SUCCEEDED, 1000, 1124, True)
    assert [(wait.phase, wait.start, wait.end) for wait in job.waits] == [(Q, 1000, 1002)]
    (attempt,) = job.executions
    assert laid(attempt, 1000) == [
        (START, 2, 3),
        (IN, 3, 13),
        (UNPACK, 13, 17),
        (RUN, 17, 117),
        (START, 117, 118),
        (OUT, 118, 123),
        (START, 123, 124),
    ]
    (move,) = attempt.input_transfers
    assert (move.start, move.duration_s, move.size_bytes, move.source, move.complete) == (
        1003, 10, 1000, "cache.example.edu:8443", True,
    )  # fmt: skip
    assert (attempt.site, attempt.node, attempt.gpus) == ("here", "w1", 2)
    assert (attempt.input_bytes, attempt.output_bytes, attempt.retained_compute_s) == (1000, 70, 100)


def in_pool(tale, agent_clock):
    """On a slot from 1010 to 1160 by the pool's log; the agent's clock is another."""
    tale.at(1000).submit()
    for moment, direction, what in ((1010, "in", "queued"), (1012, "in", "started"), (1015, "in", "finished")):
        tale.at(moment).moves(direction, what)
    tale.at(1016).log(kinds.EXECUTION_STARTED, start=1, host="n1.example.edu", site="PDX")
    simple(tale.at(agent_clock), agent_clock)
    for moment, what in ((1150, "started"), (1155, "finished")):
        tale.at(moment).moves("out", what)
    tale.at(1156).gone(code=0)


@pytest.mark.parametrize("agent_clock", [5.0, 1020.0, 1e9])
def test_in_a_pool_clocks_are_never_compared(agent_clock):
    tale = Tale()
    in_pool(tale, agent_clock)
    tale.end_job("succeeded", emitter="agent-1")
    (attempt,) = tale.job().executions
    assert laid(attempt, 1000) == [
        (START, 10, 12),
        (IN, 12, 15),
        (START, 15, 29),  # of 134 s in which the program ran the agent explains 122
        (IN, 29, 39),
        (UNPACK, 39, 43),
        (RUN, 43, 143),
        (START, 143, 144),
        (OUT, 144, 149),
        (START, 149, 150),
        (OUT, 150, 155),
        (START, 155, 156),
    ]
    assert [(move.start, move.duration_s, move.size_bytes) for move in attempt.input_transfers] == [
        (1012, 3, None),
        (1029, 10, 1000),
    ]


def test_an_agent_that_says_more_than_there_was_is_squeezed():
    """Its clock runs faster, or the log rounds."""
    tale = Tale().at(1000)
    tale.submit()
    tale.at(1010).log(kinds.EXECUTION_STARTED, start=1, host="n1", site="PDX")
    simple(tale.at(5), 5)
    tale.at(1071).end_attempt(exit_code=0)  # 61 s for 122 s
    tale.end_job("succeeded", emitter="agent-1")
    (attempt,) = tale.job().executions
    assert attempt.duration_s == 61
    assert attempt.seconds_in(RUN) == pytest.approx(50)
    assert attempt.retained_compute_s == pytest.approx(50)


def test_evicted_in_its_steps_without_another_word():
    """What it did last, it did until its end."""
    tale = Tale().at(1000)
    tale.submit()
    tale.at(1010).log(kinds.EXECUTION_STARTED, start=1, host="n1", site="PDX")
    tale.at(5).start_agent()
    tale.lasting("fetch", 10, bytes=1000, source=URL)
    tale.add_event("agent-1", kinds.STAGE_STARTED, stage="steps")
    tale.at(5000).log(kinds.EXECUTION_INTERRUPTED, start=1, kind="evicted", detail="taken back", emitters=["agent-1"])
    job = tale.job()
    assert job.outcome is Outcome.RUNNING
    first = job.executions[0]
    assert (first.outcome, first.category) == (Outcome.EVICTED, FailureCategory.EVICTION)
    assert laid(first, 1000) == [(IN, 10, 20), (RUN, 20, 4000)]
    assert first.retained_compute_s == 0


def test_of_one_that_was_removed_live_words_tell_when_stages_began():
    """No journal comes home then: a stage lasted until the next one began."""
    tale = Tale().at(1000)
    tale.submit()
    tale.at(1010).log(kinds.EXECUTION_STARTED, start=1, host="n1", site="PDX")
    tale.at(5).start_agent()
    for moment, stage in ((5, "probe"), (6, "fetch"), (16, "steps"), (76, "clean")):
        tale.at(moment).add_event("agent-1", kinds.STAGE_STARTED, stage=stage)
    tale.at(77).ends(5, "continue", step=5)
    tale.at(1082).log(kinds.EXECUTION_INTERRUPTED, start=1, kind="evicted", detail="removed", emitters=["agent-1"])
    first = tale.job().executions[0]
    assert [first.seconds_in(phase) for phase in (IN, RUN)] == [10, 60]


def test_what_a_successor_went_on_from_is_kept():
    tale = Tale().at(1000)
    tale.submit()
    tale.at(1010).log(kinds.EXECUTION_STARTED, start=1, host="n1", site="PDX")
    tale.at(5).start_agent("agent-1")
    tale.lasting("fetch", 10, bytes=1000, source=URL)
    tale.add_event("agent-1", kinds.STAGE_STARTED, stage="steps")
    for moment, generation in ((65, 1), (125, 2)):
        tale.at(moment)
        tale.add_event("agent-1", kinds.CHECKPOINT_SAVED, generation=generation, step=generation, seconds=10.0)
    tale.at(1200).log(kinds.EXECUTION_INTERRUPTED, start=1, kind="evicted", detail="taken back", emitters=["agent-1"])
    tale.at(1300).log(kinds.EXECUTION_STARTED, start=2, host="n2", site="CHTC")
    tale.at(7).start_agent("agent-2")
    tale.add_event("agent-2", kinds.STAGE_STARTED, stage="fetch")
    tale.at(20)
    tale.add_event("agent-2", kinds.CHECKPOINT_RESTORED, emitter="agent-1", generation=2, step=2, bytes=9, seconds=3.0)
    tale.add_event("agent-2", kinds.STAGE_ENDED, stage="fetch", seconds=13.0, bytes=1000, source=URL)
    tale.lasting("steps", 50, "agent-2")
    tale.ends(7, agent="agent-2")
    tale.at(1400).end_attempt(exit_code=0)
    tale.end_job("succeeded", emitter="agent-2")
    first, second = tale.job().executions
    assert first.retained_compute_s == 100  # until the second one was saved, ten seconds before it stood at its place
    assert (first.node, second.node) == ("w1", "w1")
    assert (second.seconds_in(IN), second.seconds_in(SAVE), second.seconds_in(RUN)) == (10, 3, 50)
    assert [(wait.phase, wait.start, wait.end) for wait in tale.job().waits] == [(Q, 1000, 1010), (Q, 1200, 1300)]


def test_an_attempt_that_left_with_a_checkpoint_goes_on_here():
    tale = Tale().at(1000)
    tale.submit("0-1")
    tale.at(1001).start_agent("agent-1", "0-1")
    tale.lasting("fetch", 10, bytes=1000, source=URL)
    tale.add_event("agent-1", kinds.STAGE_STARTED, stage="steps")
    tale.at(1061).add_event("agent-1", kinds.CHECKPOINT_SAVED, generation=1, step=5, seconds=0.0)
    tale.at(1071).add_event("agent-1", kinds.STAGE_ENDED, stage="steps", seconds=60.0)
    tale.ends(1001, "continue", step=5, reason="the limit is near")
    tale.end_attempt("0-1", exit_code=85)
    tale.at(1080).submit("0-2")
    tale.at(1081).start_agent("agent-2", "0-2")
    tale.add_event("agent-2", kinds.STAGE_STARTED, stage="fetch")
    tale.at(1083).add_event("agent-2", kinds.CHECKPOINT_RESTORED, emitter="agent-1", generation=1, step=5, seconds=2.0)
    tale.add_event(
        "agent-2", kinds.STAGE_ENDED, stage="fetch", seconds=2.0, bytes=0, source="kept by the attempt before"
    )
    tale.lasting("steps", 30, "agent-2")
    tale.ends(1081, agent="agent-2")
    tale.end_attempt("0-2", exit_code=0)
    tale.end_job("succeeded", emitter="agent-2")
    first, second = tale.job().executions
    assert (first.outcome, first.category, first.retained_compute_s) == (Outcome.CHECKPOINTED, FailureCategory.NONE, 50)
    assert [move.complete for move in first.input_transfers] == [True]
    assert second.input_transfers == ()  # nothing was fetched again
    assert laid(second, 1081) == [(SAVE, 0, 2), (RUN, 2, 32)]


def test_an_agent_killed_while_it_fetched():
    tale = Tale().at(1000)
    tale.submit()
    tale.at(1001).start_agent()
    tale.add_event("agent-1", kinds.STAGE_STARTED, stage="fetch")
    tale.at(1031).add_event("agent-1", kinds.PROGRESS, stage="fetch", done=500, total=1000, unit="bytes")
    tale.at(1041).end_attempt()
    tale.end_job("failed")
    job = tale.job()
    (attempt,) = job.executions
    assert (attempt.outcome, attempt.category, job.outcome) == (Outcome.LOST, FailureCategory.EVICTION, Outcome.FAILED)
    assert laid(attempt, 1001) == [(IN, 0, 40)]
    assert [(move.size_bytes, move.complete) for move in attempt.input_transfers] == [(500, False)]


@pytest.mark.parametrize(
    ("failure", "outcome", "category"),
    [
        ("output_missing", Outcome.WRONG_OUTPUT, FailureCategory.WRONG_OUTPUT),
        ("object_missing", Outcome.FAILED, FailureCategory.TRANSFER),
        ("step_failed", Outcome.FAILED, FailureCategory.PROGRAM),
        ("wall_time", Outcome.TIME_LIMIT, FailureCategory.TIME_LIMIT),
        ("gpu_unusable", Outcome.FAILED, FailureCategory.NODE),
        ("cancelled", Outcome.REMOVED, FailureCategory.USER),
        ("of_tomorrow", Outcome.FAILED, FailureCategory.UNKNOWN),
    ],
)
def test_ends_by_kind_of_failure(failure, outcome, category):
    tale = Tale().at(1000)
    tale.submit()
    tale.start_agent()
    tale.at(1010)
    tale.ends(
        1000,
        "failed",
        failure={"kind": failure, "stage": "steps", "detail": "so it was", "blame": "", "transient": False},
    )
    tale.end_attempt(exit_code=1)
    (attempt,) = tale.job().executions
    assert (attempt.outcome, attempt.category, attempt.reason) == (outcome, category, "so it was")


def test_held_by_the_pool_for_good():
    tale = Tale().at(1000)
    tale.submit()
    tale.at(1010).log(kinds.EXECUTION_STARTED, start=1, host="n1", site="PDX")
    tale.at(1100).log(kinds.ATTEMPT_HELD, start=1, kind="pool_time_limit", detail="20 h", code=47, action="give_up")
    job = tale.job()
    (attempt,) = job.executions
    assert (attempt.outcome, attempt.category, laid(attempt, 1000)) == (
        Outcome.TIME_LIMIT, FailureCategory.TIME_LIMIT, [(RUN, 10, 100)],
    )  # fmt: skip
    assert (job.outcome, job.held_in_phase) == (Outcome.TIME_LIMIT, RUN)


def test_an_input_of_the_pool_that_failed_is_a_stay_without_an_agent():
    tale = Tale().at(1000)
    tale.submit()
    tale.at(1010).moves("in", "started")
    tale.at(1050).log(kinds.ATTEMPT_HELD, kind="transfer_failed", detail="404", code=13, action="release")
    tale.at(1100).log(kinds.ATTEMPT_RELEASED)
    tale.at(1110).moves("in", "started")
    tale.at(1120).moves("in", "finished")
    tale.at(1121).log(kinds.EXECUTION_STARTED, start=1, host="n1", site="PDX")
    simple(tale.at(5), 5)
    tale.at(1300).end_attempt(exit_code=0)
    tale.end_job("succeeded", emitter="agent-1")
    first, second = tale.job().executions
    assert (first.outcome, first.category, laid(first, 1000)) == (
        Outcome.HELD,
        FailureCategory.TRANSFER,
        [(IN, 10, 50)],
    )
    assert [move.complete for move in first.input_transfers] == [False]
    assert (second.outcome, second.number) == (Outcome.SUCCEEDED, 2)
    assert [wait.phase for wait in tale.job().waits] == [Q, Phase.HELD, Q]


def test_what_nobody_looked_at_is_said():
    tale = Tale().at(1000)
    tale.submit()
    tale.start_agent()
    tale.lasting("steps", 5)
    tale.lasting("check", 0, files=0)
    tale.ends(1000)
    tale.end_attempt(exit_code=0)
    tale.end_job("succeeded", emitter="agent-1")
    history = tale.history()
    assert history.jobs[0].outputs_checked is False
    assert any("no `expect`" in sentence for sentence in history.limitations)


def test_a_job_that_waits_has_no_attempts():
    tale = Tale().at(1000)
    tale.submit()
    tale.at(1060).add_supervisor_event(kinds.SUPERVISOR_ENDED, "", reason="interrupted")
    job = tale.job()
    assert (job.outcome, job.executions, job.ended_at) == (Outcome.RUNNING, (), None)
    assert [(wait.phase, wait.end - wait.start) for wait in job.waits] == [(Q, 60)]


def test_a_job_ends_with_the_copy_that_was_first():
    tale = Tale()
    tale.at(0).submit()
    tale.at(10).start_agent("agent-1")
    tale.at(50).add_supervisor_event(kinds.DECISION_MADE, action="submit", id="0-2", reason="late", copy_of="0-1")
    tale.at(60).start_agent("agent-2", "0-2")
    tale.at(90).ends(60, agent="agent-2")
    tale.add_supervisor_event(kinds.DECISION_MADE, action="accept", target="0-2", reason="r")
    tale.add_supervisor_event(kinds.DECISION_MADE, action="cancel", target="0-1", reason="attempt 2 succeeded first")
    tale.end_job("succeeded", emitter="agent-2")
    failure = {"kind": "terminated", "stage": "steps", "blame": "pool", "transient": True, "detail": "TERM"}
    tale.at(120).ends(10, "failed", failure=failure)
    job = tale.job()
    assert (job.outcome, job.ended_at) == (Outcome.SUCCEEDED, 90.0)
    late, first = sorted(job.executions, key=lambda attempt: attempt.start)
    assert (late.category, late.reason) == (FailureCategory.NODE, "attempt 2 succeeded first")
    assert first.outcome is Outcome.SUCCEEDED
