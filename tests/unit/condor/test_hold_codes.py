"""The errors of the published week: each has a failure kind, and is retried on a pool."""

from __future__ import annotations

import pytest

from packtrain.agent.outputs.check import check_expectation
from packtrain.agent.processes.error_patterns import classify_error
from packtrain.condor.hold_codes import HOLD_CODES, NON_HOLD_ENDS, UNKNOWN_HOLD
from packtrain.engines.htcondor.tracking import JobTracker
from packtrain.engines.htcondor.tracking.log_reader import EventLogReader
from packtrain.errors import FailedError
from packtrain.events import FAILURE_KINDS
from packtrain.plan import ExpectedOutput, Job, Limits, Resources
from packtrain.supervise.decisions import Submit
from packtrain.supervise.policies import PolicyConfig, job_result_policy, submit_policy
from tests.support.condor_logs import UserLogBuilder
from tests.support.event_builder import RunBuilder
from tests.support.paths import TESTS_DIR

STUDY = TESTS_DIR / "data/study/ospool-imagenet-100-jobs.csv"
RECORDED = TESTS_DIR / "data/condor-logs/10-hold-transfer-https-404.log"
NOT_FOUND = "Transfer input files failure at execution point slot1@w using protocol osdf. Details: 404 page not found"
SOCKET_CLOSED = "socket between submit and execute hosts closed"
LEASE = "Job disconnected too long: JobLeaseDuration (2400 seconds) expired"


def step_error(exit_code, stderr):
    return lambda tmp_path: classify_error(exit_code, stderr)


def log_error(add_events):
    """Return a function that returns the failure kind of a job with these events in its log."""

    def failure_kind(tmp_path):
        path = tmp_path / "event.log"
        path.write_bytes(add_events(UserLogBuilder().submit(0, "0", "0-1").execute(0)).data)
        return last_failure_kind(path, JobTracker(lambda first_attempt_id: ()))

    return failure_kind


def recorded_error(path):
    """Return a function that returns the failure kind of a job whose log HTCondor wrote."""

    def failure_kind(tmp_path):
        tracker = JobTracker(lambda first_attempt_id: ())
        tracker.add_cluster(11, [("0", "0-1")])
        return last_failure_kind(path, tracker)

    return failure_kind


def last_failure_kind(path, tracker):
    updates = [update for event in EventLogReader(path).read() for update in tracker.apply(event)]
    return [kind for update in updates if (kind := getattr(update, "failure_kind", ""))][-1]


def missing_output(tmp_path):
    """A program that exited with 0, but wrote no output."""
    with pytest.raises(FailedError) as caught:
        check_expectation(ExpectedOutput("model.pt"), tmp_path, lambda command, path: None)
    return caught.value.kind


ERRORS = {
    "404 by HTTPS": (recorded_error(RECORDED), "transfer_refused", "data"),
    "missing module": (step_error(1, "ModuleNotFoundError: No module named 'scipy'"), "module_missing", "user"),
    "OSError 38": (step_error(1, "OSError: [Errno 38] Function not implemented"), "filesystem_unusable", "site"),
    "404": (log_error(lambda log: log.hold(0, NOT_FOUND, 13)), "transfer_refused", "data"),
    "no unzip": (step_error(127, "/bin/sh: 4: unzip: not found"), "program_missing", "user"),
    "missing archive": (
        step_error(1, "FileNotFoundError: [Errno 2] No such file or directory: 'train.tar'"),
        "file_missing",
        "user",
    ),
    "socket closed": (
        log_error(lambda log: log.add_event(7, 0, "Shadow exception!", f"\t{SOCKET_CLOSED}")),
        "evicted",
        "pool",
    ),
    "lease expired": (
        log_error(lambda log: log.add_event(24, 0, "Job reconnection failed", f"    {LEASE}")),
        "lease_expired",
        "pool",
    ),
    "a stalled transfer": (
        log_error(lambda log: log.hold(0, "Transfer input files failure: plugin stalled, no progress for 3600 s", 13)),
        "transfer_stalled",
        "data",
    ),
    "an eviction after stalls": (log_error(lambda log: log.evict(0)), "evicted", "pool"),
    "wrong output": (missing_output, "output_missing", "user"),
}


def test_number_of_404_errors_in_the_study():
    assert STUDY.read_text().count("404 page not found") == 16


@pytest.mark.parametrize("error", ERRORS)
def test_failure_kind(error, tmp_path):
    find_kind, kind, blame = ERRORS[error]
    assert find_kind(tmp_path) == kind
    assert FAILURE_KINDS[kind].blame == blame


POOL = PolicyConfig(jobs={"0": Job("0", (), Resources(), Limits(), ())}, has_multiple_sites=True)


@pytest.mark.parametrize("error", ERRORS)
def test_first_failure_is_retried(error):
    run = RunBuilder()
    run.add_failed_attempt_at("A", 1, ERRORS[error][1])
    assert job_result_policy(POOL)(run.state, ["0"], 0.0) == []
    (decision,) = submit_policy(POOL)(run.state, ["0"], 1e6)
    assert isinstance(decision, Submit)


@pytest.mark.parametrize("error", [e for e, (_, _, blame) in ERRORS.items() if blame == "user"])
def test_user_error_at_two_sites_fails_the_job(error):
    run = RunBuilder()
    run.add_failed_attempt_at("A", 1, ERRORS[error][1])
    run.add_failed_attempt_at("B", 2, ERRORS[error][1])
    (end,) = job_result_policy(POOL)(run.state, ["0"], 0.0)
    assert (end.reason, end.failure.kind) == ("it failed in the same way at 2 sites", ERRORS[error][1])


def test_kinds_are_known():
    kinds = (
        {row.failure_kind for row in HOLD_CODES.values()}
        | {kind for _, kind in NON_HOLD_ENDS}
        | {UNKNOWN_HOLD.failure_kind}
    )
    assert kinds <= set(FAILURE_KINDS)


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (34, "Error from slot1@w: Job has gone over cgroup memory limit of 1024 megabytes", "out_of_memory"),
        (34, "Error from slot1@w: Job has exceeded its requested disk", "disk_full"),
        (13, "Transfer input files failure: file transfer timed out", "transfer_stalled"),
        (13, "Transfer input files failure: the server answered 404", "transfer_refused"),
        (13, "Transfer input files failure: HTTP/1.1 503 Service Unavailable", "transfer_refused"),
        (13, "Transfer input files failure: server returned 404 Not Found", "transfer_refused"),
        (13, "Transfer input files failure: cannot write train_404.tar: Connection refused", "transfer_failed"),
        (13, "Transfer input files failure: The requested URL returned error: 403", "transfer_failed"),
    ],
)
def test_hold_reason(code, reason, kind, tmp_path):
    assert log_error(lambda log: log.hold(0, reason, code))(tmp_path) == kind
