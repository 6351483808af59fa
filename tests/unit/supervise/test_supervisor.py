"""The supervisor with an engine that plays by a script, a real store and real journals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from packtrain.events import kinds
from packtrain.plan import Limits, Recovery
from packtrain.state import ExecutionStatus, JobStatus
from tests.support.fake_engine import HANG, LOST, SUCCEED, FakeEngine

A, J = ExecutionStatus, JobStatus


def statuses(state):
    return {name: job.status for name, job in state.jobs.items()}


def test_a_happy_run(make_bench):
    bench = make_bench(jobs=3)
    engine = bench.make_engine()
    state = bench.make_supervisor(engine).run()
    assert statuses(state) == {"0": J.SUCCEEDED, "1": J.SUCCEEDED, "2": J.SUCCEEDED}
    assert sorted(engine.read_submitted_ids()) == ["0-1", "1-1", "2-1"]
    assert state.jobs["1"].result.emitter == "agent-1-1"
    (ended,) = bench.events(kinds.RUN_ENDED)
    assert {k: ended.data[k] for k in ("succeeded", "failed", "cancelled")} == {
        "succeeded": 3,
        "failed": 0,
        "cancelled": 0,
    }
    assert bench.events(kinds.SUPERVISOR_ENDED)[0].data["reason"] == "finished"
    assert bench.store.get_lease("run-1").is_released
    assert not state.is_supervised


def test_every_decision_is_written_before_and_confirmed_after(bench):
    bench.make_supervisor(bench.make_engine()).run()
    told = [event.kind for event in bench.events() if event.job]
    assert told.index(kinds.DECISION_MADE) < told.index(kinds.ATTEMPT_SUBMITTED) < told.index(kinds.AGENT_STARTED)
    assert told[-1] == kinds.JOB_ENDED or told[-1] == kinds.ATTEMPT_GONE


class Slow(FakeEngine):
    """It hears of an end only after the supervisor has read the agent's own word, which ends the run."""

    def poll(self):
        return [replace(sighting, status="running") for sighting in super().poll()]


@pytest.mark.parametrize("kind", [FakeEngine, Slow])
def test_how_attempts_fared_is_noted_whoever_tells_their_end(bench, kind):
    bench.make_supervisor(bench.make_engine({"0": ["service_unavailable", SUCCEED]}, kind)).run()
    assert {(one.site, one.failure_kind) for one in bench.store.observations()} == {
        ("fake", "service_unavailable"),
        ("fake", ""),
    }


def test_failures_that_may_pass_are_tried_again(bench):
    script = {"0": ["service_unavailable", "agent_lost", SUCCEED]}
    job = bench.make_supervisor(bench.make_engine(script)).run().jobs["0"]
    assert job.status is J.SUCCEEDED
    assert [(a.number, a.status) for a in job.executions] == [(1, A.FAILED), (2, A.FAILED), (3, A.SUCCEEDED)]


def test_but_not_for_ever(make_bench):
    bench = make_bench(attempts=2)
    job = bench.make_supervisor(bench.make_engine({"0": ["service_unavailable"]})).run().jobs["0"]
    assert (job.status, len(job.executions), job.result.failure.kind) == (J.FAILED, 2, "service_unavailable")


def test_a_failure_that_will_not_pass_is_not_tried_again(bench):
    engine = bench.make_engine({"0": ["step_failed", SUCCEED]})
    job = bench.make_supervisor(engine).run().jobs["0"]
    assert (job.status, job.result.failure.kind, engine.read_submitted_ids()) == (J.FAILED, "step_failed", ["0-1"])


def test_a_lost_agent_is_replaced(bench):
    job = bench.make_supervisor(bench.make_engine({"0": [LOST, SUCCEED]})).run().jobs["0"]
    assert [a.status for a in job.executions] == [A.LOST, A.SUCCEEDED]
    assert job.executions[0].failure.kind == "agent_lost"


def test_one_failing_job_does_not_stop_the_others(make_bench):
    bench = make_bench(jobs=3)
    state = bench.make_supervisor(bench.make_engine({"1": ["step_failed"]})).run()
    assert statuses(state) == {"0": J.SUCCEEDED, "1": J.FAILED, "2": J.SUCCEEDED}


def test_a_common_mistake_stops_what_was_not_started(make_bench):
    bench = make_bench(jobs=10)
    engine = bench.make_engine({str(n): ["step_failed"] for n in range(10)}, capacity=2)
    state = bench.make_supervisor(engine).run()
    kinds_ = [job.result.failure.kind for job in state.jobs.values()]
    assert (kinds_.count("step_failed"), kinds_.count("run_stopped")) == (6, 4), "two ran when it was decided"
    stopped = {job.result.reason for job in state.jobs.values() if job.result.failure.kind == "run_stopped"}
    assert stopped == {"stopped after 6 identical failures on this machine"}
    assert state.is_finished
    engine = bench.make_engine()
    assert bench.make_supervisor(engine).run(reopen=True).count_jobs(J.SUCCEEDED) == 10, "and can be resumed"


