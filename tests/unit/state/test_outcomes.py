"""The index of outcomes."""

from __future__ import annotations

from packtrain.state import JobStatus, RunState
from packtrain.state.outcomes import failure_signature
from tests.support.event_builder import RunBuilder


def build_run():
    run = RunBuilder("0", "1")
    run.now = 10.0
    run.add_failed_attempt_at("A", 1, "gpu_unusable", host="slot1@a1", duration_s=7.0)
    run.add_failed_attempt_at("B", 2, "step_failed", host="b1", detail="line 12")
    run.add_succeeded_attempt_at("B", 1, "1", host="b1")
    return run


def test_index_contents():
    index = build_run().state.stats
    assert {name: (len(location.success_times), len(location.faults)) for name, location in index.sites.items()} == {
        "A": (0, 1),
        "B": (1, 0),
    }
    assert set(index.nodes) == {"a1", "b1"}
    assert (index.n_successes, index.n_failures, index.wasted_s) == (1, 2, 16.0)
    assert [{outcome.job for outcome in outcomes} for outcomes in index.user_errors.values()] == [{"0"}]


def test_index_does_not_depend_on_reads():
    run, state = build_run(), RunState("run-1")
    for event, received_at in zip(run.events, run.received_at, strict=True):
        state.apply(event, received_at)
        timing, submitted = state.stats.timing, [job for job in state.jobs.values() if job.n_attempts]
        assert timing.waiting_jobs >= {
            job.id for job in submitted if job.status in (JobStatus.QUEUED, JobStatus.WAITING)
        }
        assert set(timing.running_jobs) == {job.id for job in submitted if job.status is JobStatus.RUNNING}
        assert not timing.waiting_jobs & set(timing.running_jobs)
    expected = build_run().state.stats
    assert (state.stats.sites, state.stats.nodes) == (expected.sites, expected.nodes)
    assert (state.stats.n_failures, state.stats.n_successes) == (expected.n_failures, expected.n_successes)
    assert {key: value for key, value in state.stats.user_errors.items() if value} == expected.user_errors


def test_count_successes_since():
    (location,) = [location for name, location in build_run().state.stats.sites.items() if name == "B"]
    assert (location.count_successes_since(10.0), location.count_successes_since(10.1)) == (1, 0)


def test_reopening_resets_job():
    run = build_run()
    run.end_job("failed")
    run.reopen()
    index = run.state.stats
    assert (index.n_failures, index.wasted_s) == (0, 0.0)
    assert not any(index.user_errors.values())
    assert index.sites["B"].success_times, "the other job was not reopened"


def test_cancelled_execution_is_no_fault():
    run = RunBuilder()
    run.submit()
    run.start_agent()
    run.cancel()
    run.end_agent("failed", failure="gpu_unusable")
    assert not any(location.faults for location in run.state.stats.sites.values())


def test_furthest_steps():
    run = RunBuilder("0", "1")
    run.submit()
    run.start_agent()
    run.save_checkpoint(7)
    run.add_event("agent-1", "metric", step=9, loss=1.0)
    assert run.state.stats.furthest_steps == {"0": 9}


def test_furthest_steps_are_updated():
    run, state = RunBuilder(), RunState("run-1")
    run.submit()
    run.start_agent()
    run.add_stage("steps")
    run.add_event("agent-1", "metric", step=9, total_steps=20)
    run.add_event("agent-1", "metric", step=11, total_steps=20)
    steps = []
    for event, received_at in zip(run.events, run.received_at, strict=True):
        state.apply(event, received_at)
        steps.append(state.stats.furthest_steps.get("0", -1))
    assert steps[-3:] == [-1, 9, 11]


def test_ended_at():
    run = build_run()
    run.now = 25.0
    run.add_failed_attempt(3, "evicted")
    run.submit("0-4")
    assert [execution.ended_at for execution in run.job.executions] == [10.0, 10.0, 25.0, 0.0]


def test_failure_signature_ignores_numbers():
    def make_signature(detail, kind="step_failed"):
        run = RunBuilder()
        run.add_failed_attempt_at("A", 1, kind, detail=detail)
        return failure_signature(run.job.executions[0].failure)

    assert make_signature("line 12 at 0x7fab") == make_signature("line 7 at 0x1")
    assert make_signature("no scipy") != make_signature("no numpy")
    assert make_signature("x") != make_signature("x", "module_missing")
