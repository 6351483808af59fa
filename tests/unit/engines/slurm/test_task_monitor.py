"""TaskMonitor: which status of a task counts, and which changes are logged."""

import itertools
import json
import os
import time
from dataclasses import replace

import pytest

from packtrain.engines.slurm import task_monitor
from packtrain.engines.slurm.run_settings import RunSettings
from packtrain.engines.slurm.slurm_client import SlurmClient
from packtrain.engines.slurm.status_log import LOST
from packtrain.engines.slurm.submissions import ArraySubmission, Task
from packtrain.engines.slurm.task_monitor import TaskMonitor, choose_statuses
from packtrain.plan import RunFolder
from packtrain.plan.claim import acquire_claim
from packtrain.slurm.squeue import TaskStatus

PENDING = TaskStatus("pt-a", 7, 0, "PENDING", "Resources")
RUNNING = replace(PENDING, state="RUNNING", node="n1")
TOO_LATE = replace(PENDING, array_job=8, state="FAILED", exit_code=72)
ENDED = replace(RUNNING, state="COMPLETED", exit_code=0)


@pytest.mark.parametrize(
    ("first", "second", "chosen"),
    [
        (RUNNING, replace(PENDING, array_job=8), RUNNING),
        (replace(RUNNING, array_job=8), PENDING, replace(RUNNING, array_job=8)),
        (ENDED, TOO_LATE, ENDED),
        (RUNNING, TOO_LATE, RUNNING),
        (PENDING, replace(PENDING, array_job=8), replace(PENDING, array_job=8)),
    ],
)
def test_array_that_was_submitted_twice(first, second, chosen):
    for statuses in itertools.permutations([first, second]):
        assert choose_statuses(statuses) == {("pt-a", 0): chosen}


class Client(SlurmClient):
    """A client that answers with prepared lists of tasks."""

    def __init__(self, *answers):
        super().__init__({})
        self.answers, self.cancelled = list(answers), []

    def query(self, names):
        return self.answers.pop(0)

    def cancel(self, native_ids):
        self.cancelled += native_ids


def query_all(tmp_path, *answers):
    """Return the client after the answers, and the lines of the status log."""
    client = Client(*answers)
    monitor = TaskMonitor(RunFolder(tmp_path), client, RunSettings())
    monitor.add_submission(ArraySubmission("pt-a", (Task("0-1", "0"),)))
    for _ in answers:
        monitor.query()
        monitor.read_files()
    path = tmp_path / "slurm/status.jsonl"
    return client, [json.loads(line)["status"] for line in path.read_text().splitlines()]


def test_duplicate_is_cancelled(tmp_path):
    client, log = query_all(tmp_path, [RUNNING, replace(PENDING, array_job=8)])
    assert client.cancelled == ["8_0"] and len(log) == 1


def test_small_changes_of_an_estimate_are_not_logged(tmp_path):
    at = time.time() + 3600
    estimates = [at, at + 100, at - 200, at + 7200, at + 7300]
    _, log = query_all(tmp_path, *([replace(PENDING, started_at=estimate)] for estimate in estimates))
    assert [status["started_at"] for status in log] == [at, at + 7200]


def test_start_is_logged_exactly(tmp_path):
    at = time.time() + 3600
    _, log = query_all(tmp_path, [replace(PENDING, started_at=at)], [replace(RUNNING, started_at=at + 10)])
    assert log[-1]["started_at"] == at + 10


@pytest.mark.parametrize(("n_tasks", "factor"), [(1, 1), (500, 2), (1000, 3), (5000, 3)])
def test_many_tasks_are_queried_less_often(tmp_path, n_tasks, factor):
    client = Client([])
    monitor = TaskMonitor(RunFolder(tmp_path), client, RunSettings(query_interval_s=1000.0))
    monitor.add_submission(ArraySubmission("pt-a", tuple(Task(f"{n}-1", str(n)) for n in range(n_tasks))))
    monitor.query()
    assert monitor.next_query_at - time.monotonic() == pytest.approx(1000 * factor, rel=0.02)


class TestLostTasks:
    """The controller has lost a task whose agent may still run."""

    def hold_claim(self, tmp_path):
        return acquire_claim(RunFolder(tmp_path).attempt_folder("0", "0-1").claim)

    def test_agent_runs(self, tmp_path):
        claim_fd = self.hold_claim(tmp_path)
        _, log = query_all(tmp_path, [RUNNING], [], [], [], [RUNNING])
        os.close(claim_fd)
        assert [status["state"] for status in log] == ["RUNNING"]

    def test_agent_has_ended(self, tmp_path):
        os.close(self.hold_claim(tmp_path))
        _, log = query_all(tmp_path, [RUNNING], [], [])
        assert [status["state"] for status in log] == ["RUNNING", LOST]

    def test_lock_of_a_dead_node(self, tmp_path, monkeypatch):
        monkeypatch.setattr(task_monitor, "_MAX_AGENT_WAIT_S", 0.0)
        claim_fd = self.hold_claim(tmp_path)
        _, log = query_all(tmp_path, [RUNNING], [], [])
        os.close(claim_fd)
        assert log[-1]["state"] == LOST

    def test_started_again_while_the_agent_runs(self, tmp_path):
        claim_fd = self.hold_claim(tmp_path)
        _, log = query_all(tmp_path, [RUNNING], [TOO_LATE])
        assert len(log) == 1
        os.close(claim_fd)
        _, log = query_all(tmp_path, [TOO_LATE])
        assert log[-1]["state"] == LOST and log[-1]["exit_code"] is None
