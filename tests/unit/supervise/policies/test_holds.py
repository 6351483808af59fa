"""The policy for held attempts."""

from __future__ import annotations

import pytest

from packtrain.plan import Job, Limits, Resources
from packtrain.supervise.decisions import GiveUp, Release, event_from_decision
from packtrain.supervise.policies import PolicyConfig, hold_policy
from tests.support.event_builder import RunBuilder


@pytest.fixture
def run():
    run = RunBuilder()
    run.submit()
    return run


def decide(run, now=0.0, max_attempts=3):
    config = PolicyConfig(jobs={"0": Job("0", (), Resources(), Limits(max_attempts=max_attempts), ())})
    return hold_policy(config)(run.state, ["0"], now)


def test_transient_hold_is_released_after_delay(run):
    hold = run.hold()
    assert decide(run, 9.9) == []
    (decision,) = decide(run, 10.0)
    assert isinstance(decision, Release) and (decision.attempt_id, decision.hold_seq) == ("0-1", hold)


def test_hold_is_decided_once(run):
    run.answer_hold("release", run.hold())
    assert decide(run, 1e9) == []


def test_release_delays_grow_and_releases_are_limited(run):
    for delay_s in (10.0, 60.0, 360.0):
        hold = run.hold()
        assert decide(run, delay_s - 1) == []
        assert isinstance(decide(run, delay_s)[0], Release)
        run.answer_hold("release", hold)
        run.release()
    run.hold()
    (decision,) = decide(run, 0.0)
    assert isinstance(decision, GiveUp) and "3 times" in decision.reason


def test_permanent_hold_is_given_up(run):
    hold = run.hold("give_up")
    assert decide(run) == [GiveUp("0", "0-1", "it is held", hold)]


def test_hold_of_last_attempt_is_given_up(run):
    run.start_execution()
    run.hold(execution=1)
    (decision,) = decide(run, 0.0, max_attempts=1)
    assert isinstance(decision, GiveUp) and decision.reason == "the job has no attempts left"
    assert isinstance(decide(run, 10.0, max_attempts=2)[0], Release)


def test_restart_loop_with_progress_is_released(run):
    for number in range(5):
        run.start_execution(number + 1)
        run.start_agent(f"agent-{number}")
        run.save_checkpoint(number, f"agent-{number}")
        run.interrupt_execution(number + 1, emitters=(f"agent-{number}",))
        hold = run.hold("give_up", kind="restart_loop")
        (decision,) = decide(run)
        assert decision == Release("0", "0-1", "the training has progressed since the last hold", hold)
        run.answer_hold("release", hold)
        run.release()
    run.start_execution(6)
    run.interrupt_execution(6)
    run.hold("give_up", kind="restart_loop")
    assert isinstance(decide(run)[0], GiveUp)


def test_restart_loop_releases_do_not_count(run):
    test_restart_loop_with_progress_is_released(run)
    run.release()
    run.hold()
    assert decide(run) == []
    assert isinstance(decide(run, 10.0)[0], Release)


def test_hold_by_user_is_respected_for_a_day(run):
    run.hold("wait")
    assert decide(run, 23 * 3600) == []
    assert isinstance(decide(run, 24 * 3600)[0], GiveUp)


def test_released_attempt_is_ignored(run):
    run.hold()
    run.release()
    assert decide(run, 1e9) == []


def test_finished_job_is_ignored(run):
    run.hold("give_up")
    run.end_job("cancelled")
    assert decide(run) == []


def test_repeated_failures_are_given_up(run):
    for number in (1, 2):
        run.start_execution(number)
        run.interrupt_execution(number, kind="container_failed")
        assert (decide(run, max_attempts=2) != []) is (number == 2)
    (decision,) = decide(run, max_attempts=2)
    assert isinstance(decision, GiveUp) and "keeps failing" in decision.reason
    run.answer_hold("give_up", decision.hold_seq)
    assert decide(run, max_attempts=2) == []


def test_running_execution_is_not_given_up(run):
    for number in (1, 2):
        run.start_execution(number)
        run.interrupt_execution(number, kind="container_failed")
    run.start_execution(3)
    assert decide(run, max_attempts=2) == []


def test_evictions_are_not_given_up(run):
    for number in range(1, 9):
        run.start_execution(number)
        run.interrupt_execution(number)
    assert decide(run, max_attempts=1) == []


def test_events_of_decisions():
    assert event_from_decision(Release("0", "0-1", "r", 7))[1] == {
        "action": "release",
        "attempt": "0-1",
        "reason": "r",
        "hold": 7,
    }
    assert event_from_decision(GiveUp("0", "0-1", "r", 7))[1]["action"] == "give_up"
