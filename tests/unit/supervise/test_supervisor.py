"""The supervisor with a scripted engine, a real store and real journals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from packtrain.engines.updates import Running
from packtrain.events import kinds
from packtrain.plan import Limits, Recovery
from packtrain.state import ExecutionStatus, JobStatus
from tests.support.fake_engine import HANG, LOST, SUCCEED, FakeEngine

E, J = ExecutionStatus, JobStatus


def statuses(state):
    return {name: job.status for name, job in state.jobs.items()}


def test_all_jobs_succeed(make_harness):
    harness = make_harness(jobs=3)
    engine = harness.make_engine()
    state = harness.make_supervisor(engine).run()
    assert statuses(state) == {"0": J.SUCCEEDED, "1": J.SUCCEEDED, "2": J.SUCCEEDED}
    assert sorted(engine.read_submitted_ids()) == ["0-1", "1-1", "2-1"]
    assert state.jobs["1"].result.emitter == "agent-1-1"
    (ended,) = harness.events(kinds.RUN_ENDED)
    assert {k: ended.data[k] for k in ("succeeded", "failed", "cancelled")} == {
        "succeeded": 3,
        "failed": 0,
        "cancelled": 0,
    }
    assert harness.events(kinds.SUPERVISOR_ENDED)[0].data["reason"] == "finished"
    assert harness.store.get_lease("run-1").is_released
    assert not state.is_supervised


def test_decision_is_stored_before_it_is_carried_out(harness):
    harness.make_supervisor(harness.make_engine()).run()
    event_kinds = [event.kind for event in harness.events() if event.job]
    assert (
        event_kinds.index(kinds.DECISION_MADE)
        < event_kinds.index(kinds.ATTEMPT_SUBMITTED)
        < event_kinds.index(kinds.AGENT_STARTED)
    )
    assert event_kinds[-1] in (kinds.JOB_ENDED, kinds.ATTEMPT_GONE)


class LateEngine(FakeEngine):
    """Reports an end only after the supervisor has read the agent's journal, which ends the run."""

    def poll(self):
        return [Running(update.attempt_id, update.job_id) for update in super().poll()]


@pytest.mark.parametrize("engine_class", [FakeEngine, LateEngine])
def test_observations_are_stored(harness, engine_class):
    harness.make_supervisor(harness.make_engine({"0": ["service_unavailable", SUCCEED]}, engine_class)).run()
    assert {(o.site, o.failure_kind) for o in harness.store.observations()} == {
        ("fake", "service_unavailable"),
        ("fake", ""),
    }


def test_transient_failures_are_retried(harness):
    script = {"0": ["service_unavailable", "agent_lost", SUCCEED]}
    job = harness.make_supervisor(harness.make_engine(script)).run().jobs["0"]
    assert job.status is J.SUCCEEDED
    assert [(e.number, e.status) for e in job.executions] == [(1, E.FAILED), (2, E.FAILED), (3, E.SUCCEEDED)]


def test_retries_are_limited(make_harness):
    harness = make_harness(attempts=2)
    job = harness.make_supervisor(harness.make_engine({"0": ["service_unavailable"]})).run().jobs["0"]
    assert (job.status, len(job.executions), job.result.failure.kind) == (J.FAILED, 2, "service_unavailable")


def test_permanent_failure_is_not_retried(harness):
    engine = harness.make_engine({"0": ["step_failed", SUCCEED]})
    job = harness.make_supervisor(engine).run().jobs["0"]
    assert (job.status, job.result.failure.kind, engine.read_submitted_ids()) == (J.FAILED, "step_failed", ["0-1"])


def test_lost_agent_is_retried(harness):
    job = harness.make_supervisor(harness.make_engine({"0": [LOST, SUCCEED]})).run().jobs["0"]
    assert [e.status for e in job.executions] == [E.LOST, E.SUCCEEDED]
    assert job.executions[0].failure.kind == "agent_lost"


def test_failed_job_does_not_stop_others(make_harness):
    harness = make_harness(jobs=3)
    state = harness.make_supervisor(harness.make_engine({"1": ["step_failed"]})).run()
    assert statuses(state) == {"0": J.SUCCEEDED, "1": J.FAILED, "2": J.SUCCEEDED}


def test_identical_failures_stop_run(make_harness):
    harness = make_harness(jobs=10)
    engine = harness.make_engine({str(n): ["step_failed"] for n in range(10)}, capacity=2)
    state = harness.make_supervisor(engine).run()
    failure_kinds = [job.result.failure.kind for job in state.jobs.values()]
    assert (failure_kinds.count("step_failed"), failure_kinds.count("run_stopped")) == (6, 4), "two were running"
    reasons = {job.result.reason for job in state.jobs.values() if job.result.failure.kind == "run_stopped"}
    assert reasons == {"stopped after 6 identical failures on this machine"}
    assert state.is_finished
    engine = harness.make_engine()
    assert harness.make_supervisor(engine).run(reopen=True).count_jobs(J.SUCCEEDED) == 10, "the run can be resumed"


