"""What each real log shows: tests/data/condor-logs/README.md says it row by row."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from packtrain.cli.ui.report_summary import print_report_summary
from packtrain.events import Event, kinds
from packtrain.report.analysis.statistics import compute_stats
from packtrain.report.analysis.time_accounting import TimeUse
from packtrain.report.build import build_report
from packtrain.report.history import FailureCategory, JobHistory, Outcome, Phase
from packtrain.report.readers.files import read_history
from tests.support.paths import TESTS_DIR

DATA = TESTS_DIR / "data"
Q, HELD, START, IN, RUN = Phase.QUEUED, Phase.HELD, Phase.SETUP, Phase.TRANSFER_IN, Phase.EXECUTE
SAVE, OUT, AWAY, ASLEEP = Phase.CHECKPOINT, Phase.TRANSFER_OUT, Phase.DISCONNECTED, Phase.SUSPENDED
E, C = Outcome, FailureCategory


def jobs_of(name):
    history = read_history([str(next((DATA / "condor-logs").glob(f"{name}-*.log")))])
    assert (history.n_skipped, history.problems, history.kind, history.has_timestamps) == (0, (), "log", True)
    return history.jobs


def job_of(name):
    (job,) = jobs_of(name)
    return job


def laid(job):
    """Each attempt's spans in seconds since its job was submitted."""
    return [[(s.phase, s.start - job.submitted_at, s.end - job.submitted_at) for s in a.spans] for a in job.executions]


def waits(job):
    return [(span.phase, span.start - job.submitted_at, span.end - job.submitted_at) for span in job.waits]


def ends(job):
    return [(attempt.outcome, attempt.category) for attempt in job.executions]


def test_success_with_a_gpu():
    job = job_of("01")
    assert (job.id, job.outcome, job.category, job.outputs_checked) == ("2.0", E.SUCCEEDED, C.NONE, None)
    assert laid(job) == [[(RUN, 0, 2)]]
    (attempt,) = job.executions
    assert (attempt.site, attempt.node, attempt.gpus) == ("site_a", "site_a@localhost.pool.test", 1)
    assert (attempt.input_bytes, attempt.output_bytes, attempt.retained_compute_s) == (54, 8, 2)
    assert [(move.size_bytes, move.complete) for move in attempt.input_transfers] == [(54, True)]


def test_held_by_a_person_released_and_removed():
    job = job_of("02")
    assert (job.outcome, job.category) == (E.REMOVED, C.USER)
    assert ends(job) == [(E.HELD, C.USER), (E.REMOVED, C.USER)]
    assert waits(job) == [(Q, 0, 3), (Q, 4, 6)]
    assert job.executions[0].reason == "held by a person, who gave no reason"


def test_evicted_and_started_again():
    job = job_of("04")
    assert job.outcome is E.SUCCEEDED
    assert ends(job) == [(E.EVICTED, C.EVICTION), (E.SUCCEEDED, C.NONE)]
    assert laid(job) == [[(START, 1, 2), (RUN, 2, 3)], [(START, 5, 7), (RUN, 7, 10)]]
    assert [attempt.retained_compute_s for attempt in job.executions] == [0, 3]
    assert job.executions[0].reason == "Job vacated by schedd"


def test_a_checkpoint_is_an_output_after_which_the_program_ran_on():
    """HTCondor does not say so, and calls the eviction one without a checkpoint."""
    job = job_of("05")
    assert ends(job) == [(E.EVICTED, C.EVICTION), (E.SUCCEEDED, C.NONE)]
    assert laid(job) == [[(RUN, 1, 5)], [(RUN, 6, 13)]]  # saving took no whole second
    assert [attempt.retained_compute_s for attempt in job.executions] == [3, 7]


def test_held_at_the_time_limit():
    job = job_of("06")
    assert (job.outcome, job.category, job.held_in_phase) == (E.TIME_LIMIT, C.TIME_LIMIT, RUN)
    assert laid(job) == [[(START, 0, 1), (RUN, 1, 5)]]
    assert (job.ended_at - job.submitted_at, job.waits) == (5, ())
    assert job.reason == "The job exceeded allowed execute duration of 00:03"


def test_held_when_it_was_submitted():
    job = job_of("08")
    assert (job.outcome, job.category, job.executions, job.held_in_phase) == (E.HELD, C.TRANSFER, (), Q)
    assert "MAX_TRANSFER_INPUT_MB" in job.reason


