"""The record: an index that is the same however the events came."""

from __future__ import annotations

import pytest

from packtrain.state import JobStatus, RunState
from packtrain.state.outcomes import signature
from tests.support.event_builder import Story


def told():
    story = Story("0", "1")
    story.now = 10.0
    story.fail_at("A", 1, "gpu_unusable", host="slot1@a1", seconds=7.0)
    story.fail_at("B", 2, "step_failed", host="b1", detail="line 12")
    story.succeed_at("B", 1, "1", host="b1")
    return story


def test_what_it_knows():
    record = told().state.record
    assert {name: (len(place.good), len(place.faults)) for name, place in record.sites.items()} == {
        "A": (0, 1),
        "B": (1, 0),
    }
    assert set(record.machines) == {"a1", "b1"}
    assert (record.successes, record.failures, record.wasted_s) == (1, 2, 16.0)
    assert [{one.job for one in found} for found in record.mistakes.values()] == [{"0"}]


def test_it_is_the_same_whenever_it_was_asked_for():
    story, state = told(), RunState("run-1")
    for event, arrived in zip(story.events, story.arrived, strict=True):
        state.apply(event, arrived)
        pace, asked = state.record.pace, [job for job in state.jobs.values() if job.submissions]
        assert pace.waiting >= {job.id for job in asked if job.status in (JobStatus.QUEUED, JobStatus.WAITING)}
        assert set(pace.running) == {job.id for job in asked if job.status is JobStatus.RUNNING}
        assert not pace.waiting & set(pace.running)
    once = told().state.record
    assert (state.record.sites, state.record.machines) == (once.sites, once.machines)
    assert (state.record.failures, state.record.successes) == (once.failures, once.successes)
    assert {key: value for key, value in state.record.mistakes.items() if value} == once.mistakes


def test_good_ends_count_for_a_while():
    (place,) = [place for name, place in told().state.record.sites.items() if name == "B"]
    assert (place.good_since(10.0), place.good_since(10.1)) == (1, 0)


def test_what_was_before_a_reopening_does_not_count():
    story = told()
    story.verdict("failed")
    story.reopen()
    record = story.state.record
    assert (record.failures, record.wasted_s) == (0, 0.0)
    assert not any(record.mistakes.values())
    assert record.sites["B"].good, "the other job was not opened again"


def test_what_a_supervisor_ended_tells_nothing():
    story = Story()
    story.submit()
    story.start()
    story.cancel()
    story.end("failed", failure="gpu_unusable")
    assert not any(place.faults for place in story.state.record.sites.values())


def test_how_far_each_training_is():
    story = Story("0", "1")
    story.submit()
    story.start()
    story.checkpoint(7)
    story.say("agent-1", "metric", step=9, loss=1.0)
    assert story.state.record.progress == {"0": 9}


def test_how_far_a_training_is_when_it_is_asked_for_again_and_again():
    story, state = Story(), RunState("run-1")
    story.submit()
    story.start()
    story.stage("steps")
    story.say("agent-1", "metric", step=9, total_steps=20)
    story.say("agent-1", "metric", step=11, total_steps=20)
    seen = []
    for event, arrived in zip(story.events, story.arrived, strict=True):
        state.apply(event, arrived)
        seen.append(state.record.progress.get("0", -1))
    assert seen[-3:] == [-1, 9, 11]


def test_an_attempt_knows_when_its_end_was_heard_of():
    story = told()
    story.now = 25.0
    story.fail(3, "evicted")
    story.submit("0-4")
    assert [attempt.over_at for attempt in story.job.attempts] == [10.0, 10.0, 25.0, 0.0]


def test_failures_are_alike_if_only_figures_differ():
    def made(detail, kind="step_failed"):
        story = Story()
        story.fail_at("A", 1, kind, detail=detail)
        return signature(story.job.attempts[0].failure)

    assert made("line 12 at 0x7fab") == made("line 7 at 0x1")
    assert made("no scipy") != made("no numpy")
    assert made("x") != made("x", "module_missing")


@pytest.mark.parametrize("more", ["", "confirm", "placed", "start", "cancel", "held", "gone", "verdict"])
def test_what_is_known_without_drawing_is_what_a_drawing_shows(more):
    story = Story()
    story.submit(confirm=False)
    if more:
        getattr(story, more)(*(("failed",) if more == "verdict" else ()))
    assert story.job.is_fresh == (more in ("", "confirm"))
    if story.job.is_fresh:
        (attempt,) = story.job.live
        assert story.job.status is JobStatus.QUEUED and not attempt.amendment and attempt.hold is None
        assert not (story.job.spent or story.job.moves or attempt.began_at or attempt.copy_of)


def test_what_was_asked_for_otherwise_than_planned_is_looked_at():
    story = Story()
    story.supervise("decided", action="submit", id="0-1", amendment={"memory": 2.0})
    assert not story.job.is_fresh
