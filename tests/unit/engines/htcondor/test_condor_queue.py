"""What the engine learns from the queue: progress, and jobs that vanished from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from packtrain.engines.htcondor.condor_client import ScheddUnreachableError
from packtrain.engines.htcondor.tracking import CondorQueue, JobMonitor, TrackedJob
from packtrain.engines.updates import Gone, ProgressReported
from packtrain.plan import RunFolder
from tests.support.condor_logs import UserLogBuilder
from tests.support.condor_plans import make_job, make_plan


@dataclass
class FakeSchedd:
    """Stands in for CondorClient; counts queries."""

    ads: list[dict[str, Any]] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)
    is_down: bool = False
    now: float = 0.0
    n_queries: int = 0

    def query(self, constraint: str, projection: Any, include_clusters: bool = False) -> list[dict[str, Any]]:
        self.n_queries += 1
        if self.is_down:
            raise ScheddUnreachableError("no answer")
        return self.ads

    def query_history(self, constraint: str, projection: Any, max_results: int) -> list[dict[str, Any]]:
        return self.history


@pytest.fixture
def schedd():
    return FakeSchedd()


@pytest.fixture
def queue(schedd):
    return CondorQueue("run-1", 1, schedd, monotonic=lambda: schedd.now)


def running_job() -> TrackedJob:
    return TrackedJob("0", "0-1", (12, 0), is_materialized=True, is_running=True)


def ad(**attributes: Any) -> dict[str, Any]:
    return {"ClusterId": 12, "ProcId": 0, "PacktrainAttempt": "0-1", **attributes}


def test_progress(queue, schedd):
    schedd.ads = [ad(PacktrainStep=7, PacktrainMetrics='{"loss": 0.5}', ChirpPacktrainStage="steps")]
    expected = {"step": 7, "metrics": {"loss": 0.5}, "stage": "steps"}
    assert queue.poll_progress([running_job()]) == [ProgressReported("0-1", "0", progress=expected)]
    schedd.now += 3600
    assert queue.poll_progress([running_job()]) == [], "nothing new"


def test_progress_is_queried_rarely(queue, schedd):
    for _ in range(5):
        queue.poll_progress([running_job()])
    assert schedd.n_queries == 1
    queue.poll_progress([TrackedJob("0", "0-1", (12, 0))])
    schedd.now += 3600
    assert queue.poll_progress([]) == []
    assert schedd.n_queries == 1, "only for running jobs"


def test_unreachable_schedd(queue, schedd):
    schedd.is_down = True
    assert queue.poll_progress([running_job()]) == []
    assert queue.find_vanished([running_job()]) == []


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ([], ("it vanished from the queue, and its log has no end event", None, "")),
        ([{"ExitCode": 3, "JobStatus": 4}], ("the agent ended with exit code 3", 3, "")),
        ([{"RemoveReason": "via condor_rm", "JobStatus": 3}], ("via condor_rm", None, "cancelled")),
    ],
)
def test_vanished_after_two_checks(queue, schedd, history, expected):
    schedd.history = history
    job = running_job()
    assert queue.find_vanished([job]) == []
    schedd.now += 3600
    assert queue.find_vanished([job]) == [(job, expected)]


def test_job_that_returns_has_not_vanished(queue, schedd):
    job = running_job()
    for schedd.ads in ([], [ad()], []):
        assert queue.find_vanished([job]) == []
        schedd.now += 3600


def test_end_is_reported_once(queue, schedd, tmp_path):
    """The job leaves the queue before the first check, and its end event is written before the second one."""
    folder = RunFolder(tmp_path)
    folder.htcondor.mkdir()
    log = UserLogBuilder().submit(0, "0", "0-1").execute(0)
    (folder.htcondor / "event.log").write_bytes(log.data)
    monitor = JobMonitor(make_plan(make_job(0)), folder, queue)
    monitor.follow(["0-1"])
    monitor.poll()
    schedd.now += 3600
    (folder.htcondor / "event.log").write_bytes(log.terminate(0, 0).data)
    assert [type(update) for update in monitor.poll()] == [Gone]
    assert monitor.poll() == []