@pytest.mark.parametrize("name", ["10", "22"])
def test_an_input_that_is_not_there(name):
    """What HTCondor calls the end of an input and the start of an output was neither."""
    job = job_of(name)
    assert (job.outcome, job.category, job.held_in_phase) == (E.HELD, C.TRANSFER, IN)
    assert ends(job) == [(E.HELD, C.TRANSFER)]
    assert laid(job) == [[(START, 2, 3)]]
    assert [move.complete for move in job.executions[0].input_transfers] == [False]
    assert job.executions[0].site == "site_c"


def test_an_output_that_is_not_there():
    job = job_of("16")
    assert (job.outcome, job.category, job.held_in_phase) == (E.WRONG_OUTPUT, C.WRONG_OUTPUT, OUT)
    assert ends(job) == [(E.WRONG_OUTPUT, C.WRONG_OUTPUT)]
    assert "nope.out" in job.reason


def test_retries():
    job = job_of("17")
    assert (job.outcome, job.category, job.reason) == (E.FAILED, C.PROGRAM, "it ended with exit code 3")
    assert ends(job) == [(E.FAILED, C.PROGRAM)] * 3
    assert [attempt.retained_compute_s for attempt in job.executions] == [
        0,
        0,
        0,
    ]  # the output before each end was no checkpoint
    assert waits(job) == [(Q, 0, 1), (Q, 3, 6), (Q, 8, 12)]


def test_held_by_its_own_rule_and_released():
    job = job_of("18")
    assert (job.outcome, job.category) == (E.FAILED, C.PROGRAM)
    assert ends(job) == [(E.HELD, C.PROGRAM), (E.HELD, C.PROGRAM), (E.FAILED, C.PROGRAM)]
    assert waits(job) == [(Q, 0, 1), (HELD, 2, 6), (HELD, 7, 9), (Q, 9, 11)]
    assert [attempt.retained_compute_s for attempt in job.executions] == [0, 0, 0]


def test_disconnected_and_reconnected():
    job = job_of("30")
    assert ends(job) == [(E.SUCCEEDED, C.NONE)]
    assert laid(job) == [[(START, 3, 4), (RUN, 4, 19)]]
    assert job.executions[0].input_bytes is None  # it counts anew after a reconnect


def test_a_starter_that_was_killed():
    job = job_of("31")
    assert job.outcome is E.SUCCEEDED
    assert ends(job) == [(E.LOST, C.POOL), (E.SUCCEEDED, C.NONE)]
    assert laid(job)[0] == [(START, 2, 3), (RUN, 3, 5), (AWAY, 5, 6)]


def test_a_shadow_that_was_killed():
    """Another start, and nothing in between: from the last sign of life on nobody knows."""
    job = job_of("34")
    assert ends(job) == [(E.LOST, C.UNKNOWN), (E.SUCCEEDED, C.NONE)]
    assert laid(job)[0] == [(IN, 2, 3), (START, 3, 4), (RUN, 4, 5), (AWAY, 5, 9)]
    assert waits(job) == [(Q, 0, 2)]


def test_jobs_that_are_made_late():
    jobs = jobs_of("45")
    assert [job.id for job in jobs] == ["9.0", "9.1", "9.2", "9.3", "9.4"]
    assert {job.outcome for job in jobs} == {E.SUCCEEDED}
    assert [attempt.site for job in jobs for attempt in job.executions] == [f"site_{x}" for x in "cbbcc"]


def test_three_jobs_in_one_log():
    jobs = jobs_of("46")
    assert [(job.id, job.outcome, job.reason[-1:]) for job in jobs] == [
        ("10.0", E.SUCCEEDED, ""),
        ("10.1", E.FAILED, "1"),
        ("10.2", E.FAILED, "2"),
    ]


def test_a_container_that_never_starts():
    """The slot is free again after a second; the log says so ten seconds later. It never executed."""
    job = job_of("66")
    assert (job.outcome, job.category, job.ended_at) == (E.RUNNING, C.NODE, None)
    assert ends(job) == [(E.FAILED, C.NODE), (E.FAILED, C.NODE), (E.RUNNING, C.NONE)]
    assert laid(job)[:2] == [[(START, 0, 1)], [(START, 13, 14)]]
    assert waits(job) == [(Q, 1, 13), (Q, 14, 26)]


