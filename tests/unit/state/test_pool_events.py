"""A pool starts a decision again by itself, keeps it back, lets it go: what is shown of it."""

from __future__ import annotations

import pytest

from packtrain.events import kinds
from packtrain.state import ExecutionStatus, JobStatus
from tests.support.event_builder import RunBuilder

A, J = ExecutionStatus, JobStatus


@pytest.fixture
def story():
    told = RunBuilder()
    told.submit()
    return told


def drawn(story) -> list[tuple[int, str, ExecutionStatus]]:
    return [(a.execution_number, a.emitter, a.status) for a in story.job.executions]


def test_the_engine_says_that_it_runs_before_its_agent_does(story):
    story.place(site="CHTC-Spark-CE1")
    assert drawn(story) == [(1, "", A.RUNNING)]
    assert (story.job.latest_execution.site, story.job.latest_execution.host) == ("CHTC-Spark-CE1", "w9")
    story.start_agent()
    assert drawn(story) == [(1, "agent-1", A.RUNNING)]
    assert story.job.latest_execution.site == "here", "the agent's own word counts"


def test_an_evicted_start_and_the_next_one(story):
    story.place(1)
    story.start_agent("agent-1")
    story.stop_execution(1, emitters=("agent-1",))
    assert drawn(story) == [(1, "agent-1", A.LOST), (0, "", A.QUEUED)]
    assert story.job.executions[0].failure.kind == "evicted"
    assert (story.job.status, len(story.job.live_executions)) == (J.QUEUED, 1)
    story.place(2)
    story.start_agent("agent-2")
    story.end_agent("succeeded", "agent-2")
    story.end_attempt(exit_code=0)
    assert drawn(story) == [(1, "agent-1", A.LOST), (2, "agent-2", A.SUCCEEDED)]
    assert [a.number for a in story.job.executions] == [1, 2]


def test_what_the_pool_took_back_and_started_again_costs_nothing(story):
    for start in range(1, 6):
        story.place(start)
        story.stop_execution(start)
    assert story.job.counted_failures == ()
    story.end_attempt(detail="it vanished")
    assert len(story.job.counted_failures) == 1, "the last one was not started again"


def test_a_start_that_fails_of_its_own_costs(story):
    for start in (1, 2):
        story.place(start)
        story.stop_execution(start, kind="container_failed")
    assert [a.failure.kind for a in story.job.counted_failures] == ["container_failed"] * 2


def test_a_success_whose_outputs_did_not_come_home_is_none(story):
    story.place(1)
    story.start_agent("agent-1")
    story.end_agent("succeeded", "agent-1")
    story.stop_execution(1, emitters=("agent-1",))
    assert drawn(story) == [(1, "agent-1", A.LOST), (0, "", A.QUEUED)]


def test_an_agent_that_felt_its_end_is_explained_by_the_engine(story):
    story.place(1)
    story.start_agent("agent-1")
    story.add_stage("steps", duration_s=None)
    story.end_agent("failed", "agent-1", failure="terminated")
    story.stop_execution(1, kind="pool_time_limit", emitters=("agent-1",))
    failure = story.job.executions[0].failure
    assert (failure.kind, failure.stage, failure.transient) == ("pool_time_limit", "steps", True)


def test_a_failure_of_the_program_is_not_explained_away(story):
    story.place(1)
    story.start_agent("agent-1")
    story.end_agent("failed", "agent-1", failure="step_failed")
    story.stop_execution(1, emitters=("agent-1",))
    assert story.job.executions[0].failure.kind == "step_failed"


def test_a_start_that_never_spoke_is_drawn_without_an_agent(story):
    for start in (1, 2):
        story.place(start)
        story.stop_execution(start)
    story.place(3)
    story.start_agent("agent-1")
    assert drawn(story) == [(1, "", A.LOST), (2, "", A.LOST), (3, "agent-1", A.RUNNING)]


def test_agents_of_one_start_follow_each_other(story):
    """Exit code 85: HTCondor starts the launcher again in the same place."""
    story.place(1)
    story.start_agent("agent-1")
    story.end_agent("requeued", "agent-1")
    story.now = 5.0
    story.start_agent("agent-2")
    assert drawn(story) == [(1, "agent-1", A.REQUEUED), (1, "agent-2", A.RUNNING)]


def test_held_and_released(story):
    story.now = 7.0
    story.hold()
    job = story.job
    assert (job.status, job.latest_execution.status) == (J.HELD, A.HELD)
    assert (job.latest_execution.hold.event.data["detail"], job.latest_execution.hold.received_at) == (
        "it is held",
        7.0,
    )
    story.release()
    assert (story.job.status, story.job.latest_execution.hold) == (J.QUEUED, None)


