"""Supervisors that die at the worst moment, and two supervisors at once. Those that die are real processes."""

from __future__ import annotations

import multiprocessing
import os
import time
from dataclasses import replace

import pytest

from packtrain.engines.updates import ExecutionInterrupted
from packtrain.errors import LeaseLostError, UnavailableError
from packtrain.events import Event, kinds
from packtrain.state import JobStatus, fold
from packtrain.store import SqliteStore
from packtrain.supervise.lease import is_holder_alive, process_identity
from tests.support.fake_engine import HANG, FakeEngine

RUN = "run-1"


class DiesBeforeActing(FakeEngine):
    def submit(self, requests):
        os._exit(9)


class DiesBeforeConfirming(FakeEngine):
    def submit(self, requests):
        super().submit(requests)
        os._exit(9)


class DiesWhileQueued(FakeEngine):
    """The engine accepted the attempt but has not started it."""

    def submit(self, requests):
        self._log_submits(requests)
        os._exit(9)


class DiesBeforeCollecting(FakeEngine):
    """The supervisor dies after the attempt has ended and before it collects the event."""

    def poll(self):
        updates = super().poll()
        if updates:
            os._exit(9)
        return updates


class DiesBeforeCancelling(FakeEngine):
    """A user requests the cancellation as soon as the attempt runs."""

    def wait(self, timeout_s):
        store = SqliteStore(self._folder.root.parent / "store.db")
        request = Event(RUN, "0", "cli-1", 1, kinds.USER_REQUESTED, 1.0, 1.0, {"action": "cancel", "reason": "r"})
        store.append([request])
        store.close()

    def cancel(self, attempt_ids):
        if attempt_ids:
            os._exit(9)


def crash(harness, engine_class, script=None):
    """Run a supervisor in another process until it dies."""

    def supervise():
        harness.make_supervisor(harness.make_engine(script, engine_class), SqliteStore(harness.store.path)).run()

    process = multiprocessing.get_context("fork").Process(target=supervise)
    process.start()
    process.join(30)
    assert process.exitcode == 9


@pytest.mark.parametrize(
    "engine_class", [DiesBeforeActing, DiesBeforeConfirming, DiesWhileQueued, DiesBeforeCollecting]
)
@pytest.mark.parametrize("reopen", [False, True])
def test_crash_costs_no_attempt(make_harness, engine_class, reopen):
    harness = make_harness(jobs=2, attempts=1)
    crash(harness, engine_class)
    assert harness.decided_ids("submit") == ["0-1", "1-1"], "stored before the engine was called"
    engine = harness.make_engine()
    state = harness.make_supervisor(engine).run(reopen)
    assert {name: job.status for name, job in state.jobs.items()} == dict.fromkeys("01", JobStatus.SUCCEEDED)
    assert {name: len(job.executions) for name, job in state.jobs.items()} == {"0": 1, "1": 1}
    assert set(engine.read_submitted_ids()) == {"0-1", "1-1"}
    assert harness.decided_ids("submit") == ["0-1", "1-1"]


def test_known_attempt_is_not_submitted_again(harness):
    crash(harness, DiesBeforeConfirming)
    engine = harness.make_engine()
    harness.make_supervisor(engine).run()
    assert engine.read_submitted_ids() == ["0-1"], "the engine reported the attempt"


def test_attempt_that_ended_without_supervisor(harness):
    crash(harness, DiesBeforeCollecting)
    assert harness.events(kinds.AGENT_ENDED) == [], "the dead supervisor did not collect it"
    state = harness.make_supervisor(harness.make_engine()).run()
    assert (state.jobs["0"].status, len(state.jobs["0"].executions)) == (JobStatus.SUCCEEDED, 1)


def test_repeated_crashes(harness):
    for engine_class in (DiesBeforeActing, DiesWhileQueued, DiesBeforeConfirming):
        crash(harness, engine_class)
    state = harness.make_supervisor(harness.make_engine()).run()
    assert (state.jobs["0"].status, len(state.jobs["0"].executions)) == (JobStatus.SUCCEEDED, 1)
    assert [e.data["epoch"] for e in harness.events(kinds.SUPERVISOR_STARTED)] == [1, 2, 3, 4]


def test_cancellation_is_repeated_after_crash(harness):
    crash(harness, DiesBeforeCancelling, {"0": [HANG]})
    assert harness.decided_ids("cancel") == ["0-1"]
    state = harness.make_supervisor(harness.make_engine({"0": [HANG]})).run()
    assert (state.jobs["0"].status, harness.decided_ids("cancel")) == (JobStatus.CANCELLED, ["0-1"])


class DiesBeforeGivingUp(FakeEngine):
    """The pool interrupts an execution for a reason that counts, and queues the attempt again."""

    def poll(self):
        data = {"seq": 7, "execution": 1, "failure_kind": "container_failed", "detail": "no container"}
        return [ExecutionInterrupted(d, t.job.id, **data) for d, t in self._running.items()]

    def cancel(self, attempt_ids):
        if attempt_ids:
            os._exit(9)


