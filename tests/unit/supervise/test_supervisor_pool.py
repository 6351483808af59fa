"""The supervisor with engines whose attempts run on remote nodes."""

from __future__ import annotations

from dataclasses import replace

from packtrain.engines.updates import Held, ProgressReported
from packtrain.errors import UnavailableError
from packtrain.events import kinds
from packtrain.state import JobStatus
from tests.support.fake_engine import FakeEngine


class HoldingEngine(FakeEngine):
    """Reports one hold, and ends released or cancelled attempts as the script says."""

    action = "give_up"
    has_reported = False

    def poll(self):
        if self._running and not self.has_reported:
            self.has_reported = True
            data = {"seq": 7, "failure_kind": "pool_time_limit", "action": self.action, "detail": "held for its time"}
            return [Held(d, t.job.id, **data) for d, t in self._running.items()]
        if self.has_reported and not getattr(self, "released_ids", None) and not self._cancelled:
            return []
        return super().poll()


def test_outputs_are_committed_before_result(harness):
    engine = harness.make_engine()
    order = []
    commit, append = engine.commit_outputs, harness.store.append

    def append_and_log(events, **kwargs):
        events = list(events)
        order.extend(event.kind for event in events if event.kind == kinds.JOB_ENDED)
        append(events, **kwargs)

    engine.commit_outputs = lambda requests: (order.append("commit"), commit(requests))
    harness.store.append = append_and_log
    harness.make_supervisor(engine).run()
    assert order == ["commit", kinds.JOB_ENDED]
    assert engine.committed_ids == ["0-1"]


def test_failed_commit_fails_job(harness):
    def fail(requests):
        raise OSError(28, "No space left on device", "/home/ada/out")

    engine = harness.make_engine()
    engine.commit_outputs = fail
    job = harness.make_supervisor(engine).run().jobs["0"]
    assert (job.status, job.result.failure.kind) == (JobStatus.FAILED, "upload_failed")
    assert "No space left" in job.result.failure.detail


def test_permanent_hold_fails_job(make_harness):
    harness = make_harness(attempts=1)
    job = harness.make_supervisor(harness.make_engine({"0": ["hang"]}, HoldingEngine)).run().jobs["0"]
    assert harness.decided_ids("give_up") == ["0-1"]
    assert job.status is JobStatus.FAILED


def test_transient_hold_is_released(harness):
    class TransientHold(HoldingEngine):
        action = "release"

    engine = harness.make_engine(None, TransientHold)
    job = harness.make_supervisor(engine).run().jobs["0"]
    assert engine.released_ids == ["0-1"]
    assert job.status is JobStatus.SUCCEEDED


def test_handover_keeps_attempts(harness):
    engine = harness.make_engine({"0": ["hang"]})
    supervisor = harness.make_supervisor(engine)
    engine._on_wait = supervisor.hand_over
    state = supervisor.run()
    assert state.jobs["0"].live_executions
    assert harness.decided_ids("cancel") == []
    assert [e.data["reason"] for e in harness.events(kinds.SUPERVISOR_ENDED)] == ["handed_over"]
    assert harness.make_supervisor(harness.make_engine()).run().jobs["0"].status is JobStatus.SUCCEEDED, (
        "another supervisor continues"
    )
    assert harness.decided_ids("submit") == ["0-1"]


def test_unavailable_engine_is_retried(harness):
    class UnavailableEngine(FakeEngine):
        n_calls = 0

        def recover(self, requests):
            self.n_calls += 1
            if self.n_calls < 3:
                raise UnavailableError("unavailable")
            return super().recover(requests)

    engine = harness.make_engine(None, UnavailableEngine)
    assert harness.make_supervisor(engine).run().jobs["0"].status is JobStatus.SUCCEEDED
    assert engine.n_calls == 3


def test_remote_journals_are_read_at_end(harness):
    class RemoteEngine(FakeEngine):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.capabilities = replace(self.capabilities, has_shared_folder=False)

    state = harness.make_supervisor(harness.make_engine(None, RemoteEngine)).run()
    assert state.jobs["0"].status is JobStatus.SUCCEEDED
    assert harness.events(kinds.AGENT_STARTED)


def test_progress_is_not_stored_as_event(harness):
    class ProgressEngine(FakeEngine):
        def poll(self):
            updates = super().poll()
            return [*updates, *(ProgressReported(u.attempt_id, u.job_id, progress={"done": 5}) for u in updates)]

    harness.make_supervisor(harness.make_engine(None, ProgressEngine)).run()
    assert harness.store.progress("run-1") == {"0-1": {"attempt": "0-1", "done": 5}}
    assert all("done" not in event.data for event in harness.events())
