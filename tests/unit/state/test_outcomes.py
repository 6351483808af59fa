"""The record: an index that is the same however the events came."""

from __future__ import annotations

import pytest

from packtrain.events import kinds
from packtrain.state import JobStatus, RunState
from packtrain.state.outcomes import failure_signature
from tests.support.event_builder import RunBuilder


def told():
    story = RunBuilder("0", "1")
    story.now = 10.0
    story.add_failed_attempt_at("A", 1, "gpu_unusable", host="slot1@a1", duration_s=7.0)
    story.add_failed_attempt_at("B", 2, "step_failed", host="b1", detail="line 12")
    story.add_succeeded_attempt_at("B", 1, "1", host="b1")
    return story


def test_what_it_knows():
    record = told().state.stats
    assert {name: (len(place.success_times), len(place.faults)) for name, place in record.sites.items()} == {
        "A": (0, 1),
        "B": (1, 0),
    }
    assert set(record.nodes) == {"a1", "b1"}
    assert (record.n_successes, record.n_failures, record.wasted_s) == (1, 2, 16.0)
    assert [{one.job for one in found} for found in record.user_errors.values()] == [{"0"}]


def test_it_is_the_same_whenever_it_was_asked_for():
    story, state = told(), RunState("run-1")
    for event, arrived in zip(story.events, story.received_at, strict=True):
        state.apply(event, arrived)
        pace, asked = state.stats.timing, [job for job in state.jobs.values() if job.n_attempts]
        assert pace.waiting_jobs >= {job.id for job in asked if job.status in (JobStatus.QUEUED, JobStatus.WAITING)}
        assert set(pace.running_jobs) == {job.id for job in asked if job.status is JobStatus.RUNNING}
        assert not pace.waiting_jobs & set(pace.running_jobs)
    once = told().state.stats
    assert (state.stats.sites, state.stats.nodes) == (once.sites, once.nodes)
    assert (state.stats.n_failures, state.stats.n_successes) == (once.n_failures, once.n_successes)
    assert {key: value for key, value in state.stats.user_errors.items() if value} == once.user_errors


def test_good_ends_count_for_a_while():
    (place,) = [place for name, place in told().state.stats.sites.items() if name == "B"]
    assert (place.count_successes_since(10.0), place.count_successes_since(10.1)) == (1, 0)


def test_what_was_before_a_reopening_does_not_count():
    story = told()
    story.end_job("failed")
    story.reopen()
    record = story.state.stats
    assert (record.n_failures, record.wasted_s) == (0, 0.0)
    assert not any(record.user_errors.values())
    assert record.sites["B"].success_times, "the other job was not opened again"


def test_what_a_supervisor_ended_tells_nothing():
    story = RunBuilder()
    story.submit()
    story.start_agent()
    story.cancel()
    story.end_agent("failed", failure="gpu_unusable")
    assert not any(place.faults for place in story.state.stats.sites.values())


def test_how_far_each_training_is():
    story = RunBuilder("0", "1")
    story.submit()
    story.start_agent()
    story.save_checkpoint(7)
    story.add_event("agent-1", "metric", step=9, loss=1.0)
    assert story.state.stats.furthest_steps == {"0": 9}


def test_how_far_a_training_is_when_it_is_asked_for_again_and_again():
    story, state = RunBuilder(), RunState("run-1")
    story.submit()
    story.start_agent()
    story.add_stage("steps")
    story.add_event("agent-1", "metric", step=9, total_steps=20)
    story.add_event("agent-1", "metric", step=11, total_steps=20)
    seen = []
    for event, arrived in zip(story.events, story.received_at, strict=True):
        state.apply(event, arrived)
        seen.append(state.stats.furthest_steps.get("0", -1))
    assert seen[-3:] == [-1, 9, 11]


def test_an_attempt_knows_when_its_end_was_heard_of():
    story = told()
    story.now = 25.0
    story.add_failed_attempt(3, "evicted")
    story.submit("0-4")
    assert [attempt.ended_at for attempt in story.job.executions] == [10.0, 10.0, 25.0, 0.0]


def test_failures_are_alike_if_only_figures_differ():
    def made(detail, kind="step_failed"):
        story = RunBuilder()
        story.add_failed_attempt_at("A", 1, kind, detail=detail)
        return failure_signature(story.job.executions[0].failure)

    assert made("line 12 at 0x7fab") == made("line 7 at 0x1")
    assert made("no scipy") != made("no numpy")
    assert made("x") != made("x", "module_missing")


@pytest.mark.parametrize("more", ["", "confirm", "place", "start_agent", "cancel", "hold", "end_attempt", "end_job"])
def test_what_is_known_without_drawing_is_what_a_drawing_shows(more):
    story = RunBuilder()
    story.submit(is_confirmed=False)
    if more:
        getattr(story, more)(*(("failed",) if more == "end_job" else ()))
    assert story.job.is_newly_submitted == (more in ("", "confirm"))
    if story.job.is_newly_submitted:
        (attempt,) = story.job.live_executions
        assert story.job.status is JobStatus.QUEUED and not attempt.overrides and attempt.hold is None
        assert not (story.job.counted_failures or story.job.moves or attempt.started_at or attempt.copy_of)


def test_what_was_asked_for_otherwise_than_planned_is_looked_at():
    story = RunBuilder()
    story.add_supervisor_event(kinds.DECISION_MADE, action="submit", attempt="0-1", overrides={"memory_factor": 2.0})
    assert not story.job.is_newly_submitted