def test_give_up_is_repeated_after_crash(make_harness):
    harness = make_harness(attempts=1)
    crash(harness, DiesBeforeGivingUp, {"0": [HANG]})
    assert harness.decided_ids("give_up") == ["0-1"]
    waits = iter(range(50))
    engine = harness.make_engine({"0": [HANG]}, on_wait=lambda: next(waits))
    state = harness.make_supervisor(engine).run()
    assert state.jobs["0"].status is JobStatus.FAILED
    assert harness.decided_ids("give_up") == ["0-1"], "decided once"


class LargeEngine(FakeEngine):
    """An engine with more memory than planned, which remembers its requests."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.capabilities = replace(self.capabilities, memory_mb=1 << 20)
        self.requested = {}

    def submit(self, requests):
        self.requested.update({request.attempt_id: request for request in requests})
        return super().submit(requests)


class DiesBeforeSecondAttempt(LargeEngine):
    def submit(self, requests):
        if any(request.attempt_id.endswith("-2") for request in requests):
            os._exit(9)
        return super().submit(requests)


def test_overrides_are_kept_after_crash(harness):
    script = {"0": ["out_of_memory", "succeed"]}
    crash(harness, DiesBeforeSecondAttempt, script)
    engine = harness.make_engine(script, LargeEngine)
    state = harness.make_supervisor(engine).run()
    (request,) = engine.requested.values()
    assert (request.attempt_id, request.overrides.memory_factor) == ("0-2", 2.0)
    assert request.job.resources.memory_mb == 2 * harness.plan.jobs[0].resources.memory_mb
    assert state.jobs["0"].executions[1].overrides == {"memory_factor": 2.0}
    assert state.jobs["0"].status is JobStatus.SUCCEEDED


def test_second_supervisor_is_rejected(harness):
    first = harness.make_supervisor(harness.make_engine())
    first.acquire_lease()
    engine = harness.make_engine()
    with pytest.raises(UnavailableError, match=f"process {os.getpid()}"):
        harness.make_supervisor(engine).run()
    assert engine.read_submitted_ids() == []
    assert first.run().jobs["0"].status is JobStatus.SUCCEEDED


def test_supervisor_with_lost_lease_does_not_act(make_harness):
    harness = make_harness(jobs=1)
    old_engine = harness.make_engine()
    old = harness.make_supervisor(old_engine)
    old.acquire_lease()
    later = SqliteStore(harness.store.path, clock=lambda: time.time() + 3600)
    new = harness.make_supervisor(harness.make_engine(), later)
    new.acquire_lease()
    with pytest.raises(LeaseLostError):
        old.run()
    assert old_engine.read_submitted_ids() == []
    assert harness.events(kinds.DECISION_MADE) == []
    assert harness.events(kinds.SUPERVISOR_ENDED) == [], "it may no longer emit events for the run"
    assert new.run().jobs["0"].status is JobStatus.SUCCEEDED
    later.close()


def test_lease_lost_while_running(harness):
    later = SqliteStore(harness.store.path, clock=lambda: time.time() + 3600)
    taken = []

    def take_lease():
        if not taken:
            taken.append(later.acquire_lease(RUN, "other", "host", 1, 30.0, lambda lease: True))
            harness.request_cancel("0")

    engine = harness.make_engine({"0": [HANG]}, on_wait=take_lease)
    with pytest.raises(LeaseLostError):
        harness.make_supervisor(engine).run()
    assert harness.decided_ids("cancel") == []
    assert engine._cancelled == set()
    later.close()


def test_store_gives_same_state(make_harness):
    harness = make_harness(jobs=3)
    state = harness.make_supervisor(harness.make_engine({"1": ["agent_lost", "step_failed"]})).run()
    folded = fold(RUN, harness.events())
    assert {n: (j.status, j.executions) for n, j in folded.jobs.items()} == {
        n: (j.status, j.executions) for n, j in state.jobs.items()
    }


def test_process_identity(harness):
    lease = harness.store.acquire_lease(RUN, process_identity(os.getpid()), os.uname().nodename, os.getpid(), 30, bool)
    assert is_holder_alive(lease)
    assert process_identity(2**22 + 1) == ""
    namespace = process_identity(os.getpid()).rpartition("/")[2]
    other_process = harness.store.acquire_lease(
        "run-2", f"1/0/boot/{namespace}", os.uname().nodename, os.getpid(), 30, bool
    )
    assert not is_holder_alive(other_process), "the same process id, but another process"
    other_namespace = harness.store.acquire_lease(
        "run-3", "1/0/boot/pid:[1]", os.uname().nodename, os.getpid(), 30, bool
    )
    assert is_holder_alive(other_namespace), "a process that cannot be checked counts as alive"