def test_run_budget(make_harness):
    harness = make_harness(jobs=10, attempts=9)
    harness.plan = replace(harness.plan, recovery=Recovery(max_failures=4))
    engine = harness.make_engine({str(n): ["service_unavailable"] for n in range(10)}, capacity=1)
    state = harness.make_supervisor(engine).run()
    assert sum(len(job.counted_failures) for job in state.jobs.values()) == 5, "one was running"
    assert state.count_jobs(J.FAILED) == 10


def test_cancel_running_job(make_harness):
    harness = make_harness(jobs=2)
    requests = []

    def request_once():
        if not requests and harness.events(kinds.AGENT_STARTED):
            requests.append(harness.request_cancel("0"))

    state = harness.make_supervisor(harness.make_engine({"0": [HANG]}, on_wait=request_once)).run()
    assert statuses(state) == {"0": J.CANCELLED, "1": J.SUCCEEDED}
    assert harness.decided_ids("cancel") == ["0-1"]
    assert state.jobs["0"].open_requests == {}


def test_cancel_queued_attempt(make_harness):
    harness = make_harness(jobs=2)
    harness.request_cancel("1")
    engine = harness.make_engine(capacity=0)
    supervisor = harness.make_supervisor(engine)
    engine._on_wait = supervisor.stop
    state = supervisor.run()
    assert state.jobs["1"].status is J.CANCELLED
    assert state.jobs["0"].live_executions == ()


def stop_when_running(harness, script):
    engine = harness.make_engine(script)
    supervisor = harness.make_supervisor(engine)
    engine._on_wait = lambda: harness.events(kinds.AGENT_STARTED) and supervisor.stop()
    return supervisor.run()


@pytest.mark.parametrize("attempts", [1, 3])
def test_stop_ends_attempts_without_results(make_harness, attempts):
    harness = make_harness(jobs=2, attempts=attempts)
    state = stop_when_running(harness, {"0": [HANG], "1": [HANG]})
    assert statuses(state) == {"0": J.WAITING, "1": J.WAITING}
    assert sorted(harness.decided_ids("cancel")) == ["0-1", "1-1"]
    assert harness.events(kinds.SUPERVISOR_ENDED)[0].data["reason"] == "interrupted"
    assert harness.events(kinds.RUN_ENDED) == []


@pytest.mark.parametrize("reopen", [False, True])
def test_stopped_run_resumes(make_harness, reopen):
    harness = make_harness(jobs=2, attempts=1)
    stop_when_running(harness, {"0": [HANG], "1": [HANG]})
    engine = harness.make_engine()
    state = harness.make_supervisor(engine).run(reopen)
    assert statuses(state) == {"0": J.SUCCEEDED, "1": J.SUCCEEDED}
    assert sorted(engine.read_submitted_ids()) == ["0-1", "0-2", "1-1", "1-2"]
    assert [event.data["epoch"] for event in harness.events(kinds.SUPERVISOR_STARTED)] == [1, 2]


def test_reopen_retries_failed_jobs_only(make_harness):
    harness = make_harness(jobs=2, attempts=1)
    harness.make_supervisor(harness.make_engine({"0": ["step_failed"]})).run()
    engine = harness.make_engine()
    state = harness.make_supervisor(engine).run(reopen=True)
    assert statuses(state) == {"0": J.SUCCEEDED, "1": J.SUCCEEDED}
    assert engine.read_submitted_ids() == ["0-1", "1-1", "0-2"]


def test_finished_run_is_unchanged_without_reopen(harness):
    harness.make_supervisor(harness.make_engine({"0": ["step_failed"]})).run()
    state = harness.make_supervisor(harness.make_engine()).run()
    assert state.jobs["0"].status is J.FAILED
    assert harness.decided_ids("submit") == ["0-1"]


def test_reopen_discards_cancel_request(harness):
    harness.request_cancel("0")
    state = harness.make_supervisor(harness.make_engine()).run(reopen=True)
    assert state.jobs["0"].status is J.SUCCEEDED, "resuming discards the request"


def test_job_missing_from_run_created_runs(make_harness):
    harness = make_harness(jobs=1)
    extra_job = harness.plan.jobs[0].__class__("7", (), harness.plan.jobs[0].resources, Limits(), ())
    harness.plan = harness.plan.__class__("run-1", "name", "fake", (*harness.plan.jobs, extra_job))
    assert statuses(harness.make_supervisor(harness.make_engine()).run()) == {"0": J.SUCCEEDED, "7": J.SUCCEEDED}


def test_engine_error_releases_lease(harness):
    def fail():
        raise ZeroDivisionError

    supervisor = harness.make_supervisor(harness.make_engine({"0": [HANG]}, on_wait=fail))
    with pytest.raises(ZeroDivisionError):
        supervisor.run()
    assert harness.events(kinds.SUPERVISOR_ENDED)[0].data["reason"] == "error"
    job = harness.make_supervisor(harness.make_engine()).run().jobs["0"]
    assert (job.status, len(job.executions)) == (J.SUCCEEDED, 1), "the live attempt was recovered"
