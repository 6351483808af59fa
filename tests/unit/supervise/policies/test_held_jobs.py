"""Attempts that a pool keeps back are let go, waited for or given up; never left alone."""

from __future__ import annotations

import pytest

from packtrain.plan import Job, Limits, Resources
from packtrain.supervise.decisions import GiveUp, Release, event_from_decision
from packtrain.supervise.policies import PolicyConfig, hold_policy
from tests.support.event_builder import RunBuilder


@pytest.fixture
def story():
    told = RunBuilder()
    told.submit()
    return told


def decide(story, now=0.0, allowed=3):
    rules = PolicyConfig(jobs={"0": Job("0", (), Resources(), Limits(max_attempts=allowed), ())})
    return hold_policy(rules)(story.state, ["0"], now)


def test_what_may_pass_is_let_go_after_a_while(story):
    hold = story.hold()
    assert decide(story, 9.9) == []
    (decision,) = decide(story, 10.0)
    assert isinstance(decision, Release) and (decision.attempt_id, decision.hold_seq) == ("0-1", hold)


def test_an_answer_is_given_once(story):
    story.answer_hold("release", story.hold())
    assert decide(story, 1e9) == []


def test_each_release_waits_longer_and_there_is_a_last_one(story):
    for wait in (10.0, 60.0, 360.0):
        hold = story.hold()
        assert decide(story, wait - 1) == []
        assert isinstance(decide(story, wait)[0], Release)
        story.answer_hold("release", hold)
        story.release()
    story.hold()
    (decision,) = decide(story, 0.0)
    assert isinstance(decision, GiveUp) and "3 times" in decision.reason


def test_what_does_not_pass_is_given_up_at_once(story):
    hold = story.hold("give_up")
    assert decide(story) == [GiveUp("0", "0-1", "it is held", hold)]


def test_a_hold_that_ends_the_last_start_that_it_may_have_is_not_let_go(story):
    story.place()
    story.hold(execution=1)
    (decision,) = decide(story, 0.0, allowed=1)
    assert isinstance(decision, GiveUp) and decision.reason == "its last attempt ended with it"
    assert isinstance(decide(story, 10.0, allowed=2)[0], Release)


def test_one_that_was_started_too_often_goes_on_as_long_as_it_gets_further(story):
    for turn in range(5):
        story.place(turn + 1)
        story.start_agent(f"agent-{turn}")
        story.save_checkpoint(turn, f"agent-{turn}")
        story.stop_execution(turn + 1, emitters=(f"agent-{turn}",))
        hold = story.hold("give_up", kind="restart_loop")
        (decision,) = decide(story)
        assert decision == Release("0", "0-1", "its training got further since it was last held", hold)
        story.answer_hold("release", hold)
        story.release()
    story.place(6)
    story.stop_execution(6)
    story.hold("give_up", kind="restart_loop")
    assert isinstance(decide(story)[0], GiveUp)


def test_such_releases_do_not_count_against_those_of_other_holds(story):
    test_one_that_was_started_too_often_goes_on_as_long_as_it_gets_further(story)
    story.release()
    story.hold()
    assert decide(story) == []
    assert isinstance(decide(story, 10.0)[0], Release)


def test_what_a_person_held_waits_for_that_person_but_not_for_ever(story):
    story.hold("wait")
    assert decide(story, 23 * 3600) == []
    assert isinstance(decide(story, 24 * 3600)[0], GiveUp)


def test_nothing_is_decided_about_what_is_not_held(story):
    story.hold()
    story.release()
    assert decide(story, 1e9) == []


def test_nothing_is_decided_after_a_verdict(story):
    story.hold("give_up")
    story.end_job("cancelled")
    assert decide(story) == []


def test_starts_that_fail_alike_have_an_end(story):
    for start in (1, 2):
        story.place(start)
        story.stop_execution(start, kind="container_failed")
        assert (decide(story, allowed=2) != []) is (start == 2)
    (decision,) = decide(story, allowed=2)
    assert isinstance(decision, GiveUp) and "again and again" in decision.reason
    story.answer_hold("give_up", decision.hold_seq)
    assert decide(story, allowed=2) == []


def test_a_start_that_runs_is_not_given_up(story):
    for start in (1, 2):
        story.place(start)
        story.stop_execution(start, kind="container_failed")
    story.place(3)
    assert decide(story, allowed=2) == []


def test_evictions_are_not_given_up_here(story):
    for start in range(1, 9):
        story.place(start)
        story.stop_execution(start)
    assert decide(story, allowed=1) == []


def test_their_events():
    assert event_from_decision(Release("0", "0-1", "r", 7))[1] == {
        "action": "release",
        "attempt": "0-1",
        "reason": "r",
        "hold": 7,
    }
    assert event_from_decision(GiveUp("0", "0-1", "r", 7))[1]["action"] == "give_up"
