"""Logs as users have them: idle jobs, lost machines, own policies, a byte-order mark, logs of several access points."""

from __future__ import annotations

import pytest

from packtrain.report.build import build_report
from packtrain.report.history import FailureCategory, Outcome, Phase
from packtrain.report.readers.files import read_history

SUBMIT = "Job submitted from host: <{host}:9618>"
EXECUTE = "Job executing on host: <10.0.0.7:9618>\n\tSlotName: slot1_1@node7.example.org"
TERMINATED = "Job terminated.\n\t(1) Normal termination (return value 0)"
LOST = "Job reconnection failed\n    Job disconnected too long: JobLeaseDuration (2400 seconds) expired"
DISCONNECTED = "Job disconnected, attempting to reconnect\n    Socket between submit and execute hosts closed"
POLICY_HOLD = "Job was held.\n\t{reason}\n\tCode 3 Subcode 0"


def event(code, text, clock, job="7.000"):
    cluster, _, proc = job.partition(".")
    return f"{code:03} ({int(cluster):03}.{proc}.000) 2026-10-01 {clock} {text}\n...\n"


def submit(clock, host="10.0.0.1", job="7.000"):
    return event(0, SUBMIT.format(host=host), clock, job)


@pytest.fixture
def read_log(tmp_path):
    def read(*events, prefix=b""):
        path = tmp_path / "job.log"
        path.write_bytes(prefix + "".join(events).encode())
        return read_history([str(path)])

    return read


def findings(history):
    return "\n".join(finding.text for finding in build_report(history).findings)


def test_idle_job_is_not_running(read_log):
    idle = submit("10:00:00", job="8.000")
    history = read_log(submit("10:00:00"), event(1, EXECUTE, "10:05:00"), idle)
    assert [job.outcome for job in history.jobs] == [Outcome.RUNNING, Outcome.QUEUED]
    assert "2 of 2 jobs have not ended (1 on a slot)" in findings(history)


def test_evicted_job_is_queued(read_log):
    history = read_log(
        submit("10:00:00"),
        event(1, EXECUTE, "10:05:00"),
        event(4, "Job was evicted.\n\t(0) Job was not checkpointed.", "10:09:00"),
    )
    assert history.jobs[0].outcome is Outcome.QUEUED


def test_lost_machine(read_log):
    history = read_log(
        submit("10:00:00"),
        event(1, EXECUTE, "10:05:00"),
        event(22, DISCONNECTED, "11:05:00"),
        event(24, LOST, "11:45:00"),
        event(1, EXECUTE.replace("node7", "node8"), "11:50:00"),
        event(5, TERMINATED, "12:50:00"),
    )
    assert history.jobs[0].executions[0].outcome is Outcome.LOST
    assert "The pool lost contact with the machine of 1 execution (node7.example.org) and gave it up" in findings(
        history
    )


def test_hold_from_submission_is_no_wait_for_a_slot(read_log):
    history = read_log(
        submit("10:00:00"),
        event(12, "Job was held.\n\tsubmitted on hold at user's request\n\tCode 15 Subcode 0", "10:00:00"),
        event(13, "Job was released.\n\tvia condor_release (by user me)", "14:00:00"),
        event(1, EXECUTE, "14:10:00"),
        event(5, TERMINATED, "14:20:00"),
    )
    (job,) = history.jobs
    assert [(wait.phase, wait.duration_s) for wait in job.waits] == [(Phase.HELD, 14400), (Phase.QUEUED, 600)]
    assert build_report(history).stats.queue_wait_s.median == 600


@pytest.mark.parametrize(
    ("reason", "category"),
    [
        ("The job attribute PeriodicHold expression '(time() > 0)' evaluated to TRUE", FailureCategory.POLICY),
        ("it ran for more than a day", FailureCategory.POLICY),
        ("The job attribute OnExitHold expression 'ExitCode != 0' evaluated to TRUE", FailureCategory.PROGRAM),
    ],
)
def test_own_periodic_hold(read_log, reason, category):
    hold = event(12, POLICY_HOLD.format(reason=reason), "10:09:00")
    history = read_log(submit("10:00:00"), event(1, EXECUTE, "10:05:00"), hold)
    assert history.jobs[0].category is category
    expected = "by a condition of the submit file" if category is FailureCategory.POLICY else "in the program"
    assert f"did not succeed: {expected}" in findings(history)


def test_own_periodic_remove(read_log):
    reason = "The job attribute PeriodicRemove expression 'true' evaluated to TRUE"
    history = read_log(submit("10:00:00"), event(9, f"Job was aborted.\n\t{reason}", "10:05:00"))
    assert history.jobs[0].category is FailureCategory.POLICY


def test_byte_order_mark(read_log):
    events = (submit("10:00:00"), event(1, EXECUTE, "10:05:00"), event(5, TERMINATED, "10:15:00"))
    history = read_log(*events, prefix=b"\xef\xbb\xbf")
    assert (history.jobs, history.n_skipped) == (read_log(*events).jobs, 0)
    assert history.jobs[0].submitted_at is not None


@pytest.mark.parametrize(("clock", "host"), [("10:00:00", "10.0.0.2"), ("10:30:00", "10.0.0.1")])
def test_two_access_points_in_one_log(read_log, clock, host):
    """The first job has not ended when the same number is submitted from elsewhere, or again."""
    history = read_log(
        submit("10:00:00"),
        event(1, EXECUTE, "10:05:00"),
        submit(clock, host),
        event(1, EXECUTE, "10:40:00"),
        event(5, TERMINATED, "10:50:00"),
    )
    assert [job.id for job in history.jobs] == ["7.0", "7.0 (job.log)"]
    assert [job.outcome for job in history.jobs] == [Outcome.RUNNING, Outcome.SUCCEEDED]
    (note,) = [note for note in history.limitations if "job number" in note]
    assert note.startswith("The job number 7.0 is used by several jobs") and host in note


def test_two_logs_with_the_same_numbers(tmp_path):
    for number in (1, 2):
        text = submit("10:00:00", f"10.0.0.{number}") + event(5, TERMINATED, "10:50:00")
        (tmp_path / f"{number}.log").write_text(text)
    history = read_history([str(tmp_path / "1.log"), str(tmp_path / "2.log")])
    assert [job.id for job in history.jobs] == ["7.0", "7.0 (2.log)"]
    (note,) = [note for note in history.limitations if "job number" in note]
    assert "<10.0.0.1:9618>, <10.0.0.2:9618>" in note


def test_repeated_submit_event_is_the_same_job(read_log):
    history = read_log(submit("10:00:00"), submit("10:00:00"), event(5, TERMINATED, "10:50:00"))
    assert [job.id for job in history.jobs] == ["7.0"]
