"""The rules of time accounting, one by one."""

from __future__ import annotations

import pytest

from packtrain.report.analysis.time_accounting import TimeUse, account_job, classify_job_time
from packtrain.report.history import (
    ExecutionRecord,
    FailureCategory,
    InputTransfer,
    JobRecord,
    Outcome,
    Phase,
    PhaseSpan,
)

IN, OUT, EXECUTE, SETUP = Phase.TRANSFER_IN, Phase.TRANSFER_OUT, Phase.EXECUTE, Phase.SETUP


def execution(outcome, *phases, start=0.0, **fields):
    """An execution with consecutive phases, given as (phase, seconds)."""
    spans, now = [], start
    for phase, seconds in phases:
        spans.append(PhaseSpan(phase, now, now + seconds))
        now += seconds
    return ExecutionRecord(1, tuple(spans), outcome, **fields)


def time_use(outcome, *executions):
    """The seconds by time use of each execution."""
    job_time = account_job(JobRecord("1.0", executions, outcome))
    return [{use: us / 1e6 for use, us in execution.time_use_us.items()} for execution in job_time.executions]


def test_successful_job():
    phases = (SETUP, 5), (IN, 100), (Phase.UNPACK, 20), (EXECUTE, 1000), (OUT, 30), (SETUP, 2)
    (seconds,) = time_use(Outcome.SUCCEEDED, execution(Outcome.SUCCEEDED, *phases))
    assert seconds == {TimeUse.OVERHEAD: 7, TimeUse.USEFUL_TRANSFER: 150, TimeUse.USEFUL_COMPUTE: 1000}, (
        "unpacking counts as transfer"
    )


@pytest.mark.parametrize(
    ("outcome", "category", "use"),
    [
        (Outcome.EVICTED, FailureCategory.NONE, TimeUse.LOST_TO_EVICTION),
        (Outcome.TIME_LIMIT, FailureCategory.NONE, TimeUse.LOST_TO_TIME_LIMIT),
        (Outcome.WRONG_OUTPUT, FailureCategory.NONE, TimeUse.LOST_TO_WRONG_OUTPUT),
        (Outcome.FAILED, FailureCategory.PROGRAM, TimeUse.LOST_TO_FAILURE),
        (Outcome.HELD, FailureCategory.TIME_LIMIT, TimeUse.LOST_TO_TIME_LIMIT),
        (Outcome.HELD, FailureCategory.UNKNOWN, TimeUse.LOST_TO_FAILURE),
        (Outcome.REMOVED, FailureCategory.USER, TimeUse.LOST_TO_FAILURE),
        (Outcome.LOST, FailureCategory.EVICTION, TimeUse.LOST_TO_EVICTION),
        (Outcome.LOST, FailureCategory.NONE, TimeUse.LOST_TO_FAILURE),
    ],
)
def test_lost_compute(outcome, category, use):
    lost = execution(
        outcome, (IN, 10), (EXECUTE, 100), (Phase.DISCONNECTED, 50), (Phase.SUSPENDED, 5), category=category
    )
    good = execution(Outcome.SUCCEEDED, (IN, 10), (EXECUTE, 100))
    assert time_use(Outcome.SUCCEEDED, lost, good) == [
        {TimeUse.WASTED_TRANSFER: 10, use: 150, TimeUse.OVERHEAD: 5},
        {TimeUse.USEFUL_TRANSFER: 10, TimeUse.USEFUL_COMPUTE: 100},
    ]


def test_wrong_output():
    fine = execution(Outcome.SUCCEEDED, (IN, 10), (EXECUTE, 100))
    assert time_use(Outcome.WRONG_OUTPUT, fine) == [{TimeUse.WASTED_TRANSFER: 10, TimeUse.LOST_TO_WRONG_OUTPUT: 100}]


def test_repeated_transfer():
    """The first try stalled for 60 s. A failed try at the same time as a complete one wastes nothing."""
    transfers = (InputTransfer(0, 60, complete=False), InputTransfer(60, 40), InputTransfer(70, 10, complete=False))
    good = execution(Outcome.SUCCEEDED, (IN, 100), (EXECUTE, 500), input_transfers=transfers)
    assert time_use(Outcome.SUCCEEDED, good) == [
        {TimeUse.WASTED_TRANSFER: 60, TimeUse.USEFUL_TRANSFER: 40, TimeUse.USEFUL_COMPUTE: 500}
    ]


