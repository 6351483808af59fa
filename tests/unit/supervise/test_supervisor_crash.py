"""Supervisors that die at the worst moment, and two at once. The dying ones are real processes."""

from __future__ import annotations

import multiprocessing
import os
import time
from dataclasses import replace

import pytest

from packtrain.engines.api import AttemptUpdate
from packtrain.errors import LeaseLostError, UnavailableError
from packtrain.events import Event, kinds
from packtrain.state import JobStatus, fold
from packtrain.store import SqliteStore
from packtrain.supervise.lease import is_holder_alive, process_identity
from tests.support.fake_engine import HANG, FakeEngine

RUN = "run-1"


class DiesBeforeActing(FakeEngine):
    def submit(self, tickets):
        os._exit(9)


class DiesBeforeConfirming(FakeEngine):
    def submit(self, tickets):
        super().submit(tickets)
        os._exit(9)


class DiesWhileQueued(FakeEngine):
    """The engine took the attempt, but did not start it: nobody but it knew."""

    def submit(self, tickets):
        self._log_submits(tickets)
        os._exit(9)


class DiesBeforeCollecting(FakeEngine):
    """The attempt has ended, and the supervisor does not live to hear it."""

    def poll(self):
        seen = super().poll()
        if seen:
            os._exit(9)
        return seen


class DiesBeforeCancelling(FakeEngine):
    """A person asks for the cancellation as soon as the attempt runs."""

    def wait(self, timeout):
        store = SqliteStore(self._folder.root.parent / "store.db")
        asked = Event(RUN, "0", "cli-1", 1, kinds.USER_REQUESTED, 1.0, 1.0, {"action": "cancel", "reason": "r"})
        store.append([asked])
        store.close()

    def cancel(self, decisions):
        if decisions:
            os._exit(9)


def crash(bench, kind, script=None):
    """Run a supervisor in a process of its own until it dies."""

    def live_and_die():
        bench.make_supervisor(bench.make_engine(script, kind), SqliteStore(bench.store.path)).run()

    process = multiprocessing.get_context("fork").Process(target=live_and_die)
    process.start()
    process.join(30)
    assert process.exitcode == 9


@pytest.mark.parametrize("kind", [DiesBeforeActing, DiesBeforeConfirming, DiesWhileQueued, DiesBeforeCollecting])
@pytest.mark.parametrize("reopen", [False, True])
def test_a_crash_costs_no_attempt(make_bench, kind, reopen):
    bench = make_bench(jobs=2, attempts=1)
    crash(bench, kind)
    assert bench.decided_ids("submit") == ["0-1", "1-1"], "written before anything was done"
    engine = bench.make_engine()
    state = bench.make_supervisor(engine).run(reopen)
    assert {name: job.status for name, job in state.jobs.items()} == dict.fromkeys("01", JobStatus.SUCCEEDED)
    assert {name: len(job.executions) for name, job in state.jobs.items()} == {"0": 1, "1": 1}
    assert set(engine.read_submitted_ids()) == {"0-1", "1-1"}
    assert bench.decided_ids("submit") == ["0-1", "1-1"]


def test_a_crash_after_the_engine_has_it_submits_nothing_again(bench):
    crash(bench, DiesBeforeConfirming)
    engine = bench.make_engine()
    bench.make_supervisor(engine).run()
    assert engine.read_submitted_ids() == ["0-1"], "the engine was asked first, and knew it"


def test_an_attempt_that_ended_while_nobody_watched_is_believed(bench):
    crash(bench, DiesBeforeCollecting)
    assert bench.events(kinds.AGENT_ENDED) == [], "the dead supervisor did not collect it"
    state = bench.make_supervisor(bench.make_engine()).run()
    assert (state.jobs["0"].status, len(state.jobs["0"].executions)) == (JobStatus.SUCCEEDED, 1)


def test_crash_upon_crash(bench):
    for kind in (DiesBeforeActing, DiesWhileQueued, DiesBeforeConfirming):
        crash(bench, kind)
    state = bench.make_supervisor(bench.make_engine()).run()
    assert (state.jobs["0"].status, len(state.jobs["0"].executions)) == (JobStatus.SUCCEEDED, 1)
    assert [e.data["epoch"] for e in bench.events(kinds.SUPERVISOR_STARTED)] == [1, 2, 3, 4]


def test_a_cancellation_that_was_decided_but_not_done_is_done_later(bench):
    crash(bench, DiesBeforeCancelling, {"0": [HANG]})
    assert bench.decided_ids("cancel") == ["0-1"]
    state = bench.make_supervisor(bench.make_engine({"0": [HANG]})).run()
    assert (state.jobs["0"].status, bench.decided_ids("cancel")) == (JobStatus.CANCELLED, ["0-1"])


class DiesBeforeGivingUp(FakeEngine):
    """The pool ends a start for a reason that costs an attempt, and has it in its queue again."""

    def poll(self):
        about = {"seq": 7, "execution": 1, "failure_kind": "container_failed", "detail": "no container"}
        return [AttemptUpdate(d, t.job.id, "interrupted", **about) for d, t in self._running.items()]

    def cancel(self, decisions):
        if decisions:
            os._exit(9)


