"""From events of the HTCondor log to attempt updates."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packtrain.engines.htcondor.tracking import JobTracker
from packtrain.engines.updates import (
    AgentEventsReceived,
    ExecutionInterrupted,
    ExecutionStarted,
    Gone,
    Held,
    Queued,
    Released,
    TransferChanged,
)
from packtrain.events import Event, kinds
from tests.support.condor_logs import UserLogBuilder, parse_events

ITEMS = {"0-1": [("0", "0-1"), ("1", "1-1"), ("2", "2-1")]}


def track(log: UserLogBuilder) -> tuple[JobTracker, list]:
    tracker = JobTracker(lambda first_attempt_id: ITEMS.get(first_attempt_id, ()))
    return tracker, [update for event in parse_events(log.data) for update in tracker.apply(event)]


def updates_of(log: UserLogBuilder) -> list:
    return track(log)[1]


def types(log: UserLogBuilder) -> list[tuple[str, type]]:
    return [(update.attempt_id, type(update)) for update in updates_of(log)]


def agent_event(emitter: str = "agent-1", kind: str = kinds.AGENT_STARTED, job: str = "0") -> Event:
    return Event("run-1", job, emitter, 1, kind, 1.0, 1.0, {"attempt": "0-1"})


def test_successful_attempt():
    log = UserLogBuilder().submit(0, "0", "0-1").execute(0).agent_event(0, agent_event()).terminate(0, 0)
    tracker, updates = track(log)
    started, received, gone = updates
    assert isinstance(started, ExecutionStarted) and isinstance(gone, Gone)
    assert (started.execution, started.site, started.host) == (1, "CHTC-Spark-CE1", "worker7")
    assert received == AgentEventsReceived("0-1", "0", events=(agent_event(),))
    assert (gone.exit_code, gone.native_id) == (0, "12.0")
    assert tracker.by_attempt_id["0-1"].is_finished


def test_unmaterialized_items():
    tracker, _ = track(UserLogBuilder().cluster_submit("0-1").submit(0, "0", "0-1"))
    assert [(id_, job.is_materialized, job.all_updates()) for id_, job in tracker.by_attempt_id.items()] == [
        ("0-1", True, [Queued("0-1", "0")]),
        ("1-1", False, [Queued("1-1", "1")]),
        ("2-1", False, [Queued("2-1", "2")]),
    ]


def test_removed_cluster():
    log = UserLogBuilder().cluster_submit("0-1").submit(0, "0", "0-1").execute(0).remove(0).cluster_remove(1)
    assert types(log)[1:] == [("0-1", Gone), ("1-1", Gone), ("2-1", Gone)]


def test_finished_cluster_gives_no_update():
    log = UserLogBuilder().cluster_submit("0-1")
    for proc, (job_id, attempt_id) in enumerate(ITEMS["0-1"]):
        log.submit(proc, job_id, attempt_id).execute(proc).terminate(proc, 0)
    before = types(log)
    assert types(log.cluster_remove(3)) == before


def test_eviction_and_restart():
    log = UserLogBuilder().submit(0, "0", "0-1").execute(0).agent_event(0, agent_event("agent-1")).evict(0)
    log.execute(0, site="PDX-Coeus-CE1").agent_event(0, agent_event("agent-2")).terminate(0, 0)
    interruptions = [update for update in updates_of(log) if isinstance(update, ExecutionInterrupted)]
    starts = [update for update in updates_of(log) if isinstance(update, ExecutionStarted)]
    assert [(u.execution, u.failure_kind, u.emitters) for u in interruptions] == [(1, "evicted", ("agent-1",))]
    assert [(u.execution, u.site) for u in starts] == [(1, "CHTC-Spark-CE1"), (2, "PDX-Coeus-CE1")]


def test_evicted_with_all_outputs_is_gone():
    log = (
        UserLogBuilder()
        .submit(0, "0", "0-1")
        .execute(0)
        .agent_event(0, agent_event(kind=kinds.AGENT_ENDED))
        .evict(0)
        .execute(0)
        .terminate(0, 3)
    )
    tracker = JobTracker(lambda first_attempt_id: (), lambda job_id, attempt_id: (job_id, attempt_id) == ("0", "0-1"))
    _, received, gone = (update for event in parse_events(log.data) for update in tracker.apply(event))
    assert isinstance(gone, Gone)
    assert (gone.exit_code, gone.failure_kind) == (0, "")
    assert [event.kind for event in received.events] == [kinds.AGENT_ENDED]
    assert tracker.redundant_jobs == ["12.0"], "the pool would run it again"


def test_seq_is_unique_and_reproducible():
    log = UserLogBuilder().submit(0, "0", "0-1").execute(0).evict(0).execute(0).hold(0, "why", 1).release(0)
    first, again = updates_of(log), updates_of(log)
    assert first == again
    assert len({update.seq for update in first}) == len(first)


def test_lost_node_ends_execution():
    (_, interrupted) = updates_of(UserLogBuilder().submit(0, "0", "0-1").execute(0).reconnect_failed(0))
    assert isinstance(interrupted, ExecutionInterrupted)
    assert "lost contact with the node" in interrupted.detail


def test_node_error_in_detail():
    log = UserLogBuilder().submit(0, "0", "0-1").execute(0).error_event(0, "Singularity test failed").evict(0)
    assert updates_of(log)[-1].detail == "the pool evicted it (Singularity test failed)"


def test_hold_ends_execution():
    log = (
        UserLogBuilder()
        .submit(0, "0", "0-1")
        .execute(0)
        .agent_event(0, agent_event())
        .hold(0, "The job exceeded allowed time", 47)
    )
    held = updates_of(log)[-1]
    assert isinstance(held, Held)
    assert (held.execution, held.emitters) == (1, ("agent-1",))
    assert (held.failure_kind, held.action, held.code, held.subcode) == ("pool_time_limit", "give_up", 47, 0)
    assert held.detail == "the pool holds it: The job exceeded allowed time"


def test_hold_before_first_execution():
    held = updates_of(UserLogBuilder().submit(0, "0", "0-1").hold(0, "Transfer input files failure", 13))[-1]
    assert (held.execution, held.failure_kind, held.action) == (0, "transfer_failed", "release")


def test_held_and_released():
    log = UserLogBuilder().submit(0, "0", "0-1").hold(0, "via condor_hold", 1)
    held = track(log)[0].by_attempt_id["0-1"]
    assert held.is_held and isinstance(held.all_updates()[-1], Held)
    released = track(log.release(0))[0].by_attempt_id["0-1"]
    assert [type(update) for update in released.all_updates()] == [Held, Released, Queued]


@pytest.mark.parametrize(
    ("code", "subcode", "kind", "action"),
    [
        (1, 0, "held", "wait"),
        (3, 5501, "restart_loop", "give_up"),
        (3, 0, "policy_hold", "give_up"),
        (12, 2, "transfer_failed", "release"),
        (32, 0, "transfer_too_large", "give_up"),
        (34, 102, "out_of_memory", "give_up"),
        (46, 0, "pool_time_limit", "give_up"),
        (4711, 0, "policy_hold", "give_up"),
    ],
)
def test_hold_codes(code, subcode, kind, action):
    held = updates_of(UserLogBuilder().submit(0, "0", "0-1").hold(0, "why", code, subcode))[-1]
    assert (held.failure_kind, held.action) == (kind, action)


def test_missing_file_of_access_point():
    reason = "Transfer input files failure. Details: SHADOW at ap failed to send file: No such file or directory"
    held = updates_of(UserLogBuilder().submit(0, "0", "0-1").hold(0, reason, 13, 2))[-1]
    assert (held.failure_kind, held.action) == ("submit_rejected", "give_up")


def test_removed_by_user():
    gone = updates_of(UserLogBuilder().submit(0, "0", "0-1").remove(0))[-1]
    assert isinstance(gone, Gone)
    assert (gone.failure_kind, gone.detail) == ("cancelled", "via condor_rm (by user games)")


def test_killed_by_signal():
    gone = updates_of(UserLogBuilder().submit(0, "0", "0-1").execute(0).terminate_by_signal(0, 9))[-1]
    assert (gone.exit_code, gone.detail) == (-9, "the agent was killed by signal 9")


def test_events_of_other_jobs_are_ignored():
    log = UserLogBuilder().submit(0, "0", "0-1").execute(0).agent_event(0, agent_event(job="7"))
    log.add_event(8, 0, "packtrain {not json}").add_event(8, 0, "hello")
    assert types(log) == [("0-1", ExecutionStarted)]


def test_unknown_jobs_are_ignored():
    assert updates_of(UserLogBuilder().execute(5).terminate(5, 0)) == []


def transfers(log: UserLogBuilder) -> list[tuple[str, str, int]]:
    found = [update for update in updates_of(log) if isinstance(update, TransferChanged)]
    return [(update.direction, update.state, update.execution) for update in found]


def test_transfers_have_their_execution():
    log = UserLogBuilder().submit(0, "0", "0-1").set_second(30).transfer(0, "in", "queued").transfer(0, "in", "started")
    log.execute(0).set_second(31).transfer(0, "in", "finished").transfer(0, "out", "started").transfer(
        0, "out", "finished"
    )
    log.evict(0).transfer(0, "in", "started").transfer(0, "in", "finished").execute(0).transfer(0, "out", "started")
    assert transfers(log.terminate(0, 0)) == [
        ("in", "queued", 1),
        ("in", "started", 1),
        ("in", "finished", 1),
        ("out", "started", 1),
        ("out", "finished", 1),
        ("in", "started", 2),
        ("in", "finished", 2),
        ("out", "started", 2),
    ]
    _, started, finished, *_ = (update for update in updates_of(log) if isinstance(update, TransferChanged))
    assert finished.occurred_at - started.occurred_at == 1.0, "the time of the log"


def test_inputs_after_killed_shadow():
    log = UserLogBuilder().submit(0, "0", "0-1").transfer(0, "in", "started").execute(0)
    log.transfer(0, "in", "started").transfer(0, "in", "finished").execute(0)
    assert transfers(log) == [("in", "started", 1), ("in", "started", 2), ("in", "finished", 2)]


def test_interrupted_during_input_transfer():
    log = UserLogBuilder().submit(0, "0", "0-1").transfer(0, "in", "started").evict(0)
    log.transfer(0, "in", "started").execute(0)
    _, interrupted, transfer, started = updates_of(log)
    assert isinstance(interrupted, ExecutionInterrupted)
    assert (interrupted.execution, interrupted.failure_kind) == (0, "evicted")
    assert "before it started" in interrupted.detail
    assert (transfer.execution, started.execution) == (1, 1)


@pytest.mark.parametrize("text", ["Started transferring", "transfer of output files", ""])
def test_unknown_transfer_is_ignored(text):
    log = UserLogBuilder().submit(0, "0", "0-1").add_event(40, 0, text)
    assert updates_of(log) == []


STEPS = st.sampled_from(["execute", "evict", "reconnect_failed", "release", "terminate", "remove", "hold", "in", "out"])


@given(st.lists(STEPS, max_size=25))
def test_any_sequence_of_events(steps):
    log = UserLogBuilder().submit(0, "0", "0-1")
    for step in steps:
        if step == "terminate":
            log.terminate(0, 0)
        elif step == "hold":
            log.hold(0, "why", 13)
        elif step in ("in", "out"):
            log.transfer(0, step, "started").transfer(0, step, "finished")
        else:
            getattr(log, step)(0)
    updates = updates_of(log)
    started = [update.execution for update in updates if isinstance(update, ExecutionStarted)]
    assert started == list(range(1, len(started) + 1)), "executions are numbered"
    assert not any(isinstance(update, Gone) for update in updates[:-1]), "nothing is reported after the end"
    executions = [update.execution for update in updates if isinstance(update, (ExecutionStarted, TransferChanged))]
    assert executions == sorted(executions), "a transfer belongs to an execution that has not ended"
    ends = [update for update in updates if isinstance(update, (ExecutionInterrupted, Held))]
    ended = [update.execution for update in ends if update.execution]
    assert len(ended) == len(set(ended)), "an execution ends once"