def test_a_budget_of_the_whole_run_is_kept(make_bench):
    bench = make_bench(jobs=10, attempts=9)
    bench.plan = replace(bench.plan, recovery=Recovery(max_failures=4))
    engine = bench.make_engine({str(n): ["service_unavailable"] for n in range(10)}, capacity=1)
    state = bench.make_supervisor(engine).run()
    assert sum(len(job.counted_failures) for job in state.jobs.values()) == 5, "one ran when it was used up"
    assert state.count_jobs(J.FAILED) == 10


def test_a_requested_cancellation_ends_the_attempt_then_the_job(make_bench):
    bench = make_bench(jobs=2)
    asked = []

    def between():
        if not asked and bench.events(kinds.AGENT_STARTED):
            asked.append(bench.request_cancel("0"))

    state = bench.make_supervisor(bench.make_engine({"0": [HANG]}, on_wait=between)).run()
    assert statuses(state) == {"0": J.CANCELLED, "1": J.SUCCEEDED}
    assert bench.decided_ids("cancel") == ["0-1"]
    assert state.jobs["0"].open_requests == {}


def test_a_queued_attempt_can_be_cancelled(make_bench):
    bench = make_bench(jobs=2)
    bench.request_cancel("1")
    engine = bench.make_engine(capacity=0)
    supervisor = bench.make_supervisor(engine)
    engine._on_wait = supervisor.stop
    state = supervisor.run()
    assert state.jobs["1"].status is J.CANCELLED
    assert state.jobs["0"].live_executions == ()


def stop_when_running(bench, script):
    engine = bench.make_engine(script)
    supervisor = bench.make_supervisor(engine)
    engine._on_wait = lambda: bench.events(kinds.AGENT_STARTED) and supervisor.stop()
    return supervisor.run()


@pytest.mark.parametrize("attempts", [1, 3])
def test_stop_ends_the_attempts_and_leaves_the_jobs_their_chance(make_bench, attempts):
    bench = make_bench(jobs=2, attempts=attempts)
    state = stop_when_running(bench, {"0": [HANG], "1": [HANG]})
    assert statuses(state) == {"0": J.WAITING, "1": J.WAITING}
    assert sorted(bench.decided_ids("cancel")) == ["0-1", "1-1"]
    assert bench.events(kinds.SUPERVISOR_ENDED)[0].data["reason"] == "interrupted"
    assert bench.events(kinds.RUN_ENDED) == []


@pytest.mark.parametrize("reopen", [False, True])
def test_a_stopped_run_goes_on(make_bench, reopen):
    bench = make_bench(jobs=2, attempts=1)
    stop_when_running(bench, {"0": [HANG], "1": [HANG]})
    engine = bench.make_engine()
    state = bench.make_supervisor(engine).run(reopen)
    assert statuses(state) == {"0": J.SUCCEEDED, "1": J.SUCCEEDED}
    assert sorted(engine.read_submitted_ids()) == ["0-1", "0-2", "1-1", "1-2"]
    assert [lease["epoch"] for lease in (e.data for e in bench.events(kinds.SUPERVISOR_STARTED))] == [1, 2]


def test_reopening_tries_again_what_failed_and_leaves_what_succeeded(make_bench):
    bench = make_bench(jobs=2, attempts=1)
    bench.make_supervisor(bench.make_engine({"0": ["step_failed"]})).run()
    engine = bench.make_engine()
    state = bench.make_supervisor(engine).run(reopen=True)
    assert statuses(state) == {"0": J.SUCCEEDED, "1": J.SUCCEEDED}
    assert engine.read_submitted_ids() == ["0-1", "1-1", "0-2"]


def test_without_reopening_a_finished_run_stays_as_it_is(bench):
    bench.make_supervisor(bench.make_engine({"0": ["step_failed"]})).run()
    state = bench.make_supervisor(bench.make_engine()).run()
    assert state.jobs["0"].status is J.FAILED
    assert bench.decided_ids("submit") == ["0-1"]


def test_a_cancelled_job_can_be_resumed_though_a_second_request_was_never_answered(bench):
    bench.request_cancel("0")
    state = bench.make_supervisor(bench.make_engine()).run(reopen=True)
    assert state.jobs["0"].status is J.SUCCEEDED, "who resumes no longer wants the earlier cancellation"


def test_a_job_that_the_creation_did_not_name_runs_too(make_bench):
    bench = make_bench(jobs=1)
    more = bench.plan.jobs[0].__class__("7", (), bench.plan.jobs[0].resources, Limits(), ())
    bench.plan = bench.plan.__class__("run-1", "name", "fake", (*bench.plan.jobs, more))
    assert statuses(bench.make_supervisor(bench.make_engine()).run()) == {"0": J.SUCCEEDED, "7": J.SUCCEEDED}


def test_an_error_of_the_engine_frees_the_lease(bench):
    def between():
        raise ZeroDivisionError

    supervisor = bench.make_supervisor(bench.make_engine({"0": [HANG]}, on_wait=between))
    with pytest.raises(ZeroDivisionError):
        supervisor.run()
    assert bench.events(kinds.SUPERVISOR_ENDED)[0].data["reason"] == "error"
    job = bench.make_supervisor(bench.make_engine()).run().jobs["0"]
    assert (job.status, len(job.executions)) == (J.SUCCEEDED, 1), "the attempt that lived on was followed"
