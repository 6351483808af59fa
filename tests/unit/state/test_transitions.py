"""The table of transitions."""

from __future__ import annotations

import pytest

from packtrain.state import EXECUTION_TRANSITIONS, LIVE_STATUSES, ExecutionStatus
from packtrain.state.transitions import JOB_STATUS_PRECEDENCE, Trigger

E, T = ExecutionStatus, Trigger


def test_every_status_has_a_row():
    assert set(EXECUTION_TRANSITIONS) == set(ExecutionStatus)


@pytest.mark.parametrize("status", sorted(set(ExecutionStatus) - LIVE_STATUSES))
def test_final_status_has_no_transitions(status):
    assert EXECUTION_TRANSITIONS[status] == {}


@pytest.mark.parametrize("status", sorted(LIVE_STATUSES))
def test_live_execution_can_end_in_every_way(status):
    ends = {T.AGENT_SUCCEEDED: E.SUCCEEDED, T.AGENT_FAILED: E.FAILED, T.AGENT_REQUEUED: E.REQUEUED, T.GONE: E.LOST}
    assert {t: s for t, s in EXECUTION_TRANSITIONS[status].items() if t in ends} == ends


def test_no_transition_leads_back():
    order = [E.SUBMITTING, E.QUEUED, E.RUNNING, E.HELD]
    for before, row in EXECUTION_TRANSITIONS.items():
        for after in row.values():
            assert after not in LIVE_STATUSES or order.index(after) > order.index(before)


def test_job_status_for_every_live_status():
    """A job also has a status while the outputs of an execution that succeeded are published."""
    assert {status for status, _ in JOB_STATUS_PRECEDENCE} == {*LIVE_STATUSES, E.SUCCEEDED}