def test_suspended():
    (job,) = read_history([str(DATA / "condor-forms/suspended.log")]).jobs
    phases = [span.phase for span in job.executions[0].spans]
    assert phases.count(ASLEEP) == 1
    assert phases[phases.index(ASLEEP) - 1] is phases[phases.index(ASLEEP) + 1] is RUN


def test_the_site_of_a_job_ad():
    """`job_ad_information_attrs` tell it before the program executes."""
    (job,) = read_history([str(DATA / "condor-forms/job-ad.log")]).jobs
    assert [(a.site, a.node) for a in job.executions] == [("GP-ARGO-ksu-backfill", "site2@localhost.pool.test")]


HEAD = "{} (007.000.000) 2026-11-16 02:{} {}\n"


def told(tmp_path, *events):
    """A log with these events: (code, MM:SS, text)."""
    log = tmp_path / "log"
    log.write_text("".join(HEAD.format(*event) + "...\n" for event in events))
    (job,) = read_history([str(log)]).jobs
    return job


SUBMIT = ("000", "00:00", "Job submitted from host: <a>")
INPUT = ("040", "00:10", "Started transferring input files")
EXECUTE = ("001", "01:00", "Job executing on host: <a>\n\tSlotName: slot1@n1.example.edu")


def test_a_program_cannot_run_before_its_input_is_there(tmp_path):
    """001 is told when the starter begins, at times long before the input has arrived."""
    arrived = ("040", "03:00", "Finished transferring input files")
    job = told(
        tmp_path,
        SUBMIT,
        INPUT,
        EXECUTE,
        arrived,
        ("005", "04:00", "Job terminated.\n\t(1) Normal termination (return value 0)"),
    )
    assert laid(job) == [[(IN, 10, 180), (RUN, 180, 240)]]
    assert job.executions[0].site == "example.edu"


def test_a_checkpoint_and_what_follows_it(tmp_path):
    """An output that is sent while the program has not ended: it went on, was disconnected, found again and evicted."""
    job = told(
        tmp_path,
        SUBMIT,
        EXECUTE,
        ("040", "02:00", "Started transferring output files"),
        ("040", "02:10", "Finished transferring output files"),
        ("022", "02:30", "Job disconnected, attempting to reconnect"),
        ("023", "02:40", "Job reconnected to a"),
        ("004", "03:00", "Job was evicted. Code 1022 Subcode 0\n\t(0) CPU times"),
        ("001", "04:00", EXECUTE[2]),
    )
    assert laid(job)[0] == [(RUN, 60, 120), (SAVE, 120, 130), (RUN, 130, 150), (AWAY, 150, 160), (RUN, 160, 180)]
    assert [attempt.retained_compute_s for attempt in job.executions] == [60, 0]


def test_a_stalled_transfer(tmp_path):
    """As in the published week: a shadow gives up, and everything begins again."""
    stalled = ("007", "59:00", "Shadow exception!\n\tFileTransfer: stalled for too long")
    job = told(tmp_path, SUBMIT, INPUT, stalled, ("040", "59:30", INPUT[2]))
    assert ends(job) == [(E.FAILED, C.TRANSFER), (E.RUNNING, C.NONE)]
    assert laid(job) == [[(IN, 10, 3540)], [(IN, 3570, 3570)]]
    assert [move.complete for a in job.executions for move in a.input_transfers] == [False, False]


def test_waiting_for_a_turn_to_transfer(tmp_path):
    queued = ("040", "00:05", "Entered queue to transfer input files")
    job = told(tmp_path, SUBMIT, queued, INPUT, ("040", "00:40", "Finished transferring input files"), EXECUTE)
    assert laid(job) == [[(START, 5, 10), (IN, 10, 40), (START, 40, 60)]]


def test_a_hold_of_a_waiting_job_is_not_why_it_was_evicted(tmp_path):
    evicted = ("004", "02:00", "Job was evicted. Code 1022 Subcode 0\n\t(0) CPU times")
    held = ("012", "30:00", "Job was held.\n\tenough (by user alice)\n\tCode 1 Subcode 0")
    job = told(tmp_path, SUBMIT, EXECUTE, evicted, held)
    assert ends(job) == [(E.EVICTED, C.EVICTION)]
    assert (job.outcome, job.category, job.reason) == (E.HELD, C.USER, "enough (by user alice)")
    assert waits(job) == [(Q, 0, 60), (Q, 120, 1800)]


