"""The rules by which seconds are judged, one by one."""

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

IN, OUT, RUN, START = Phase.TRANSFER_IN, Phase.TRANSFER_OUT, Phase.EXECUTE, Phase.SETUP


def attempt(outcome, *pieces, begin=0.0, **more):
    """Pieces: (phase, seconds), one after the other."""
    spans, now = [], begin
    for phase, seconds in pieces:
        spans.append(PhaseSpan(phase, now, now + seconds))
        now += seconds
    return ExecutionRecord(1, tuple(spans), outcome, **more)


def shares(outcome, *attempts):
    """Seconds by share, of each attempt."""
    account = account_job(JobRecord("1.0", attempts, outcome))
    return [{share: count / 1e6 for share, count in stay.time_use_us.items()} for stay in account.executions]


def test_a_job_that_succeeded_at_once():
    unpacked = (START, 5), (IN, 100), (Phase.UNPACK, 20), (RUN, 1000), (OUT, 30), (START, 2)
    (found,) = shares(Outcome.SUCCEEDED, attempt(Outcome.SUCCEEDED, *unpacked))
    assert found == {TimeUse.OVERHEAD: 7, TimeUse.USEFUL_TRANSFER: 150, TimeUse.USEFUL_COMPUTE: 1000}, (
        "unpacking belongs to its transfer"
    )


@pytest.mark.parametrize(
    ("outcome", "category", "share"),
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
def test_compute_that_came_to_nothing(outcome, category, share):
    lost = attempt(outcome, (IN, 10), (RUN, 100), (Phase.DISCONNECTED, 50), (Phase.SUSPENDED, 5), category=category)
    good = attempt(Outcome.SUCCEEDED, (IN, 10), (RUN, 100))
    assert shares(Outcome.SUCCEEDED, lost, good) == [
        {TimeUse.WASTED_TRANSFER: 10, share: 150, TimeUse.OVERHEAD: 5},
        {TimeUse.USEFUL_TRANSFER: 10, TimeUse.USEFUL_COMPUTE: 100},
    ]


def test_an_exit_code_of_0_without_the_output():
    fine = attempt(Outcome.SUCCEEDED, (IN, 10), (RUN, 100))
    assert shares(Outcome.WRONG_OUTPUT, fine) == [{TimeUse.WASTED_TRANSFER: 10, TimeUse.LOST_TO_WRONG_OUTPUT: 100}]


def test_transfers_that_were_begun_again_on_the_same_slot():
    """The first stalled at 60, the second came; a source that failed beside one that came cost nothing."""
    moves = (InputTransfer(0, 60, complete=False), InputTransfer(60, 40), InputTransfer(70, 10, complete=False))
    good = attempt(Outcome.SUCCEEDED, (IN, 100), (RUN, 500), input_transfers=moves)
    assert shares(Outcome.SUCCEEDED, good) == [
        {TimeUse.WASTED_TRANSFER: 60, TimeUse.USEFUL_TRANSFER: 40, TimeUse.USEFUL_COMPUTE: 500}
    ]


def test_what_another_attempt_went_on_from_is_kept():
    first = attempt(Outcome.EVICTED, (IN, 10), (RUN, 100), retained_compute_s=70)
    second = attempt(Outcome.SUCCEEDED, (IN, 12), (Phase.CHECKPOINT, 3), (RUN, 50))
    assert shares(Outcome.SUCCEEDED, first, second) == [
        {TimeUse.USEFUL_TRANSFER: 10, TimeUse.USEFUL_COMPUTE: 70, TimeUse.LOST_TO_EVICTION: 30},
        {TimeUse.CHECKPOINT_RESTART: 15, TimeUse.USEFUL_COMPUTE: 50},
    ], "the job needs one transfer: the second one is what going on elsewhere costs"


def test_compute_is_kept_from_the_beginning_of_several_spans():
    first = attempt(Outcome.EVICTED, (RUN, 40), (Phase.CHECKPOINT, 5), (RUN, 40), retained_compute_s=50)
    second = attempt(Outcome.SUCCEEDED, (RUN, 10), begin=100)
    charges, _ = classify_job_time(JobRecord("1.0", (first, second), Outcome.SUCCEEDED))
    assert [(c.start, c.end, c.phase, c.use) for c in charges] == [
        (0, 40, RUN, TimeUse.USEFUL_COMPUTE),
        (40, 45, Phase.CHECKPOINT, TimeUse.CHECKPOINT_RESTART),
        (45, 55, RUN, TimeUse.USEFUL_COMPUTE),
        (55, 85, RUN, TimeUse.LOST_TO_EVICTION),
    ]


def test_one_that_left_with_a_checkpoint():
    first = attempt(Outcome.CHECKPOINTED, (IN, 10), (RUN, 100), (OUT, 4), kept_s=95)
    second = attempt(Outcome.SUCCEEDED, (RUN, 50), (OUT, 6))
    assert shares(Outcome.SUCCEEDED, first, second) == [
        {TimeUse.USEFUL_TRANSFER: 14, TimeUse.USEFUL_COMPUTE: 95, TimeUse.CHECKPOINT_RESTART: 5},
        {TimeUse.USEFUL_COMPUTE: 50, TimeUse.CHECKPOINT_RESTART: 6},
    ]


def test_what_was_kept_for_a_job_that_failed_in_the_end():
    first = attempt(Outcome.CHECKPOINTED, (IN, 10), (RUN, 100), kept_s=95)
    second = attempt(Outcome.TIME_LIMIT, (IN, 10), (RUN, 50))
    assert shares(Outcome.TIME_LIMIT, first, second) == [
        {TimeUse.WASTED_TRANSFER: 10, TimeUse.LOST_TO_TIME_LIMIT: 100},
        {TimeUse.WASTED_TRANSFER: 10, TimeUse.LOST_TO_TIME_LIMIT: 50},
    ]


def test_of_two_copies_the_first_to_end_counts():
    slow = attempt(Outcome.SUCCEEDED, (IN, 10), (RUN, 300), kept_s=300)
    quick = attempt(Outcome.SUCCEEDED, (IN, 10), (RUN, 100), begin=50, kept_s=100)
    assert shares(Outcome.SUCCEEDED, slow, quick) == [
        {TimeUse.WASTED_TRANSFER: 10, TimeUse.LOST_TO_FAILURE: 300},
        {TimeUse.USEFUL_TRANSFER: 10, TimeUse.USEFUL_COMPUTE: 100},
    ]


def test_nobody_judges_what_is_under_way():
    left = attempt(Outcome.EVICTED, (IN, 10), (RUN, 100), kept_s=60)
    moves = (InputTransfer(200, 5, complete=False),)
    now = attempt(Outcome.RUNNING, (START, 1), (IN, 10), (RUN, 30), begin=199, moves=moves)
    assert shares(Outcome.RUNNING, left, now) == [
        {TimeUse.IN_PROGRESS: 70, TimeUse.LOST_TO_EVICTION: 40},
        {TimeUse.IN_PROGRESS: 41},
    ]


def test_a_program_that_was_out_of_sight_but_came_back():
    good = attempt(Outcome.SUCCEEDED, (RUN, 50), (Phase.DISCONNECTED, 20), (RUN, 30))
    assert shares(Outcome.SUCCEEDED, good) == [{TimeUse.USEFUL_COMPUTE: 80, TimeUse.OVERHEAD: 20}]
