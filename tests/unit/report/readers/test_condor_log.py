"""Histories of real HTCondor logs. tests/data/condor-logs/README.md describes each log."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest

from packtrain.cli.ui.report_summary import print_report_summary
from packtrain.events import Event, kinds
from packtrain.report.analysis.statistics import compute_stats
from packtrain.report.analysis.time_accounting import TimeUse
from packtrain.report.build import build_report
from packtrain.report.history import FailureCategory, JobHistory, Outcome, Phase
from packtrain.report.readers.files import read_history
from packtrain.views.terminal import make_console
from tests.support.paths import TESTS_DIR

DATA = TESTS_DIR / "data"
QUEUED, HELD, SETUP, IN, EXECUTE = Phase.QUEUED, Phase.HELD, Phase.SETUP, Phase.TRANSFER_IN, Phase.EXECUTE
CHECKPOINT, OUT, DISCONNECTED, SUSPENDED = Phase.CHECKPOINT, Phase.TRANSFER_OUT, Phase.DISCONNECTED, Phase.SUSPENDED
E, C = Outcome, FailureCategory


def read_jobs(number):
    history = read_history([str(next((DATA / "condor-logs").glob(f"{number}-*.log")))])
    assert (history.n_skipped, history.problems, history.kind, history.has_timestamps) == (0, (), "log", True)
    return history.jobs


def read_job(number):
    (job,) = read_jobs(number)
    return job


def relative(spans, job):
    """Spans in seconds since the job was submitted."""
    return [(span.phase, span.start - job.submitted_at, span.end - job.submitted_at) for span in spans]


def execution_spans(job):
    return [relative(execution.spans, job) for execution in job.executions]


def waits(job):
    return relative(job.waits, job)


def outcomes(job):
    return [(execution.outcome, execution.category) for execution in job.executions]


def test_success_with_gpu():
    job = read_job("01")
    assert (job.id, job.outcome, job.category, job.outputs_checked) == ("2.0", E.SUCCEEDED, C.NONE, None)
    assert execution_spans(job) == [[(EXECUTE, 0, 2)]]
    (execution,) = job.executions
    assert (execution.site, execution.node, execution.gpus) == ("site_a", "site_a@localhost.pool.test", 1)
    assert (execution.input_bytes, execution.output_bytes, execution.retained_compute_s) == (54, 8, 2)
    assert [(transfer.size_bytes, transfer.complete) for transfer in execution.input_transfers] == [(54, True)]


def test_held_by_user_and_removed():
    job = read_job("02")
    assert (job.outcome, job.category) == (E.REMOVED, C.USER)
    assert outcomes(job) == [(E.HELD, C.USER), (E.REMOVED, C.USER)]
    assert waits(job) == [(QUEUED, 0, 3), (QUEUED, 4, 6)]
    assert job.executions[0].reason == "held by a user without a reason"


def test_evicted_and_restarted():
    job = read_job("04")
    assert job.outcome is E.SUCCEEDED
    assert outcomes(job) == [(E.EVICTED, C.EVICTION), (E.SUCCEEDED, C.NONE)]
    assert execution_spans(job) == [[(SETUP, 1, 2), (EXECUTE, 2, 3)], [(SETUP, 5, 7), (EXECUTE, 7, 10)]]
    assert [execution.retained_compute_s for execution in job.executions] == [0, 3]
    assert job.executions[0].reason == "Job vacated by schedd"


def test_checkpoint_is_an_early_output():
    """HTCondor logs the eviction as one without a checkpoint."""
    job = read_job("05")
    assert outcomes(job) == [(E.EVICTED, C.EVICTION), (E.SUCCEEDED, C.NONE)]
    assert execution_spans(job) == [[(EXECUTE, 1, 5)], [(EXECUTE, 6, 13)]]  # saving took less than a second
    assert [execution.retained_compute_s for execution in job.executions] == [3, 7]


def test_held_at_the_time_limit():
    job = read_job("06")
    assert (job.outcome, job.category, job.held_in_phase) == (E.TIME_LIMIT, C.TIME_LIMIT, EXECUTE)
    assert execution_spans(job) == [[(SETUP, 0, 1), (EXECUTE, 1, 5)]]
    assert (job.ended_at - job.submitted_at, job.waits) == (5, ())
    assert job.reason == "The job exceeded allowed execute duration of 00:03"


def test_held_at_submission():
    job = read_job("08")
    assert (job.outcome, job.category, job.executions, job.held_in_phase) == (E.HELD, C.TRANSFER, (), QUEUED)
    assert "MAX_TRANSFER_INPUT_MB" in job.reason


@pytest.mark.parametrize("name", ["10", "22"])
def test_missing_input(name):
    """The logged end of the input and start of the output are wrong."""
    job = read_job(name)
    assert (job.outcome, job.category, job.held_in_phase) == (E.HELD, C.TRANSFER, IN)
    assert outcomes(job) == [(E.HELD, C.TRANSFER)]
    assert execution_spans(job) == [[(SETUP, 2, 3)]]
    assert [transfer.complete for transfer in job.executions[0].input_transfers] == [False]
    assert job.executions[0].site == "site_c"


def test_missing_output():
    job = read_job("16")
    assert (job.outcome, job.category, job.held_in_phase) == (E.WRONG_OUTPUT, C.WRONG_OUTPUT, OUT)
    assert outcomes(job) == [(E.WRONG_OUTPUT, C.WRONG_OUTPUT)]
    assert "nope.out" in job.reason


def test_retries():
    job = read_job("17")
    assert (job.outcome, job.category, job.reason) == (E.FAILED, C.PROGRAM, "exited with code 3")
    assert outcomes(job) == [(E.FAILED, C.PROGRAM)] * 3
    # The output transfer at the end of each execution is no checkpoint.
    assert [execution.retained_compute_s for execution in job.executions] == [0, 0, 0]
    assert waits(job) == [(QUEUED, 0, 1), (QUEUED, 3, 6), (QUEUED, 8, 12)]


def test_held_by_policy_and_released():
    job = read_job("18")
    assert (job.outcome, job.category) == (E.FAILED, C.PROGRAM)
    assert outcomes(job) == [(E.HELD, C.PROGRAM), (E.HELD, C.PROGRAM), (E.FAILED, C.PROGRAM)]
    assert waits(job) == [(QUEUED, 0, 1), (HELD, 2, 6), (HELD, 7, 9), (QUEUED, 9, 11)]
    assert [execution.retained_compute_s for execution in job.executions] == [0, 0, 0]


def test_disconnected_and_reconnected():
    job = read_job("30")
    assert outcomes(job) == [(E.SUCCEEDED, C.NONE)]
    assert execution_spans(job) == [[(SETUP, 3, 4), (EXECUTE, 4, 19)]]
    assert job.executions[0].input_bytes is None  # the count restarts after a reconnect


def test_killed_starter():
    job = read_job("31")
    assert job.outcome is E.SUCCEEDED
    assert outcomes(job) == [(E.LOST, C.POOL), (E.SUCCEEDED, C.NONE)]
    assert execution_spans(job)[0] == [(SETUP, 2, 3), (EXECUTE, 3, 5), (DISCONNECTED, 5, 6)]


def test_killed_shadow():
    """The job starts again without an end event. It was disconnected since the last event."""
    job = read_job("34")
    assert outcomes(job) == [(E.LOST, C.UNKNOWN), (E.SUCCEEDED, C.NONE)]
    assert execution_spans(job)[0] == [(IN, 2, 3), (SETUP, 3, 4), (EXECUTE, 4, 5), (DISCONNECTED, 5, 9)]
    assert waits(job) == [(QUEUED, 0, 2)]


def test_late_materialization():
    jobs = read_jobs("45")
    assert [job.id for job in jobs] == ["9.0", "9.1", "9.2", "9.3", "9.4"]
    assert {job.outcome for job in jobs} == {E.SUCCEEDED}
    assert [execution.site for job in jobs for execution in job.executions] == [f"site_{x}" for x in "cbbcc"]


def test_three_jobs():
    jobs = read_jobs("46")
    assert [(job.id, job.outcome, job.reason[-1:]) for job in jobs] == [
        ("10.0", E.SUCCEEDED, ""),
        ("10.1", E.FAILED, "1"),
        ("10.2", E.FAILED, "2"),
    ]


def test_container_that_never_starts():
    """The slot is released after a second, but the log records it ten seconds later. The job never executed."""
    job = read_job("66")
    assert (job.outcome, job.category, job.ended_at) == (E.RUNNING, C.NODE, None)
    assert outcomes(job) == [(E.FAILED, C.NODE), (E.FAILED, C.NODE), (E.RUNNING, C.NONE)]
    assert execution_spans(job)[:2] == [[(SETUP, 0, 1)], [(SETUP, 13, 14)]]
    assert waits(job) == [(QUEUED, 1, 13), (QUEUED, 14, 26)]


def test_suspended():
    (job,) = read_history([str(DATA / "condor-forms/suspended.log")]).jobs
    phases = [span.phase for span in job.executions[0].spans]
    assert phases.count(SUSPENDED) == 1
    assert phases[phases.index(SUSPENDED) - 1] is phases[phases.index(SUSPENDED) + 1] is EXECUTE


def test_site_from_job_ad():
    """`job_ad_information_attrs` log the site before the program executes."""
    (job,) = read_history([str(DATA / "condor-forms/job-ad.log")]).jobs
    assert [(a.site, a.node) for a in job.executions] == [("GP-ARGO-ksu-backfill", "site2@localhost.pool.test")]


EVENT_FORMAT = "{} (007.000.000) 2026-11-16 02:{} {}\n"


def write_log(tmp_path, *events):
    """Write a log with events, given as (code, MM:SS, text)."""
    log = tmp_path / "log"
    log.write_text("".join(EVENT_FORMAT.format(*event) + "...\n" for event in events))
    return log


def job_from_events(tmp_path, *events):
    (job,) = read_history([str(write_log(tmp_path, *events))]).jobs
    return job


SUBMIT_EVENT = ("000", "00:00", "Job submitted from host: <a>")
INPUT_EVENT = ("040", "00:10", "Started transferring input files")
EXECUTE_EVENT = ("001", "01:00", "Job executing on host: <a>\n\tSlotName: slot1@n1.example.edu")


def test_execute_event_before_end_of_input(tmp_path):
    """The starter logs 001 when it begins, which may be before the input has arrived."""
    arrived = ("040", "03:00", "Finished transferring input files")
    job = job_from_events(
        tmp_path,
        SUBMIT_EVENT,
        INPUT_EVENT,
        EXECUTE_EVENT,
        arrived,
        ("005", "04:00", "Job terminated.\n\t(1) Normal termination (return value 0)"),
    )
    assert execution_spans(job) == [[(IN, 10, 180), (EXECUTE, 180, 240)]]
    assert job.executions[0].site == "example.edu"


def test_checkpoint_and_reconnect(tmp_path):
    """An output transfer before the end of the program, then a reconnect and an eviction."""
    job = job_from_events(
        tmp_path,
        SUBMIT_EVENT,
        EXECUTE_EVENT,
        ("040", "02:00", "Started transferring output files"),
        ("040", "02:10", "Finished transferring output files"),
        ("022", "02:30", "Job disconnected, attempting to reconnect"),
        ("023", "02:40", "Job reconnected to a"),
        ("004", "03:00", "Job was evicted. Code 1022 Subcode 0\n\t(0) CPU times"),
        ("001", "04:00", EXECUTE_EVENT[2]),
    )
    assert execution_spans(job)[0] == [
        (EXECUTE, 60, 120),
        (CHECKPOINT, 120, 130),
        (EXECUTE, 130, 150),
        (DISCONNECTED, 150, 160),
        (EXECUTE, 160, 180),
    ]
    assert [execution.retained_compute_s for execution in job.executions] == [60, 0]


def test_stalled_transfer(tmp_path):
    """As in the published week: the shadow fails, and the job starts again."""
    stalled = ("007", "59:00", "Shadow exception!\n\tFileTransfer: stalled for too long")
    job = job_from_events(tmp_path, SUBMIT_EVENT, INPUT_EVENT, stalled, ("040", "59:30", INPUT_EVENT[2]))
    assert outcomes(job) == [(E.FAILED, C.TRANSFER), (E.RUNNING, C.NONE)]
    assert execution_spans(job) == [[(IN, 10, 3540)], [(IN, 3570, 3570)]]
    assert [transfer.complete for a in job.executions for transfer in a.input_transfers] == [False, False]


def test_queued_transfer(tmp_path):
    queued = ("040", "00:05", "Entered queue to transfer input files")
    job = job_from_events(
        tmp_path,
        SUBMIT_EVENT,
        queued,
        INPUT_EVENT,
        ("040", "00:40", "Finished transferring input files"),
        EXECUTE_EVENT,
    )
    assert execution_spans(job) == [[(SETUP, 5, 10), (IN, 10, 40), (SETUP, 40, 60)]]


def test_hold_after_eviction(tmp_path):
    evicted = ("004", "02:00", "Job was evicted. Code 1022 Subcode 0\n\t(0) CPU times")
    held = ("012", "30:00", "Job was held.\n\tenough (by user alice)\n\tCode 1 Subcode 0")
    job = job_from_events(tmp_path, SUBMIT_EVENT, EXECUTE_EVENT, evicted, held)
    assert outcomes(job) == [(E.EVICTED, C.EVICTION)]
    assert (job.outcome, job.category, job.reason) == (E.HELD, C.USER, "enough (by user alice)")
    assert waits(job) == [(QUEUED, 0, 60), (QUEUED, 120, 1800)]


def test_slot_claimed_before_first_event(tmp_path):
    """Old logs have no transfer events, but have the slot time."""
    ended = "Job terminated.\n\t(1) Normal termination (return value 0)\n\t   TimeSlotBusy (s)     :      90        \n"
    job = job_from_events(tmp_path, SUBMIT_EVENT, EXECUTE_EVENT, ("005", "02:00", ended.rstrip("\n")))
    assert execution_spans(job) == [[(SETUP, 30, 60), (EXECUTE, 60, 120)]]
    assert waits(job) == [(QUEUED, 0, 30)]


def test_unlogged_output_after_reconnect(tmp_path):
    ended = "Job terminated.\n\t(1) Normal termination (return value 0)\n\t   TimeExecute (s)     :      70        "
    disconnected, reconnected = (
        ("022", "01:30", "Job disconnected, attempting to reconnect"),
        ("023", "01:40", "Job reconnected to a"),
    )
    job = job_from_events(tmp_path, SUBMIT_EVENT, EXECUTE_EVENT, disconnected, reconnected, ("005", "04:00", ended))
    assert execution_spans(job) == [[(EXECUTE, 60, 90), (DISCONNECTED, 90, 100), (EXECUTE, 100, 130), (OUT, 130, 240)]]


def limitations(tmp_path, *events):
    return " ".join(read_history([str(write_log(tmp_path, *events))]).limitations)


def test_note_on_missing_transfer_events(tmp_path):
    assert "(040)" in limitations(tmp_path, SUBMIT_EVENT, EXECUTE_EVENT)
    assert "(040)" not in limitations(tmp_path, SUBMIT_EVENT, INPUT_EVENT, EXECUTE_EVENT)


def test_note_on_missing_cache_names(tmp_path):
    assert "does not name the cache" in limitations(tmp_path, SUBMIT_EVENT, INPUT_EVENT, EXECUTE_EVENT)


def test_truncated_log(tmp_path):
    ended = "Job terminated.\n\t(1) Normal termination (return value 0)\n\t   TimeSlotBusy (s)     :      90        \n"
    job = job_from_events(
        tmp_path, ("006", "01:00", "Image size of job updated: 1"), ("005", "02:00", ended.rstrip("\n"))
    )
    assert (job.outcome, job.submitted_at) == (E.SUCCEEDED, None)
    assert [execution.duration_s for execution in job.executions] == [90]


def test_reused_job_id(tmp_path):
    log = tmp_path / "log"
    ended = "Job terminated.\n\t(1) Normal termination (return value 0)"
    first = [EVENT_FORMAT.format(*event) for event in (SUBMIT_EVENT, EXECUTE_EVENT, ("005", "02:00", ended))]
    second = [line.replace(" 02:", " 03:") for line in first]
    log.write_text("".join(event + "...\n" for event in first + second))
    jobs = read_history([str(log)]).jobs
    assert [job.id for job in jobs] == ["7.0", "7.0 (log)"]
    assert jobs[1].submitted_at - jobs[0].submitted_at == 3600


def test_clock_set_back(tmp_path):
    job = job_from_events(
        tmp_path,
        ("000", "30:00", SUBMIT_EVENT[2]),
        EXECUTE_EVENT,
        ("012", "00:30", "Job was held.\n\tx\n\tCode 47 Subcode 0"),
    )
    assert execution_spans(job) == [[(EXECUTE, 0, 0)]]
    assert job.outcome is E.TIME_LIMIT


def agent_event(time, mono, kind, **data):
    event = Event("run-1", "0", "agent-1", int(mono * 10) + 1, kind, 5.0 + mono, mono, data)
    return ("008", time, f"packtrain {event.to_json()}")


def test_agent_events_in_log(tmp_path):
    """The agent has its own clock, of which only durations are used."""
    job = job_from_events(
        tmp_path,
        SUBMIT_EVENT,
        EXECUTE_EVENT,
        agent_event("01:02", 0.0, kinds.AGENT_STARTED, attempt="0-1"),
        agent_event("01:02", 1.0, kinds.STAGE_STARTED, stage="fetch"),
        agent_event("01:12", 11.0, kinds.STAGE_ENDED, stage="fetch", seconds=10.0, bytes=500, source="http://a/b"),
        agent_event("01:12", 11.0, kinds.STAGE_STARTED, stage="steps"),
        agent_event("01:42", 41.0, kinds.STAGE_ENDED, stage="steps", seconds=30.0),
        ("008", "01:42", "packtrain {invalid"),
        ("008", "01:42", "from another program"),
        agent_event("01:42", 41.0, kinds.AGENT_ENDED, outcome="requeued", reason="the limit is near", seconds=41.0),
        ("005", "01:50", "Job terminated.\n\t(1) Normal termination (return value 86)"),
    )
    assert execution_spans(job) == [[(SETUP, 60, 70), (IN, 70, 80), (EXECUTE, 80, 110)]]
    assert (job.outcome, job.reason) == (E.CHECKPOINTED, "the limit is near")
    assert [
        (transfer.size_bytes, transfer.source, transfer.complete) for transfer in job.executions[0].input_transfers
    ] == [(500, "a", True)]
    assert job.executions[0].input_bytes == 500


def evicted(code, time="02:00"):
    return ("004", time, f"Job was evicted. Code {code} Subcode 0\n\t(0) CPU times")


def held(code, time, reason):
    return ("012", time, f"Job was held.\n\t{reason}\n\tCode {code} Subcode 0")


REMOVED_EVENT = ("009", "50:00", "Job was aborted.\n\tvia condor_rm (by user alice)")
FAILED_INPUT = held(13, "02:00", "Transfer input files failure: 404 page not found")


def test_removed_after_hold(tmp_path):
    job = job_from_events(tmp_path, SUBMIT_EVENT, INPUT_EVENT, evicted(13), FAILED_INPUT, REMOVED_EVENT)
    assert (job.outcome, job.category, job.held_in_phase) == (E.REMOVED, C.TRANSFER, IN)
    assert job.reason == "Transfer input files failure: 404 page not found; then removed"
    assert waits(job) == [(QUEUED, 0, 10), (HELD, 120, 3000)]


def test_removed_after_release(tmp_path):
    job = job_from_events(
        tmp_path,
        SUBMIT_EVENT,
        INPUT_EVENT,
        evicted(13),
        FAILED_INPUT,
        ("013", "03:00", "Job was released."),
        REMOVED_EVENT,
    )
    assert (job.outcome, job.category, job.held_in_phase) == (E.REMOVED, C.USER, None)


def test_held_while_queued(tmp_path):
    held_by_user = held(1, "30:00", "via condor_hold (by user alice)")
    assert job_from_events(tmp_path, SUBMIT_EVENT, EXECUTE_EVENT, evicted(1022), held_by_user).held_in_phase is QUEUED
    assert job_from_events(tmp_path, SUBMIT_EVENT, EXECUTE_EVENT, held(1, "30:00", "enough")).held_in_phase is EXECUTE
    failed = job_from_events(tmp_path, SUBMIT_EVENT, EXECUTE_EVENT, evicted(45), held_by_user)
    assert (outcomes(failed), failed.held_in_phase) == ([(E.FAILED, C.NODE)], QUEUED), (
        "a container that does not start is not a hold"
    )


def ended(time, slot_busy_s):
    usage = f"TimeSlotBusy (s)     :      {slot_busy_s}        "
    return ("005", time, f"Job terminated.\n\t(1) Normal termination (return value 0)\n\t   {usage}")


def test_end_without_start_after_eviction(tmp_path):
    """An event 001 is missing. The previous session, which had already ended, is unchanged."""
    job = job_from_events(tmp_path, SUBMIT_EVENT, EXECUTE_EVENT, evicted(1022), ended("50:00", 2820))
    assert outcomes(job) == [(E.EVICTED, C.EVICTION), (E.SUCCEEDED, C.NONE)]
    assert execution_spans(job) == [[(EXECUTE, 60, 120)], [(SETUP, 180, 3000)]]
    assert waits(job) == [(QUEUED, 0, 60), (QUEUED, 120, 180)]


def test_end_without_start_after_release(tmp_path):
    released = ("013", "03:00", "Job was released.")
    job = job_from_events(
        tmp_path, SUBMIT_EVENT, EXECUTE_EVENT, held(3, "02:00", "enough"), released, ended("50:00", 600)
    )
    assert outcomes(job) == [(E.HELD, C.POLICY), (E.SUCCEEDED, C.NONE)]
    assert [execution.duration_s for execution in job.executions] == [60, 600]


def test_requeued_exit_0_is_no_success(tmp_path):
    """With `on_exit_remove`, only the last exit counts."""
    text = "(0) Job terminated and was requeued\n\t(1) Normal termination (return value 0)"
    requeued = f"Job was evicted. Code 1 Subcode 0\n\t{text}"
    restarted = ("001", "03:00", EXECUTE_EVENT[2])
    job = job_from_events(
        tmp_path, SUBMIT_EVENT, EXECUTE_EVENT, ("004", "02:00", requeued), restarted, ended("13:00", 600)
    )
    assert outcomes(job) == [(E.FAILED, C.PROGRAM), (E.SUCCEEDED, C.NONE)]
    assert job.executions[0].reason == "exited with code 0, but was put back into the queue"
    assert [execution.retained_compute_s for execution in job.executions] == [0, 600]
    stats = compute_stats(JobHistory("log", "log", (job,)))
    assert stats.time_use_s[TimeUse.USEFUL_COMPUTE] == 600


def test_hold_lasts_until_end_of_log(tmp_path):
    log = tmp_path / "log"
    events = [SUBMIT_EVENT, EXECUTE_EVENT, held(3, "02:00", "enough")]
    other = EVENT_FORMAT.format("000", "32:00", SUBMIT_EVENT[2]).replace("007.000", "007.001")
    log.write_text("".join(EVENT_FORMAT.format(*event) + "...\n" for event in events) + other + "...\n")
    job, _ = read_history([str(log)]).jobs
    assert waits(job) == [(QUEUED, 0, 60), (HELD, 120, 1920)]
    assert job.ended_at - job.submitted_at == 120


def test_control_characters_are_replaced(tmp_path):
    """Reasons and sites of logs and tables are untrusted."""
    hostile = "404\x1b]0;owned\x07 \x1b[2J\x9b31m"
    execute = ("001", "01:00", f'{EXECUTE_EVENT[2]}\n\tGLIDEIN_ResourceName = "\x1b[31mA"')
    job = job_from_events(tmp_path, SUBMIT_EVENT, INPUT_EVENT, execute, held(13, "02:00", hostile))
    assert (job.reason, job.executions[0].site) == (r"404\x1b]0;owned\x07 \x1b[2J\x9b31m", r"\x1b[31mA")
    executions = tuple(replace(execution, site=hostile) for execution in job.executions)
    history = JobHistory(
        hostile, "table", (replace(job, executions=executions, reason=hostile),), limitations=(hostile,)
    )
    report, out = build_report(history), io.StringIO()
    print_report_summary(make_console(file=out, force_terminal=False, width=200), report.stats, report.findings)
    assert "404" in out.getvalue()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", out.getvalue())


@pytest.mark.parametrize(
    "line",
    [
        EVENT_FORMAT.format("001", "01:00", "Job executing on host: <a>\n\tCpus = ²"),
        EVENT_FORMAT.format("012", "01:00", f"Job was held.\n\tx\n\tCode {'1' * 5000} Subcode 0"),
        EVENT_FORMAT.format("005", "01:00", f"Job terminated.\n\t(1) Normal termination (return value {'1' * 5000})"),
        EVENT_FORMAT.format("006", "01:00", "x").replace("007.", "7" * 5000 + "."),
    ],
    ids=["attribute", "hold", "exit", "cluster"],
)
def test_invalid_numbers_are_ignored(tmp_path, line):
    (tmp_path / "log").write_text(EVENT_FORMAT.format(*SUBMIT_EVENT) + "...\n" + line + "...\n")
    assert len(read_history([str(tmp_path / "log")]).jobs) == 1


@pytest.mark.parametrize("year", ["2926", "1926"])
def test_impossible_year_skips_one_event(tmp_path, year):
    """The other events keep their times, and the problem is reported."""
    invalid = EVENT_FORMAT.format("006", "01:30", "Image size of job updated: 1").replace("2026", year)
    lines = [
        EVENT_FORMAT.format(*SUBMIT_EVENT),
        EVENT_FORMAT.format(*EXECUTE_EVENT),
        invalid,
        EVENT_FORMAT.format(*ended("02:00", 60)),
    ]
    (tmp_path / "log").write_text("".join(line + "...\n" for line in lines))
    history = read_history([str(tmp_path / "log")])
    assert execution_spans(history.jobs[0]) == [[(EXECUTE, 60, 120)]]
    assert (history.n_skipped, history.problems[0].line) == (1, 6)
    assert year in history.problems[0].message