def test_a_slot_that_was_taken_before_the_log_says_so(tmp_path):
    """Old logs do not tell of transfers; the time that the slot was busy does."""
    ended = "Job terminated.\n\t(1) Normal termination (return value 0)\n\t   TimeSlotBusy (s)     :      90        \n"
    job = told(tmp_path, SUBMIT, EXECUTE, ("005", "02:00", ended.rstrip("\n")))
    assert laid(job) == [[(START, 30, 60), (RUN, 60, 120)]]
    assert waits(job) == [(Q, 0, 30)]


def test_after_a_reconnect_how_long_the_program_ran_tells_of_its_output(tmp_path):
    ended = "Job terminated.\n\t(1) Normal termination (return value 0)\n\t   TimeExecute (s)     :      70        "
    lost, found = (
        ("022", "01:30", "Job disconnected, attempting to reconnect"),
        ("023", "01:40", "Job reconnected to a"),
    )
    job = told(tmp_path, SUBMIT, EXECUTE, lost, found, ("005", "04:00", ended))
    assert laid(job) == [[(RUN, 60, 90), (AWAY, 90, 100), (RUN, 100, 130), (OUT, 130, 240)]]


def test_a_log_that_does_not_tell_of_transfers_says_so(tmp_path):
    (tmp_path / "log").write_text("".join(HEAD.format(*event) + "...\n" for event in (SUBMIT, EXECUTE)))
    assert any("(040)" in sentence for sentence in read_history([str(tmp_path / "log")]).limitations)
    (tmp_path / "log").write_text("".join(HEAD.format(*event) + "...\n" for event in (SUBMIT, INPUT, EXECUTE)))
    assert not any("(040)" in sentence for sentence in read_history([str(tmp_path / "log")]).limitations)


def test_a_log_names_no_cache_and_that_is_said(tmp_path):
    (tmp_path / "log").write_text("".join(HEAD.format(*event) + "...\n" for event in (SUBMIT, INPUT, EXECUTE)))
    assert any("does not name the cache" in sentence for sentence in read_history([str(tmp_path / "log")]).limitations)


def test_a_log_whose_beginning_is_lost(tmp_path):
    ended = "Job terminated.\n\t(1) Normal termination (return value 0)\n\t   TimeSlotBusy (s)     :      90        \n"
    job = told(tmp_path, ("006", "01:00", "Image size of job updated: 1"), ("005", "02:00", ended.rstrip("\n")))
    assert (job.outcome, job.submitted_at) == (E.SUCCEEDED, None)
    assert [attempt.duration_s for attempt in job.executions] == [90]


def test_a_number_that_is_used_again(tmp_path):
    log = tmp_path / "log"
    ended = "Job terminated.\n\t(1) Normal termination (return value 0)"
    first = [HEAD.format(*event) for event in (SUBMIT, EXECUTE, ("005", "02:00", ended))]
    second = [line.replace(" 02:", " 03:") for line in first]
    log.write_text("".join(event + "...\n" for event in first + second))
    jobs = read_history([str(log)]).jobs
    assert [job.id for job in jobs] == ["7.0", "7.0 (log)"]
    assert jobs[1].submitted_at - jobs[0].submitted_at == 3600


def test_clocks_that_are_set_back_do_not_make_time_run_backwards(tmp_path):
    job = told(
        tmp_path, ("000", "30:00", SUBMIT[2]), EXECUTE, ("012", "00:30", "Job was held.\n\tx\n\tCode 47 Subcode 0")
    )
    assert laid(job) == [[(RUN, 0, 0)]]
    assert job.outcome is E.TIME_LIMIT


def word(moment, mono, kind, **data):
    event = Event("run-1", "0", "agent-1", int(mono * 10) + 1, kind, 5.0 + mono, mono, data)
    return ("008", moment, f"packtrain {event.to_json()}")


