"""Where the time went: agents' stages, and what the pool's own log tells around them; nothing is counted twice."""

from __future__ import annotations

import pytest

from packtrain.views.time_summary import summarize_times
from tests.support.event_builder import RunBuilder

AGENT = {"startup": 2.0, "fetch": 2.0, "steps": 5.0}


@pytest.fixture
def story():
    told = RunBuilder()
    told.now = 100.4  # the access point's clock has fractions, the log has whole seconds
    told.submit()
    return told


def at(story, now, tell, *arguments, **more):
    story.now = float(now)
    getattr(story, tell)(*arguments, **more)


def inputs(story, since, until, start=1):
    at(story, since, "add_transfer", "in", "started", start)
    at(story, until, "add_transfer", "in", "finished", start)


def outputs(story, since, until, start=1):
    at(story, since, "add_transfer", "out", "started", start)
    at(story, until, "add_transfer", "out", "finished", start)


def times(story):
    found = summarize_times(story.state)
    return {**found.seconds_by_stage, "wasted": found.wasted_s}


def agent(story, name="agent-1", outcome="succeeded", failure=""):
    """Nine seconds: two to fetch, five of steps, by a clock that says anything."""
    story.now = 7_000_000.0
    story.start_agent(name)
    story.add_stage("fetch", name, duration_s=2.0)
    story.add_stage("steps", name, duration_s=5.0)
    story.end_agent(outcome, name, failure=failure)


def test_without_a_pool_it_is_the_stages_alone(story):
    agent(story)
    assert times(story) == {**AGENT, "wasted": 0.0}


def test_a_life_in_a_pool(story):
    inputs(story, 130, 140)
    at(story, 141, "place")
    agent(story)
    outputs(story, 152, 155)
    at(story, 155, "end_attempt", exit_code=0)
    # On the slot from 141 to 152, and a second between the inputs and its start: 12, of which the agent knows 9.
    assert times(story) == {"queue": 30.0, "transfer": 13.0, "startup": 5.0, "fetch": 2.0, "steps": 5.0, "wasted": 0.0}
    assert summarize_times(story.state).total_s == 155 - 100


def test_waiting_for_a_turn_to_transfer_is_transfer(story):
    at(story, 110, "add_transfer", "in", "queued")
    inputs(story, 130, 140)
    at(story, 140, "place")
    assert times(story) == {"queue": 10.0, "transfer": 30.0, "wasted": 0.0}


def test_a_log_that_tells_of_the_start_before_the_end_of_the_inputs(story):
    at(story, 130, "add_transfer", "in", "started")
    at(story, 140, "place")
    at(story, 140, "add_transfer", "in", "finished")
    agent(story)
    outputs(story, 149, 150)
    at(story, 150, "end_attempt", exit_code=0)
    assert times(story) == {"queue": 30.0, "transfer": 11.0, **AGENT, "wasted": 0.0}


def test_an_evicted_start_is_lost_with_its_transfers_and_the_queue_is_not(story):
    inputs(story, 110, 120)
    at(story, 120, "place")
    story.start_agent("agent-1")
    at(story, 170, "stop_execution", 1, emitters=("agent-1",))
    inputs(story, 200, 210, start=2)
    at(story, 210, "place", 2)
    agent(story, "agent-2")
    outputs(story, 219, 220, start=2)
    at(story, 220, "end_attempt", exit_code=0)
    assert times(story) == {"queue": 40.0, "transfer": 11.0, **AGENT, "wasted": 60.0}


def test_what_was_left_in_a_start_that_is_evicted_later_is_not_lost(story):
    inputs(story, 110, 120)
    at(story, 120, "place")
    agent(story, "agent-1", "requeued")
    outputs(story, 130, 132)
    story.start_agent("agent-2")
    at(story, 150, "stop_execution", 1, emitters=("agent-1", "agent-2"))
    # 28 s on the slot, 9 of them the first agent's
    assert times(story) == {"queue": 10.0, "transfer": 12.0, **AGENT, "wasted": 19.0}


def test_inputs_that_did_not_arrive_are_lost_and_a_hold_is_no_queue(story):
    inputs(story, 110, 140)
    at(story, 141, "add_transfer", "out", "started")
    at(story, 141, "hold")
    at(story, 201, "release")
    inputs(story, 211, 221)
    at(story, 221, "place")
    agent(story)
    at(story, 230, "end_attempt", exit_code=0)
    assert times(story) == {"queue": 20.0, "held": 60.0, "transfer": 10.0, **AGENT, "wasted": 31.0}


def test_taken_back_while_its_inputs_came(story):
    at(story, 110, "add_transfer", "in", "started")
    at(story, 150, "stop_execution", 0)
    assert [attempt.execution_number for attempt in story.job.executions] == [0], "no start of it was seen"
    inputs(story, 160, 170)
    at(story, 170, "place")
    assert times(story) == {"queue": 20.0, "transfer": 10.0, "wasted": 40.0}


def test_removed_while_its_inputs_came(story):
    at(story, 110, "add_transfer", "in", "started")
    at(story, 150, "end_attempt")
    assert times(story) == {"queue": 10.0, "wasted": 40.0}


def test_a_start_that_ended_without_a_word_in_the_log(story):
    """A shadow was killed: the next start follows."""
    inputs(story, 110, 120)
    at(story, 120, "place")
    inputs(story, 150, 160, start=2)
    at(story, 160, "place", 2)
    agent(story, "agent-2")
    at(story, 169, "end_attempt", exit_code=0)
    assert times(story)["queue"] == 10.0
    assert times(story)["transfer"] == 20.0
    assert summarize_times(story.state).total_s == 69.0


def test_a_failed_attempt_is_lost_with_all_of_its_slot(story):
    inputs(story, 110, 120)
    at(story, 120, "place")
    agent(story, outcome="failed", failure="step_failed")
    outputs(story, 131, 140)
    at(story, 140, "end_attempt", exit_code=10)
    assert times(story) == {"queue": 10.0, "wasted": 30.0}


def test_what_lasts_is_not_counted(story):
    inputs(story, 110, 120)
    at(story, 120, "place")
    story.start_agent("agent-1")
    story.add_stage("fetch", duration_s=2.0)
    assert times(story) == {"queue": 10.0, "transfer": 10.0, "fetch": 2.0, "wasted": 0.0}


def test_odd_seconds_of_many_jobs_even_out():
    """A job of one and a half seconds takes one second of the log or two."""
    told = RunBuilder(*map(str, range(10)))
    for job in map(str, range(10)):
        told.now = 100.0
        told.submit(f"{job}-1", job)
        told.now = 110.0
        told.place(attempt_id=f"{job}-1", job=job)
        told.start_agent(f"agent-{job}", f"{job}-1", job)
        told.add_event(f"agent-{job}", "agent.ended", job, outcome="succeeded", exit_code=0, failure=None, seconds=1.5)
        told.now = 111.0 + int(job) % 2
        told.end_attempt(f"{job}-1", job, 0)
    assert times(told) == {"queue": 100.0, "startup": 15.0, "wasted": 0.0}
