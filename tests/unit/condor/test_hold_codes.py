"""The errors of the published week: each has its row in the table, and what is done about it in a pool."""

from __future__ import annotations

import pytest

from packtrain.agent.outputs.check import check_expectation
from packtrain.agent.processes.error_patterns import classify_error
from packtrain.condor.hold_codes import HOLD_CODES, NON_HOLD_ENDS, UNKNOWN_HOLD
from packtrain.engines.htcondor.job_tracker import JobTracker
from packtrain.engines.htcondor.log_reader import EventLogReader
from packtrain.errors import FailedError
from packtrain.events import FAILURE_KINDS
from packtrain.plan import ExpectedOutput, Job, Limits, Resources
from packtrain.supervise.decisions import Submit
from packtrain.supervise.policies import PolicyConfig, job_result_policy, submit_policy
from tests.support.condor_logs import UserLogBuilder
from tests.support.event_builder import RunBuilder
from tests.support.paths import TESTS_DIR

SUBMITTED = UserLogBuilder().submit(0, "0", "0-1")
STUDY = TESTS_DIR / "data/study/ospool-imagenet-100-jobs.csv"
RECORDED = TESTS_DIR / "data/condor-logs/10-hold-transfer-https-404.log"
NOT_FOUND = "Transfer input files failure at execution point slot1@w using protocol osdf. Details: 404 page not found"
LEASE = "Job disconnected too long: JobLeaseDuration (2400 seconds) expired"


def said(*words):
    return lambda tmp_path: classify_error(*words)


def logged(make):
    def kind(tmp_path):
        path = tmp_path / "user.log"
        path.write_bytes(make(UserLogBuilder().submit(0, "0", "0-1").execute(0)).data)
        tracker = JobTracker(lambda first: ())
        return [seen.failure_kind for record in EventLogReader(path).read() for seen in tracker.apply(record)][-1]

    return kind


def recorded(path):
    """What our own reader says of a log that HTCondor wrote, as of a job of ours."""

    def kind(tmp_path):
        tracker = JobTracker(lambda first: ())
        tracker.add_cluster(11, [("0", "0-1")])
        return [
            seen.failure_kind
            for record in EventLogReader(path).read()
            for seen in tracker.apply(record)
            if seen.failure_kind
        ][-1]

    return kind


def judged(tmp_path):
    """A program that ended with 0 and made nothing."""
    with pytest.raises(FailedError) as caught:
        check_expectation(ExpectedOutput("model.pt"), tmp_path, lambda command, path: None)
    return caught.value.kind


ERRORS = {
    "404 by HTTPS": (recorded(RECORDED), "transfer_refused", "data"),
    "missing module": (said(1, "ModuleNotFoundError: No module named 'scipy'"), "module_missing", "user"),
    "OSError 38": (said(1, "OSError: [Errno 38] Function not implemented"), "filesystem_unusable", "site"),
    "404": (logged(lambda log: log.hold(0, NOT_FOUND, 13)), "transfer_refused", "data"),
    "no unzip": (said(127, "/bin/sh: 4: unzip: not found"), "program_missing", "user"),
    "missing archive": (
        said(1, "FileNotFoundError: [Errno 2] No such file or directory: 'train.tar'"),
        "file_missing",
        "user",
    ),
    "socket closed": (
        logged(lambda log: log._add(7, 0, "Shadow exception!", "\tsocket between submit and execute hosts closed")),
        "evicted",
        "pool",
    ),
    "lease expired": (
        logged(lambda log: log._add(24, 0, "Job reconnection failed", f"    {LEASE}")),
        "lease_expired",
        "pool",
    ),
    "a stalled transfer": (
        logged(lambda log: log.hold(0, "Transfer input files failure: plugin stalled, no progress for 3600 s", 13)),
        "transfer_stalled",
        "data",
    ),
    "an eviction after stalls": (logged(lambda log: log.evict(0)), "evicted", "pool"),
    "wrong output": (judged, "output_missing", "user"),
}


def test_that_is_what_the_table_of_the_week_says():
    assert STUDY.read_text().count("404 page not found") == 16


@pytest.mark.parametrize("error", ERRORS)
def test_each_has_its_row(error, tmp_path):
    produce, kind, blame = ERRORS[error]
    assert produce(tmp_path) == kind
    assert FAILURE_KINDS[kind].blame == blame


POOL = PolicyConfig(jobs={"0": Job("0", (), Resources(), Limits(), ())}, many_sites=True)


@pytest.mark.parametrize("error", ERRORS)
def test_after_one_failure_all_are_tried_again_in_a_pool(error):
    story = RunBuilder()
    story.add_failed_attempt_at("A", 1, ERRORS[error][1])
    assert job_result_policy(POOL)(story.state, ["0"], 0.0) == []
    (again,) = submit_policy(POOL)(story.state, ["0"], 1e6)
    assert isinstance(again, Submit)


@pytest.mark.parametrize("error", [e for e, (_, _, blame) in ERRORS.items() if blame == "user"])
def test_a_mistake_of_the_user_is_believed_when_another_site_says_the_same(error):
    story = RunBuilder()
    story.add_failed_attempt_at("A", 1, ERRORS[error][1])
    story.add_failed_attempt_at("B", 2, ERRORS[error][1])
    (end,) = job_result_policy(POOL)(story.state, ["0"], 0.0)
    assert (end.reason, end.failure.kind) == ("it failed alike at 2 sites", ERRORS[error][1])


def test_everything_that_is_seen_from_outside_has_a_kind():
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
def test_the_reason_of_a_hold_can_tell_more(code, reason, kind, tmp_path):
    assert logged(lambda log: log.hold(0, reason, code))(tmp_path) == kind