def test_resumed_compute_is_useful():
    first = execution(Outcome.EVICTED, (IN, 10), (EXECUTE, 100), retained_compute_s=70)
    second = execution(Outcome.SUCCEEDED, (IN, 12), (Phase.CHECKPOINT, 3), (EXECUTE, 50))
    assert time_use(Outcome.SUCCEEDED, first, second) == [
        {TimeUse.USEFUL_TRANSFER: 10, TimeUse.USEFUL_COMPUTE: 70, TimeUse.LOST_TO_EVICTION: 30},
        {TimeUse.CHECKPOINT_RESTART: 15, TimeUse.USEFUL_COMPUTE: 50},
    ], "a job needs one transfer: the second one is a cost of the restart"


def test_retained_compute_covers_several_spans():
    first = execution(Outcome.EVICTED, (EXECUTE, 40), (Phase.CHECKPOINT, 5), (EXECUTE, 40), retained_compute_s=50)
    second = execution(Outcome.SUCCEEDED, (EXECUTE, 10), start=100)
    intervals, _ = classify_job_time(JobRecord("1.0", (first, second), Outcome.SUCCEEDED))
    assert [(item.start, item.end, item.phase, item.use) for item in intervals] == [
        (0, 40, EXECUTE, TimeUse.USEFUL_COMPUTE),
        (40, 45, Phase.CHECKPOINT, TimeUse.CHECKPOINT_RESTART),
        (45, 55, EXECUTE, TimeUse.USEFUL_COMPUTE),
        (55, 85, EXECUTE, TimeUse.LOST_TO_EVICTION),
    ]


def test_checkpointed_execution():
    first = execution(Outcome.CHECKPOINTED, (IN, 10), (EXECUTE, 100), (OUT, 4), retained_compute_s=95)
    second = execution(Outcome.SUCCEEDED, (EXECUTE, 50), (OUT, 6))
    assert time_use(Outcome.SUCCEEDED, first, second) == [
        {TimeUse.USEFUL_TRANSFER: 14, TimeUse.USEFUL_COMPUTE: 95, TimeUse.CHECKPOINT_RESTART: 5},
        {TimeUse.USEFUL_COMPUTE: 50, TimeUse.CHECKPOINT_RESTART: 6},
    ]


def test_retained_compute_of_a_failed_job():
    first = execution(Outcome.CHECKPOINTED, (IN, 10), (EXECUTE, 100), retained_compute_s=95)
    second = execution(Outcome.TIME_LIMIT, (IN, 10), (EXECUTE, 50))
    assert time_use(Outcome.TIME_LIMIT, first, second) == [
        {TimeUse.WASTED_TRANSFER: 10, TimeUse.LOST_TO_TIME_LIMIT: 100},
        {TimeUse.WASTED_TRANSFER: 10, TimeUse.LOST_TO_TIME_LIMIT: 50},
    ]


def test_first_of_two_copies_counts():
    slow = execution(Outcome.SUCCEEDED, (IN, 10), (EXECUTE, 300), retained_compute_s=300)
    quick = execution(Outcome.SUCCEEDED, (IN, 10), (EXECUTE, 100), start=50, retained_compute_s=100)
    assert time_use(Outcome.SUCCEEDED, slow, quick) == [
        {TimeUse.WASTED_TRANSFER: 10, TimeUse.LOST_TO_FAILURE: 300},
        {TimeUse.USEFUL_TRANSFER: 10, TimeUse.USEFUL_COMPUTE: 100},
    ]


def test_unfinished_job():
    evicted = execution(Outcome.EVICTED, (IN, 10), (EXECUTE, 100), retained_compute_s=60)
    transfers = (InputTransfer(200, 5, complete=False),)
    running = execution(Outcome.RUNNING, (SETUP, 1), (IN, 10), (EXECUTE, 30), start=199, input_transfers=transfers)
    assert time_use(Outcome.RUNNING, evicted, running) == [
        {TimeUse.IN_PROGRESS: 70, TimeUse.LOST_TO_EVICTION: 40},
        {TimeUse.IN_PROGRESS: 41},
    ]


def test_reconnected_execution():
    good = execution(Outcome.SUCCEEDED, (EXECUTE, 50), (Phase.DISCONNECTED, 20), (EXECUTE, 30))
    assert time_use(Outcome.SUCCEEDED, good) == [{TimeUse.USEFUL_COMPUTE: 80, TimeUse.OVERHEAD: 20}]
