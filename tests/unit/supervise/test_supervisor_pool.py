"""What a supervisor does for engines whose attempts are far away."""

from __future__ import annotations

from dataclasses import replace

from packtrain.engines.api import AttemptUpdate
from packtrain.errors import UnavailableError
from packtrain.events import kinds
from packtrain.state import JobStatus
from tests.support.fake_engine import FakeEngine


class Held(FakeEngine):
    """Tells of a hold once; ends what is released or cancelled as the script says."""

    action = "give_up"
    told = False

    def poll(self):
        if self._running and not self.told:
            self.told = True
            about = {
                "seq": 7,
                "failure_kind": "pool_time_limit",
                "hold_action": self.action,
                "detail": "held for its time",
            }
            return [AttemptUpdate(d, t.job.id, "held", **about) for d, t in self._running.items()]
        if self.told and not getattr(self, "released_ids", None) and not self._cancelled:
            return []
        return super().poll()


def test_outputs_are_in_their_place_before_the_verdict(bench):
    engine = bench.make_engine()
    order = []
    accept, append = engine.commit_outputs, bench.store.append

    def noting(events, **more):
        events = list(events)
        order.extend(event.kind for event in events if event.kind == kinds.JOB_ENDED)
        append(events, **more)

    engine.commit_outputs = lambda tickets: (order.append("accept"), accept(tickets))
    bench.store.append = noting
    bench.make_supervisor(engine).run()
    assert order == ["accept", kinds.JOB_ENDED]
    assert engine.committed_ids == ["0-1"]


def test_outputs_that_cannot_be_put_in_their_place_fail_the_job(bench):
    def full(tickets):
        raise OSError(28, "No space left on device", "/home/ada/out")

    engine = bench.make_engine()
    engine.commit_outputs = full
    job = bench.make_supervisor(engine).run().jobs["0"]
    assert (job.status, job.result.failure.kind) == (JobStatus.FAILED, "upload_failed")
    assert "No space left" in job.result.failure.detail


def test_a_hold_that_does_not_pass_ends_in_a_verdict(make_bench):
    bench = make_bench(attempts=1)
    job = bench.make_supervisor(bench.make_engine({"0": ["hang"]}, Held)).run().jobs["0"]
    assert bench.decided_ids("give_up") == ["0-1"]
    assert job.status is JobStatus.FAILED


def test_a_hold_that_may_pass_is_released(bench):
    class Passing(Held):
        action = "release"

    engine = bench.make_engine(None, Passing)
    job = bench.make_supervisor(engine).run().jobs["0"]
    assert engine.released_ids == ["0-1"]
    assert job.status is JobStatus.SUCCEEDED


def test_leaving_lets_the_attempts_go_on(bench):
    engine = bench.make_engine({"0": ["hang"]})
    supervisor = bench.make_supervisor(engine)
    engine._on_wait = supervisor.hand_over
    state = supervisor.run()
    assert state.jobs["0"].live_executions
    assert bench.decided_ids("cancel") == []
    assert [e.data["reason"] for e in bench.events(kinds.SUPERVISOR_ENDED)] == ["handed_over"]
    assert bench.make_supervisor(bench.make_engine()).run().jobs["0"].status is JobStatus.SUCCEEDED, (
        "another one goes on"
    )
    assert bench.decided_ids("submit") == ["0-1"]


def test_an_engine_that_gives_no_answer_is_asked_again(bench, monkeypatch):
    monkeypatch.setattr("packtrain.supervise.supervisor._RECOVER_RETRY_INTERVAL_S", 0.0)

    class Away(FakeEngine):
        asked = 0

        def recover(self, tickets):
            self.asked += 1
            if self.asked < 3:
                raise UnavailableError("nobody there")
            return super().recover(tickets)

    engine = bench.make_engine(None, Away)
    assert bench.make_supervisor(engine).run().jobs["0"].status is JobStatus.SUCCEEDED
    assert engine.asked == 3


def test_journals_that_are_far_away_are_read_when_an_attempt_is_gone(bench):
    class Far(FakeEngine):
        def __init__(self, *arguments, **more):
            super().__init__(*arguments, **more)
            self.capabilities = replace(self.capabilities, has_shared_folder=False)

    state = bench.make_supervisor(bench.make_engine(None, Far)).run()
    assert state.jobs["0"].status is JobStatus.SUCCEEDED
    assert bench.events(kinds.AGENT_STARTED)


def test_glimpses_are_kept_but_are_no_events(bench):
    class Glimpsed(FakeEngine):
        def poll(self):
            return [replace(s, progress={"attempt": s.attempt_id, "done": 5}) for s in super().poll()]

    bench.make_supervisor(bench.make_engine(None, Glimpsed)).run()
    assert bench.store.progress("run-1") == {"0-1": {"attempt": "0-1", "done": 5}}
    assert all("done" not in event.data for event in bench.events())