def test_what_was_given_up_but_not_ended_is_ended_later(make_bench):
    bench = make_bench(attempts=1)
    crash(bench, DiesBeforeGivingUp, {"0": [HANG]})
    assert bench.decided_ids("give_up") == ["0-1"]
    waits = iter(range(50))
    engine = bench.make_engine({"0": [HANG]}, on_wait=lambda: next(waits))
    state = bench.make_supervisor(engine).run()
    assert state.jobs["0"].status is JobStatus.FAILED
    assert bench.decided_ids("give_up") == ["0-1"], "decided once"


class Roomy(FakeEngine):
    """A machine with more memory than is planned; remembers what it was asked for."""

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.capabilities = replace(self.capabilities, memory_mb=1 << 20)
        self.asked = {}

    def submit(self, tickets):
        self.asked.update({ticket.attempt_id: ticket for ticket in tickets})
        return super().submit(tickets)


class DiesBeforeTheSecondAttempt(Roomy):
    def submit(self, tickets):
        if any(ticket.attempt_id.endswith("-2") for ticket in tickets):
            os._exit(9)
        return super().submit(tickets)


def test_what_was_decided_otherwise_than_planned_is_asked_for_alike_after_a_crash(bench):
    script = {"0": ["out_of_memory", "succeed"]}
    crash(bench, DiesBeforeTheSecondAttempt, script)
    engine = bench.make_engine(script, Roomy)
    state = bench.make_supervisor(engine).run()
    (ticket,) = engine.asked.values()
    assert (ticket.attempt_id, ticket.overrides.memory_factor) == ("0-2", 2.0)
    assert ticket.job.resources.memory_mb == 2 * bench.plan.jobs[0].resources.memory_mb
    assert state.jobs["0"].executions[1].overrides == {"memory_factor": 2.0}
    assert state.jobs["0"].status is JobStatus.SUCCEEDED


def test_a_second_supervisor_is_refused_while_the_first_lives(bench):
    first = bench.make_supervisor(bench.make_engine())
    first.acquire_lease()
    engine = bench.make_engine()
    with pytest.raises(UnavailableError, match=f"process {os.getpid()}"):
        bench.make_supervisor(engine).run()
    assert engine.read_submitted_ids() == []
    assert first.run().jobs["0"].status is JobStatus.SUCCEEDED


def test_one_whose_lease_was_taken_over_stops_without_acting(make_bench):
    bench = make_bench(jobs=1)
    old_engine = bench.make_engine()
    old = bench.make_supervisor(old_engine)
    old.acquire_lease()
    later = SqliteStore(bench.store.path, clock=lambda: time.time() + 3600)
    new = bench.make_supervisor(bench.make_engine(), later)
    new.acquire_lease()
    with pytest.raises(LeaseLostError):
        old.run()
    assert old_engine.read_submitted_ids() == []
    assert bench.events(kinds.DECISION_MADE) == []
    assert bench.events(kinds.SUPERVISOR_ENDED) == [], "it does not speak for the run any more"
    assert new.run().jobs["0"].status is JobStatus.SUCCEEDED
    later.close()


def test_one_that_loses_its_lease_in_the_middle_decides_nothing_more(bench):
    later = SqliteStore(bench.store.path, clock=lambda: time.time() + 3600)
    taken = []

    def between():
        if not taken:
            taken.append(later.acquire_lease(RUN, "other", "host", 1, 30.0, lambda lease: True))
            bench.request_cancel("0")

    engine = bench.make_engine({"0": [HANG]}, on_wait=between)
    with pytest.raises(LeaseLostError):
        bench.make_supervisor(engine).run()
    assert bench.decided_ids("cancel") == []
    assert engine._cancelled == set()
    later.close()


def test_the_store_tells_the_same_as_the_supervisor_knew(make_bench):
    bench = make_bench(jobs=3)
    state = bench.make_supervisor(bench.make_engine({"1": ["agent_lost", "step_failed"]})).run()
    again = fold(RUN, bench.events())
    assert {n: (j.status, j.executions) for n, j in again.jobs.items()} == {
        n: (j.status, j.executions) for n, j in state.jobs.items()
    }


def test_a_process_is_known_for_ever(bench):
    lease = bench.store.acquire_lease(RUN, process_identity(os.getpid()), os.uname().nodename, os.getpid(), 30, bool)
    assert is_holder_alive(lease)
    assert process_identity(2**22 + 1) == ""
    namespace = process_identity(os.getpid()).rpartition("/")[2]
    imposter = bench.store.acquire_lease("run-2", f"1/0/boot/{namespace}", os.uname().nodename, os.getpid(), 30, bool)
    assert not is_holder_alive(imposter), "the same process id, but another process"
    hidden = bench.store.acquire_lease("run-3", "1/0/boot/pid:[1]", os.uname().nodename, os.getpid(), 30, bool)
    assert is_holder_alive(hidden), "a process that cannot be seen from here is believed until its lease runs out"