def test_a_job_of_packtrain_tells_what_it_did_in_its_slot(tmp_path):
    """By its own clock, of which only durations count."""
    job = told(
        tmp_path,
        SUBMIT,
        EXECUTE,
        word("01:02", 0.0, kinds.AGENT_STARTED, decision="0-1"),
        word("01:02", 1.0, kinds.STAGE_STARTED, stage="fetch"),
        word("01:12", 11.0, kinds.STAGE_ENDED, stage="fetch", seconds=10.0, bytes=500, source="http://a/b"),
        word("01:12", 11.0, kinds.STAGE_STARTED, stage="steps"),
        word("01:42", 41.0, kinds.STAGE_ENDED, stage="steps", seconds=30.0),
        ("008", "01:42", "packtrain {this is none"),
        ("008", "01:42", "a word of somebody else"),
        word("01:42", 41.0, kinds.AGENT_ENDED, outcome="requeued", reason="the limit is near", seconds=41.0),
        ("005", "01:50", "Job terminated.\n\t(1) Normal termination (return value 86)"),
    )
    assert laid(job) == [[(START, 60, 70), (IN, 70, 80), (RUN, 80, 110)]]
    assert (job.outcome, job.reason) == (E.CHECKPOINTED, "the limit is near")
    assert [(move.size_bytes, move.source, move.complete) for move in job.executions[0].input_transfers] == [
        (500, "a", True)
    ]
    assert job.executions[0].input_bytes == 500


def evicted(code, moment="02:00"):
    return ("004", moment, f"Job was evicted. Code {code} Subcode 0\n\t(0) CPU times")


def held(code, moment, reason):
    return ("012", moment, f"Job was held.\n\t{reason}\n\tCode {code} Subcode 0")


REMOVED = ("009", "50:00", "Job was aborted.\n\tvia condor_rm (by user alice)")
LOST_INPUT = held(13, "02:00", "Transfer input files failure: 404 page not found")


def test_what_was_held_and_then_removed_keeps_the_cause_of_its_hold(tmp_path):
    job = told(tmp_path, SUBMIT, INPUT, evicted(13), LOST_INPUT, REMOVED)
    assert (job.outcome, job.category, job.held_in_phase) == (E.REMOVED, C.TRANSFER, IN)
    assert job.reason == "Transfer input files failure: 404 page not found; then removed"
    assert waits(job) == [(Q, 0, 10), (HELD, 120, 3000)]


def test_what_was_released_before_it_was_removed_was_removed_by_a_person(tmp_path):
    job = told(tmp_path, SUBMIT, INPUT, evicted(13), LOST_INPUT, ("013", "03:00", "Job was released."), REMOVED)
    assert (job.outcome, job.category, job.held_in_phase) == (E.REMOVED, C.USER, None)


def test_what_was_held_while_it_was_queued_was_not_held_in_what_it_did_before(tmp_path):
    asked = held(1, "30:00", "via condor_hold (by user alice)")
    assert told(tmp_path, SUBMIT, EXECUTE, evicted(1022), asked).held_in_phase is Q
    assert told(tmp_path, SUBMIT, EXECUTE, held(1, "30:00", "enough")).held_in_phase is RUN
    broken = told(tmp_path, SUBMIT, EXECUTE, evicted(45), asked)
    assert (ends(broken), broken.held_in_phase) == ([(E.FAILED, C.NODE)], Q), (
        "a container that does not start is no hold"
    )


def ended(moment, busy, code=0):
    returned = f"(1) Normal termination (return value {code})"
    return ("005", moment, f"Job terminated.\n\t{returned}\n\t   TimeSlotBusy (s)     :      {busy}        ")


def test_an_end_whose_beginning_is_broken_belongs_to_another_stay(tmp_path):
    """The log lost an 001: the stay before had ended already, and keeps what was told of it."""
    job = told(tmp_path, SUBMIT, EXECUTE, evicted(1022), ended("50:00", 2820))
    assert ends(job) == [(E.EVICTED, C.EVICTION), (E.SUCCEEDED, C.NONE)]
    assert laid(job) == [[(RUN, 60, 120)], [(START, 180, 3000)]]
    assert waits(job) == [(Q, 0, 60), (Q, 120, 180)]


def test_an_end_of_a_job_that_was_held_before_is_one_of_another_stay(tmp_path):
    released = ("013", "03:00", "Job was released.")
    job = told(tmp_path, SUBMIT, EXECUTE, held(3, "02:00", "enough"), released, ended("50:00", 600))
    assert ends(job) == [(E.HELD, C.PROGRAM), (E.SUCCEEDED, C.NONE)]
    assert [attempt.duration_s for attempt in job.executions] == [60, 600]


