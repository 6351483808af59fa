"""The rules by which seconds are judged, one by one."""

from __future__ import annotations

import pytest

from packtrain.report.analysis.time_accounting import Share, account_of, judged
from packtrain.report.history import Attempt, Category, Job, Move, Outcome, Phase, Span

IN, OUT, RUN, START = Phase.TRANSFER_IN, Phase.TRANSFER_OUT, Phase.EXECUTE, Phase.START


def attempt(outcome, *pieces, begin=0.0, **more):
    """Pieces: (phase, seconds), one after the other."""
    spans, now = [], begin
    for phase, seconds in pieces:
        spans.append(Span(phase, now, now + seconds))
        now += seconds
    return Attempt(1, tuple(spans), outcome, **more)


def shares(outcome, *attempts):
    """Seconds by share, of each attempt."""
    account = account_of(Job("1.0", attempts, outcome))
    return [{share: count / 1e6 for share, count in stay.micros.items()} for stay in account.attempts]


def test_a_job_that_succeeded_at_once():
    unpacked = (START, 5), (IN, 100), (Phase.UNPACK, 20), (RUN, 1000), (OUT, 30), (START, 2)
    (found,) = shares(Outcome.SUCCEEDED, attempt(Outcome.SUCCEEDED, *unpacked))
    assert found == {Share.OVERHEAD: 7, Share.TRANSFER: 150, Share.COMPUTE: 1000}, "unpacking belongs to its transfer"


@pytest.mark.parametrize(
    ("outcome", "category", "share"),
    [
        (Outcome.EVICTED, Category.NONE, Share.EVICTION),
        (Outcome.TIME_LIMIT, Category.NONE, Share.TIME_LIMIT),
        (Outcome.WRONG_OUTPUT, Category.NONE, Share.OUTPUT),
        (Outcome.FAILED, Category.PROGRAM, Share.FAILURE),
        (Outcome.HELD, Category.TIME_LIMIT, Share.TIME_LIMIT),
        (Outcome.HELD, Category.UNKNOWN, Share.FAILURE),
        (Outcome.REMOVED, Category.PERSON, Share.FAILURE),
        (Outcome.LOST, Category.EVICTION, Share.EVICTION),
        (Outcome.LOST, Category.NONE, Share.FAILURE),
    ],
)
def test_compute_that_came_to_nothing(outcome, category, share):
    lost = attempt(outcome, (IN, 10), (RUN, 100), (Phase.DISCONNECTED, 50), (Phase.SUSPENDED, 5), category=category)
    good = attempt(Outcome.SUCCEEDED, (IN, 10), (RUN, 100))
    assert shares(Outcome.SUCCEEDED, lost, good) == [
        {Share.THROWN_AWAY: 10, share: 150, Share.OVERHEAD: 5},
        {Share.TRANSFER: 10, Share.COMPUTE: 100},
    ]


def test_an_exit_code_of_0_without_the_output():
    fine = attempt(Outcome.SUCCEEDED, (IN, 10), (RUN, 100))
    assert shares(Outcome.WRONG_OUTPUT, fine) == [{Share.THROWN_AWAY: 10, Share.OUTPUT: 100}]


def test_transfers_that_were_begun_again_on_the_same_slot():
    """The first stalled at 60, the second came; a source that failed beside one that came cost nothing."""
    moves = (Move(0, 60, whole=False), Move(60, 40), Move(70, 10, whole=False))
    good = attempt(Outcome.SUCCEEDED, (IN, 100), (RUN, 500), moves=moves)
    assert shares(Outcome.SUCCEEDED, good) == [{Share.THROWN_AWAY: 60, Share.TRANSFER: 40, Share.COMPUTE: 500}]


def test_what_another_attempt_went_on_from_is_kept():
    first = attempt(Outcome.EVICTED, (IN, 10), (RUN, 100), kept_s=70)
    second = attempt(Outcome.SUCCEEDED, (IN, 12), (Phase.CHECKPOINT, 3), (RUN, 50))
    assert shares(Outcome.SUCCEEDED, first, second) == [
        {Share.TRANSFER: 10, Share.COMPUTE: 70, Share.EVICTION: 30},
        {Share.RESTART: 15, Share.COMPUTE: 50},
    ], "the job needs one transfer: the second one is what going on elsewhere costs"


def test_compute_is_kept_from_the_beginning_of_several_spans():
    first = attempt(Outcome.EVICTED, (RUN, 40), (Phase.CHECKPOINT, 5), (RUN, 40), kept_s=50)
    second = attempt(Outcome.SUCCEEDED, (RUN, 10), begin=100)
    charges, _ = judged(Job("1.0", (first, second), Outcome.SUCCEEDED))
    assert [(c.start, c.end, c.phase, c.share) for c in charges] == [
        (0, 40, RUN, Share.COMPUTE),
        (40, 45, Phase.CHECKPOINT, Share.RESTART),
        (45, 55, RUN, Share.COMPUTE),
        (55, 85, RUN, Share.EVICTION),
    ]


def test_one_that_left_with_a_checkpoint():
    first = attempt(Outcome.CONTINUES, (IN, 10), (RUN, 100), (OUT, 4), kept_s=95)
    second = attempt(Outcome.SUCCEEDED, (RUN, 50), (OUT, 6))
    assert shares(Outcome.SUCCEEDED, first, second) == [
        {Share.TRANSFER: 14, Share.COMPUTE: 95, Share.RESTART: 5},
        {Share.COMPUTE: 50, Share.RESTART: 6},
    ]


def test_what_was_kept_for_a_job_that_failed_in_the_end():
    first = attempt(Outcome.CONTINUES, (IN, 10), (RUN, 100), kept_s=95)
    second = attempt(Outcome.TIME_LIMIT, (IN, 10), (RUN, 50))
    assert shares(Outcome.TIME_LIMIT, first, second) == [
        {Share.THROWN_AWAY: 10, Share.TIME_LIMIT: 100},
        {Share.THROWN_AWAY: 10, Share.TIME_LIMIT: 50},
    ]


def test_of_two_copies_the_first_to_end_counts():
    slow = attempt(Outcome.SUCCEEDED, (IN, 10), (RUN, 300), kept_s=300)
    quick = attempt(Outcome.SUCCEEDED, (IN, 10), (RUN, 100), begin=50, kept_s=100)
    assert shares(Outcome.SUCCEEDED, slow, quick) == [
        {Share.THROWN_AWAY: 10, Share.FAILURE: 300},
        {Share.TRANSFER: 10, Share.COMPUTE: 100},
    ]


def test_nobody_judges_what_is_under_way():
    left = attempt(Outcome.EVICTED, (IN, 10), (RUN, 100), kept_s=60)
    moves = (Move(200, 5, whole=False),)
    now = attempt(Outcome.RUNNING, (START, 1), (IN, 10), (RUN, 30), begin=199, moves=moves)
    assert shares(Outcome.RUNNING, left, now) == [
        {Share.UNDER_WAY: 70, Share.EVICTION: 40},
        {Share.UNDER_WAY: 41},
    ]


def test_a_program_that_was_out_of_sight_but_came_back():
    good = attempt(Outcome.SUCCEEDED, (RUN, 50), (Phase.DISCONNECTED, 20), (RUN, 30))
    assert shares(Outcome.SUCCEEDED, good) == [{Share.COMPUTE: 80, Share.OVERHEAD: 20}]
