"""The literal table of transitions."""

from __future__ import annotations

import pytest

from packtrain.state import ATTEMPT_TRANSITIONS, LIVE, AttemptStatus
from packtrain.state.transitions import JOB_STATUS, Trigger

A, T = AttemptStatus, Trigger


def test_every_status_has_a_row():
    assert set(ATTEMPT_TRANSITIONS) == set(AttemptStatus)


@pytest.mark.parametrize("status", sorted(set(AttemptStatus) - LIVE))
def test_an_end_is_final(status):
    assert ATTEMPT_TRANSITIONS[status] == {}


@pytest.mark.parametrize("status", sorted(LIVE))
def test_every_living_attempt_can_end_in_every_way(status):
    ends = {T.SUCCEEDED: A.SUCCEEDED, T.FAILED: A.FAILED, T.LEFT: A.LEFT, T.GONE: A.LOST}
    assert {t: s for t, s in ATTEMPT_TRANSITIONS[status].items() if t in ends} == ends


def test_no_row_leads_back():
    order = [A.DECIDED, A.QUEUED, A.RUNNING, A.HELD]
    for before, row in ATTEMPT_TRANSITIONS.items():
        for after in row.values():
            assert after not in LIVE or order.index(after) > order.index(before)


def test_every_living_status_gives_the_job_one():
    assert {attempt for attempt, _ in JOB_STATUS} == LIVE
