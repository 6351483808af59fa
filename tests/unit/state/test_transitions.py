"""The literal table of transitions."""

from __future__ import annotations

import pytest

from packtrain.state import EXECUTION_TRANSITIONS, LIVE_STATUSES, ExecutionStatus
from packtrain.state.transitions import JOB_STATUS_PRECEDENCE, Trigger

A, T = ExecutionStatus, Trigger


def test_every_status_has_a_row():
    assert set(EXECUTION_TRANSITIONS) == set(ExecutionStatus)


@pytest.mark.parametrize("status", sorted(set(ExecutionStatus) - LIVE_STATUSES))
def test_an_end_is_final(status):
    assert EXECUTION_TRANSITIONS[status] == {}


@pytest.mark.parametrize("status", sorted(LIVE_STATUSES))
def test_every_living_attempt_can_end_in_every_way(status):
    ends = {T.AGENT_SUCCEEDED: A.SUCCEEDED, T.AGENT_FAILED: A.FAILED, T.AGENT_REQUEUED: A.REQUEUED, T.GONE: A.LOST}
    assert {t: s for t, s in EXECUTION_TRANSITIONS[status].items() if t in ends} == ends


def test_no_row_leads_back():
    order = [A.SUBMITTING, A.QUEUED, A.RUNNING, A.HELD]
    for before, row in EXECUTION_TRANSITIONS.items():
        for after in row.values():
            assert after not in LIVE_STATUSES or order.index(after) > order.index(before)


def test_every_living_status_gives_the_job_one():
    assert {attempt for attempt, _ in JOB_STATUS_PRECEDENCE} == LIVE_STATUSES