def test_a_hold_that_ended_a_start(story):
    story.place(1)
    story.start_agent("agent-1")
    story.hold("give_up", execution=1, kind="pool_time_limit")
    assert drawn(story) == [(1, "agent-1", A.LOST), (0, "", A.HELD)]
    story.end_attempt(detail="packtrain: cancelled")
    assert drawn(story) == [(1, "agent-1", A.LOST)]
    assert story.job.executions[0].failure.kind == "pool_time_limit"


def test_a_hold_between_two_starts_is_not_the_end_of_the_one_before(story):
    """Files for the next start did not come: the machine of the last one has nothing to do with it."""
    story.place(1)
    story.start_agent("agent-1")
    story.save_checkpoint(7, "agent-1")
    story.stop_execution(1, emitters=("agent-1",))
    story.answer_hold("give_up", story.hold("give_up", kind="transfer_failed"))
    before = drawn(story)
    story.end_attempt(detail="packtrain: cancelled")
    evicted, held = story.job.executions
    assert (evicted.failure.kind, evicted.node, held.failure.kind, held.node) == (
        *("evicted", "w9"),
        *("transfer_failed", ""),
    )
    assert [a.number for a in story.job.counted_failures] == [2] and len(before) == 2, "as it was numbered before"


def started_too_often(story, decision, steps):
    """Each start is evicted; `steps`: what it saved, or None. Then our own rule holds it, between two starts."""
    story.submit(decision)
    for start, step in enumerate(steps, 1):
        agent = f"agent-{decision}-{start}"
        story.place(start, decision)
        story.start_agent(agent, decision)
        if step is not None:
            story.save_checkpoint(step, agent)
        story.stop_execution(start, decision, emitters=(agent,))
    return story.hold("give_up", attempt_id=decision, kind="restart_loop")


def test_evictions_cost_nothing_as_long_as_the_training_gets_further():
    story = RunBuilder()
    for number, first in enumerate((0, 11, 22), 1):
        hold = started_too_often(story, f"0-{number}", range(first, first + 11))
        story.answer_hold("give_up", hold, f"0-{number}")
        story.end_attempt(f"0-{number}")
    assert story.job.counted_failures == ()
    assert not any(place.faults for place in story.state.stats.nodes.values())


def test_starts_that_bring_nothing_cost_one_attempt():
    story = RunBuilder()
    for number in (1, 2):
        story.answer_hold("give_up", started_too_often(story, f"0-{number}", [4] * 11), f"0-{number}")
        story.end_attempt(f"0-{number}")
    assert [(a.attempt_id, a.failure.kind) for a in story.job.counted_failures] == [("0-2", "restart_loop")]


def test_one_that_was_given_up_failed_for_what_kept_it_back(story):
    hold = story.hold("give_up", kind="transfer_too_large")
    story.answer_hold("give_up", hold)
    story.end_attempt(detail="packtrain: cancelled")
    (attempt,) = story.job.counted_failures
    assert (attempt.status, attempt.failure.kind) == (A.LOST, "transfer_too_large")


def test_one_that_a_person_removed_is_over_whatever_its_agent_felt(story):
    story.place(1)
    story.start_agent("agent-1")
    story.end_agent("failed", "agent-1", failure="terminated")
    story.add_event(
        "engine-0-1", kinds.ATTEMPT_GONE, attempt="0-1", exit_code=None, detail="via condor_rm", kind="cancelled"
    )
    assert story.job.executions[0].failure.kind == "cancelled"
    assert not story.job.executions[0].failure.transient


def test_a_glimpse_shows_how_far_it_is(story):
    story.place(1)
    state = story.state
    state.update_progress({"0-1": {"attempt": "0-1", "stage": "fetch", "done": 5, "total": 10}})
    attempt = state.jobs["0"].latest_execution
    assert (attempt.stage, attempt.progress["done"], attempt.progress["total"]) == ("fetch", 5, 10)
    more = {"attempt": "0-1", "stage": "steps", "epoch": 2, "loss": 0.5, "metrics": {"accuracy": 0.9, "x": "no"}}
    state.update_progress({"0-1": more})
    assert state.jobs["0"].latest_execution.metrics == {"epoch": 2, "loss": 0.5, "accuracy": 0.9}


@pytest.mark.parametrize("glimpse", [{"attempt": "0-9", "stage": "fetch"}, {"stage": "fetch"}, {}])
def test_a_glimpse_of_another_attempt_is_not_shown(story, glimpse):
    state = story.state
    state.update_progress({"0-1": glimpse, "7-1": {"attempt": "7-1", "stage": "fetch"}})
    assert list(state.jobs) == ["0"]
    assert state.jobs["0"].latest_execution.stage == ""
