"""From log records to sightings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packtrain.engines.htcondor.job_tracker import JobTracker
from packtrain.engines.htcondor.log_reader import parse_events
from packtrain.events import Event, kinds
from tests.support.condor_logs import UserLogBuilder

ITEMS = {"0-1": [("0", "0-1"), ("1", "1-1"), ("2", "2-1")]}


def tracked(log: UserLogBuilder) -> tuple[JobTracker, list]:
    tracker = JobTracker(lambda first: ITEMS.get(first, ()))
    return tracker, [sighting for record in parse_events(log.data) for sighting in tracker.apply(record)]


def told(log: UserLogBuilder) -> list[tuple[str, str]]:
    return [(sighting.decision, sighting.status) for sighting in tracked(log)[1]]


def word(emitter: str = "agent-1", kind: str = kinds.AGENT_STARTED, job: str = "0") -> Event:
    return Event("run-1", job, emitter, 1, kind, 1.0, 1.0, {"attempt": "0-1"})


def test_the_life_of_an_attempt():
    log = UserLogBuilder().submit(0, "0", "0-1").execute(0).agent_event(0, word()).terminate(0, 0)
    tracker, seen = tracked(log)
    placed, spoke, gone = seen
    assert (placed.status, placed.start, placed.site, placed.host) == ("placed", 1, "CHTC-Spark-CE1", "worker7")
    assert (spoke.status, spoke.events) == ("running", (word(),))
    assert (gone.status, gone.exit_code, gone.native) == ("gone", 0, "12.0")
    assert tracker.by_attempt_id["0-1"].status == "gone"


def test_items_that_are_not_made_yet_are_known():
    tracker, _ = tracked(UserLogBuilder().cluster_submit("0-1").submit(0, "0", "0-1"))
    assert [(d, one.is_materialized, one.status) for d, one in tracker.by_attempt_id.items()] == [
        ("0-1", True, "queued"),
        ("1-1", False, "queued"),
        ("2-1", False, "queued"),
    ]


def test_items_of_a_removed_cluster_are_gone_with_it():
    log = UserLogBuilder().cluster_submit("0-1").submit(0, "0", "0-1").execute(0).remove(0).cluster_remove(1)
    assert told(log)[1:] == [("0-1", "gone"), ("1-1", "gone"), ("2-1", "gone")]


def test_a_cluster_that_was_worked_off_says_nothing_new():
    log = UserLogBuilder().cluster_submit("0-1")
    for proc, (job, decision) in enumerate(ITEMS["0-1"]):
        log.submit(proc, job, decision).execute(proc).terminate(proc, 0)
    before = told(log)
    assert told(log.cluster_remove(3)) == before


def test_an_evicted_one_is_started_again():
    log = UserLogBuilder().submit(0, "0", "0-1").execute(0).agent_event(0, word("agent-1")).evict(0)
    log.execute(0, site="PDX-Coeus-CE1").agent_event(0, word("agent-2")).terminate(0, 0)
    stops = [s for s in tracked(log)[1] if s.status == "stopped"]
    starts = [s for s in tracked(log)[1] if s.status == "placed"]
    assert [(s.start, s.kind, s.emitters) for s in stops] == [(1, "evicted", ("agent-1",))]
    assert [(s.start, s.site) for s in starts] == [(1, "CHTC-Spark-CE1"), (2, "PDX-Coeus-CE1")]


def test_an_evicted_one_whose_outputs_are_home_is_over():
    log = (
        UserLogBuilder()
        .submit(0, "0", "0-1")
        .execute(0)
        .agent_event(0, word(kind=kinds.AGENT_ENDED))
        .evict(0)
        .execute(0)
        .terminate(0, 3)
    )
    tracker = JobTracker(lambda first: (), lambda job, decision: (job, decision) == ("0", "0-1"))
    _, gone = (sighting for record in parse_events(log.data) for sighting in tracker.apply(record))
    assert (gone.status, gone.exit_code, gone.failure_kind) == ("gone", 0, "")
    assert [event.kind for event in gone.agent_events] == [kinds.AGENT_ENDED]
    assert tracker.redundant_jobs == ["12.0"], "the pool would do it again"


def test_each_thing_that_happened_has_its_own_number_whoever_reads_it():
    log = UserLogBuilder().submit(0, "0", "0-1").execute(0).evict(0).execute(0).hold(0, "why", 1).release(0)
    first, again = tracked(log)[1], tracked(log)[1]
    assert first == again
    assert len({s.serial for s in first}) == len(first)


def test_a_lost_machine_ends_a_start():
    (_, stopped) = tracked(UserLogBuilder().submit(0, "0", "0-1").execute(0).reconnect_failed(0))[1]
    assert stopped.status == "stopped"
    assert "not heard of again" in stopped.detail


def test_what_the_machine_said_is_told_with_the_end_of_the_start():
    log = UserLogBuilder().submit(0, "0", "0-1").execute(0).error_event(0, "Singularity test failed").evict(0)
    assert tracked(log)[1][-1].detail == "the pool took the machine back (Singularity test failed)"


def test_a_hold_while_it_ran_ends_that_start():
    log = (
        UserLogBuilder()
        .submit(0, "0", "0-1")
        .execute(0)
        .agent_event(0, word())
        .hold(0, "The job exceeded allowed time", 47)
    )
    held = tracked(log)[1][-1]
    assert (held.status, held.start, held.emitters) == ("held", 1, ("agent-1",))
    assert (held.kind, held.action, held.code) == ("pool_time_limit", "give_up", (47, 0))
    assert held.detail == "the pool holds it: The job exceeded allowed time"


def test_a_hold_before_any_start_ends_none():
    held = tracked(UserLogBuilder().submit(0, "0", "0-1").hold(0, "Transfer input files failure", 13))[1][-1]
    assert (held.start, held.kind, held.action) == (0, "transfer_failed", "release")


def test_held_and_released():
    log = UserLogBuilder().submit(0, "0", "0-1").hold(0, "via condor_hold", 1)
    assert tracked(log)[0].by_attempt_id["0-1"].status == "held"
    assert tracked(log.release(0))[0].by_attempt_id["0-1"].status == "queued"
    assert told(log) == [("0-1", "held"), ("0-1", "released")]


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
def test_every_hold_has_a_meaning(code, subcode, kind, action):
    held = tracked(UserLogBuilder().submit(0, "0", "0-1").hold(0, "why", code, subcode))[1][-1]
    assert (held.kind, held.action) == (kind, action)


def test_a_missing_file_of_the_access_point_is_not_waited_for():
    reason = "Transfer input files failure. Details: SHADOW at ap failed to send file: No such file or directory"
    held = tracked(UserLogBuilder().submit(0, "0", "0-1").hold(0, reason, 13, 2))[1][-1]
    assert (held.kind, held.action) == ("submit_rejected", "give_up")


def test_removed_by_a_person():
    gone = tracked(UserLogBuilder().submit(0, "0", "0-1").remove(0))[1][-1]
    assert (gone.status, gone.kind, gone.detail) == ("gone", "cancelled", "via condor_rm (by user games)")


def test_killed_by_a_signal():
    gone = tracked(UserLogBuilder().submit(0, "0", "0-1").execute(0).terminate_by_signal(0, 9))[1][-1]
    assert (gone.exit_code, gone.detail) == (-9, "the agent was killed by signal 9")


def test_words_of_others_are_not_believed():
    log = UserLogBuilder().submit(0, "0", "0-1").execute(0).agent_event(0, word(job="7"))
    log._add_event(8, 0, "packtrain {not json}")._add_event(8, 0, "hello")
    assert [s.status for s in tracked(log)[1]] == ["placed"]


def test_jobs_that_are_not_ours_are_passed_over():
    assert tracked(UserLogBuilder().execute(5).terminate(5, 0))[1] == []


def moves(log: UserLogBuilder) -> list[tuple[str, str, int]]:
    return [(s.direction, s.what, s.start) for s in tracked(log)[1] if s.status == "transfer"]


def test_files_that_the_pool_moves_are_told_with_the_start_that_they_are_for():
    log = UserLogBuilder().submit(0, "0", "0-1").set_second(30).transfer(0, "in", "queued").transfer(0, "in", "started")
    log.execute(0).set_second(31).transfer(0, "in", "finished").transfer(0, "out", "started").transfer(
        0, "out", "finished"
    )
    log.evict(0).transfer(0, "in", "started").transfer(0, "in", "finished").execute(0).transfer(0, "out", "started")
    assert moves(log.terminate(0, 0)) == [
        ("in", "queued", 1),
        ("in", "started", 1),
        ("in", "finished", 1),
        ("out", "started", 1),
        ("out", "finished", 1),
        ("in", "started", 2),
        ("in", "finished", 2),
        ("out", "started", 2),
    ]
    began, ended = (s for s in tracked(log)[1] if (s.direction, s.start) == ("in", 1) and s.what != "queued")
    assert ended.when - began.when == 1.0, "the log's own time"


def test_after_a_killed_shadow_inputs_are_for_the_next_start():
    log = UserLogBuilder().submit(0, "0", "0-1").transfer(0, "in", "started").execute(0)
    log.transfer(0, "in", "started").transfer(0, "in", "finished").execute(0)
    assert moves(log) == [("in", "started", 1), ("in", "started", 2), ("in", "finished", 2)]


def test_taken_back_while_its_inputs_came_no_start_is_lost():
    log = UserLogBuilder().submit(0, "0", "0-1").transfer(0, "in", "started").evict(0)
    log.transfer(0, "in", "started").execute(0)
    _, stopped, again, placed = tracked(log)[1]
    assert (stopped.status, stopped.start, stopped.kind) == ("stopped", 0, "evicted")
    assert "before it started" in stopped.detail
    assert (again.start, placed.start) == (1, 1)


@pytest.mark.parametrize("text", ["Started transferring", "transfer of output files", ""])
def test_an_unknown_word_about_files_is_passed_over(text):
    log = UserLogBuilder().submit(0, "0", "0-1")._add_event(40, 0, text)
    assert tracked(log)[1] == []


LIFE = st.sampled_from(["execute", "evict", "lost_contact", "release", "end0", "remove", "hold", "in", "out"])


@given(st.lists(LIFE, max_size=25))
def test_whatever_happens_an_attempt_ends_once_and_starts_are_numbered(steps):
    log = UserLogBuilder().submit(0, "0", "0-1")
    for step in steps:
        if step == "end0":
            log.terminate(0, 0)
        elif step == "hold":
            log.hold(0, "why", 13)
        elif step in ("in", "out"):
            log.transfer(0, step, "started").transfer(0, step, "finished")
        else:
            getattr(log, step)(0)
    seen = tracked(log)[1]
    assert [s.start for s in seen if s.status == "placed"] == list(
        range(1, sum(s.status == "placed" for s in seen) + 1)
    )
    assert sum(s.status == "gone" for s in seen) <= 1
    assert not any(s.status == "gone" for s in seen[:-1]), "nothing is told after its end"
    starts = [s.start for s in seen if s.status in ("placed", "transfer")]
    assert starts == sorted(starts), "files belong to a start that was not over"
    ended = [s.start for s in seen if (s.status == "stopped" and s.start) or (s.status == "held" and s.start)]
    assert len(ended) == len(set(ended)), "a start ends once"
