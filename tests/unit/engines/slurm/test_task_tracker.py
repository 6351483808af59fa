"""TaskTracker: the fold of the status log to updates."""

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packtrain.engines.slurm.status_log import LOST, REJECTED, StatusRecord
from packtrain.engines.slurm.submissions import ArraySubmission, Task
from packtrain.engines.slurm.task_tracker import TaskTracker
from packtrain.engines.updates import ExecutionInterrupted, ExecutionStarted, Gone, Held, Queued, Released
from packtrain.slurm.job_states import JOB_STATES, PENDING_REASONS
from packtrain.slurm.squeue import TaskStatus

PENDING = TaskStatus("pt-a", 7, 0, "PENDING", "Resources")
RUNNING = TaskStatus("pt-a", 7, 0, "RUNNING", "None", partition="main", node="n1", started_at=100.0)
COMPLETED = replace(RUNNING, state="COMPLETED", exit_code=0)


def fold(*statuses):
    tracker = TaskTracker()
    tracker.add_submission(ArraySubmission("pt-a", (Task("0-1", "0"),)))
    records = (StatusRecord("pt-a", 0, 200.0 + n, status, position=1 + 10 * n) for n, status in enumerate(statuses))
    return [update for record in records for update in tracker.apply(record)]


def types(updates):
    return [type(update) for update in updates]


def test_success():
    queued, started, gone = fold(PENDING, RUNNING, COMPLETED)
    assert queued.reason == "waits for free resources"
    assert (started.execution, started.host, started.site, started.occurred_at) == (1, "n1", "n1", 100.0)
    assert (gone.exit_code, gone.native_id, gone.failure_kind) == (0, "7_0", "")


def test_expected_start():
    at = time.mktime((2026, 11, 18, 14, 30, 0, 0, 0, -1))
    (queued,) = fold(replace(PENDING, started_at=at))
    assert queued.reason == "waits for free resources; Slurm expects to start it on 18 Nov at 14:30"
    (waiting,) = fold(replace(PENDING, reason="BeginTime", started_at=at))
    assert waiting.reason.startswith("waits for its start time") and "14:30" not in waiting.reason


def test_exit_code_of_a_job_that_slurm_ended():
    assert fold(RUNNING, replace(RUNNING, state="TIMEOUT", exit_code=0))[-1].exit_code is None


def test_ended_between_two_polls():
    assert types(fold(PENDING, COMPLETED)) == [Queued, ExecutionStarted, Gone]


@pytest.mark.parametrize("completing_restarts", [0, 1], ids=["26.05", "22.05 counts the restart early"])
def test_requeue(completing_restarts):
    completing = replace(RUNNING, state="COMPLETING", restarts=completing_restarts)
    waiting = replace(PENDING, reason="BeginTime", restarts=1)
    updates = fold(RUNNING, completing, waiting, replace(RUNNING, restarts=1))
    assert types(updates) == [ExecutionStarted, ExecutionInterrupted, Queued, ExecutionStarted]
    assert [u.execution for u in updates if not isinstance(u, Queued)] == [1, 1, 2]


def test_requeued_between_two_polls():
    assert types(fold(RUNNING, replace(RUNNING, restarts=1, node="n2"))) == [
        ExecutionStarted, ExecutionInterrupted, ExecutionStarted,
    ]  # fmt: skip


def test_hold_and_release():
    held = replace(PENDING, reason="launch failed requeued held")
    updates = fold(held, held, PENDING)
    assert types(updates) == [Held, Queued, Released, Queued]
    assert updates[0].action == "release"


def test_held_job_is_cancelled():
    """It was never released, so the reason of the hold is why the attempt failed."""
    held = replace(PENDING, reason="launch failed requeued held")
    assert types(fold(held, TaskStatus("pt-a", 7, 0, LOST))) == [Held, Queued, Gone]
    assert types(fold(held, replace(held, state="CANCELLED", reason="None"))) == [Held, Queued, Gone]


@pytest.mark.parametrize(
    ("status", "kind", "text"),
    [
        (replace(RUNNING, state="OUT_OF_MEMORY", reason="OutOfMemory", exit_code=-125), "out_of_memory", "more memory"),
        (replace(RUNNING, state="TIMEOUT", reason="TimeLimit", exit_code=-15), "pool_time_limit", "time limit"),
        (replace(RUNNING, state="NODE_FAIL", reason="NodeDown"), "evicted", "node failed"),
        (replace(RUNNING, state="FAILED", reason="NonZeroExitCode", exit_code=60), "", "exit code 60"),
        (replace(RUNNING, state="FAILED", exit_code=-9), "", "SIGKILL"),
        (replace(RUNNING, state="FAILED", exit_code=-125), "", "signal 125"),
        (TaskStatus("pt-a", 0, 0, REJECTED, "invalid partition"), "submit_rejected", "invalid partition"),
        (TaskStatus("pt-a", 7, 0, LOST), "", "Slurm lost the job"),
        (TaskStatus("pt-a", 7, 0, LOST, exit_code=0), "", "exit code 0"),
    ],
)
def test_ends(status, kind, text):
    gone = fold(RUNNING, status)[-1]
    assert isinstance(gone, Gone) and gone.failure_kind == kind and text in gone.detail


def test_cancelled_while_pending():
    tracker = TaskTracker()
    tracker.add_submission(ArraySubmission("pt-a", (Task("0-1", "0"),)))
    tracker.apply(StatusRecord("pt-a", 0, 1.0, None, 1))
    (gone,) = tracker.apply(StatusRecord("pt-a", 0, 2.0, TaskStatus("pt-a", 7, 0, LOST), 50))
    assert "cancelled before it started" in gone.detail


statuses = st.builds(
    TaskStatus,
    st.just("pt-a"),
    st.just(7),
    st.just(0),
    st.sampled_from([*JOB_STATES, LOST, REJECTED, "NEW_STATE"]),
    st.sampled_from([*PENDING_REASONS, "NewReason", ""]),
    restarts=st.integers(0, 4),
    exit_code=st.sampled_from([None, 0, 1, 72, -9, -125]),
    node=st.sampled_from(["", "n1", "n2"]),
)


@given(st.lists(statuses, max_size=12))
def test_any_order_of_statuses(history):
    """Executions alternate with interruptions, sequence numbers grow, and nothing follows the end."""
    updates = fold(*history)
    assert types(updates).count(Gone) <= 1 and (Gone not in types(updates) or isinstance(updates[-1], Gone))
    seqs = [update.seq for update in updates if update.seq]
    assert seqs == sorted(set(seqs))
    running = 0
    for update in updates:
        if isinstance(update, ExecutionStarted):
            assert not running
            running = update.execution
        elif isinstance(update, ExecutionInterrupted):
            assert running == update.execution
            running = 0