def test_an_exit_with_0_that_was_put_back_into_the_queue_was_no_success(tmp_path):
    """`on_exit_remove`: only the last one counts."""
    said = "(0) Job terminated and was requeued\n\t(1) Normal termination (return value 0)"
    requeued = f"Job was evicted. Code 1 Subcode 0\n\t{said}"
    again = ("001", "03:00", EXECUTE[2])
    job = told(tmp_path, SUBMIT, EXECUTE, ("004", "02:00", requeued), again, ended("13:00", 600))
    assert ends(job) == [(E.FAILED, C.PROGRAM), (E.SUCCEEDED, C.NONE)]
    assert job.executions[0].reason == "it ended with exit code 0, but was put back into the queue"
    assert [attempt.retained_compute_s for attempt in job.executions] == [0, 600]
    figures = compute_stats(JobHistory("log", "log", (job,)))
    assert figures.time_use_s[TimeUse.USEFUL_COMPUTE] == 600


def test_how_long_it_is_held_is_known_until_the_end_of_the_log(tmp_path):
    log = tmp_path / "log"
    events = [SUBMIT, EXECUTE, held(3, "02:00", "enough")]
    other = HEAD.format("000", "32:00", SUBMIT[2]).replace("007.000", "007.001")
    log.write_text("".join(HEAD.format(*event) + "...\n" for event in events) + other + "...\n")
    job, _ = read_history([str(log)]).jobs
    assert waits(job) == [(Q, 0, 60), (HELD, 120, 1920)]
    assert job.ended_at - job.submitted_at == 120


def test_words_of_a_log_are_no_orders_to_a_terminal(tmp_path):
    """Reasons and sites come from others; so does a table."""
    bad = "404\x1b]0;owned\x07 \x1b[2J\x9b31m"
    place = ("001", "01:00", f'{EXECUTE[2]}\n\tGLIDEIN_ResourceName = "\x1b[31mA"')
    job = told(tmp_path, SUBMIT, INPUT, place, held(13, "02:00", bad))
    assert (job.reason, job.executions[0].site) == ("404\ufffd]0;owned\ufffd \ufffd[2J\ufffd31m", "\ufffd[31mA")
    attempts = tuple(replace(attempt, site=bad) for attempt in job.executions)
    history = JobHistory(bad, "table", (replace(job, executions=attempts, reason=bad),), limitations=(bad,))
    report, out = build_report(history), io.StringIO()
    print_report_summary(Console(file=out, force_terminal=False, width=200), report.stats, report.insights)
    assert "404" in out.getvalue()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", out.getvalue())


@pytest.mark.parametrize(
    "line",
    [
        HEAD.format("001", "01:00", "Job executing on host: <a>\n\tCpus = ²"),
        HEAD.format("012", "01:00", f"Job was held.\n\tx\n\tCode {'1' * 5000} Subcode 0"),
        HEAD.format("005", "01:00", f"Job terminated.\n\t(1) Normal termination (return value {'1' * 5000})"),
        HEAD.format("006", "01:00", "x").replace("007.", "7" * 5000 + "."),
    ],
    ids=["attribute", "hold", "exit", "cluster"],
)
def test_numbers_that_are_none_cost_no_report(tmp_path, line):
    (tmp_path / "log").write_text(HEAD.format(*SUBMIT) + "...\n" + line + "...\n")
    assert len(read_history([str(tmp_path / "log")]).jobs) == 1


@pytest.mark.parametrize("year", ["2926", "1926"])
def test_a_year_that_cannot_be_costs_one_event(tmp_path, year):
    """All others keep their times, and it is said that something is missing."""
    spoilt = HEAD.format("006", "01:30", "Image size of job updated: 1").replace("2026", year)
    lines = [HEAD.format(*SUBMIT), HEAD.format(*EXECUTE), spoilt, HEAD.format(*ended("02:00", 60))]
    (tmp_path / "log").write_text("".join(line + "...\n" for line in lines))
    history = read_history([str(tmp_path / "log")])
    assert laid(history.jobs[0]) == [[(RUN, 60, 120)]]
    assert (history.n_skipped, history.problems[0].line) == (1, 6)
    assert year in history.problems[0].message
