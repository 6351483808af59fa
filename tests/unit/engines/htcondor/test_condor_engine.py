"""Submissions with the HTCondor engine: lost answers, limits of the client, and unwanted items of clusters."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from packtrain.engines.api import Overrides, SubmitRequest
from packtrain.engines.htcondor import HtcondorEngine
from packtrain.engines.htcondor import condor_client as client_module
from packtrain.engines.htcondor.condor_client import CondorClient, ScheddUnreachableError
from packtrain.engines.htcondor.run_settings import RunSettings
from packtrain.engines.htcondor.run_setup import write_run_files
from packtrain.engines.updates import Gone, Queued
from packtrain.errors import FailedError
from packtrain.plan import RunFolder
from tests.support.condor_plans import make_job, make_plan

LOST = ScheddUnreachableError("the answer was lost")
REJECTED = FailedError("submit_rejected", "no")
PLAN = make_plan(*(make_job(number) for number in range(4)))


@dataclass
class FakeClient:
    """Stands in for CondorClient."""

    answers: list[Any] = field(default_factory=list)  # None: accepted; error: rejected; (error,): accepted, then raised
    queue: dict[int, str] = field(default_factory=dict)  # attempt id of the first item, by cluster
    descriptions: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)

    def submit(self, description: str) -> int:
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        self.descriptions.append(description)
        queue_line = next(line for line in description.splitlines() if line.startswith("queue "))
        items_path = Path(queue_line.rpartition(" from ")[2])
        self.queue[len(self.descriptions)] = items_path.read_text().split()[1]
        if answer:
            raise answer[0]
        return len(self.descriptions)

    def query(self, constraint: str, projection: Any, include_clusters: bool = False) -> list[dict[str, Any]]:
        return [{"ClusterId": c, "ProcId": 0, "PacktrainAttempt": first} for c, first in self.queue.items()]

    def remove(self, names: Any, reason: str) -> None:
        self.removed += names


@pytest.fixture
def folder(tmp_path):
    run_folder = RunFolder(tmp_path / "run-1")
    run_folder.root.mkdir()
    write_run_files(PLAN, run_folder, RunSettings())
    return run_folder


def make_engine(folder: RunFolder, client: FakeClient) -> HtcondorEngine:
    return HtcondorEngine(PLAN, folder, client, retry_interval_s=0.0)


def make_request(number: int, **overrides: Any) -> SubmitRequest:
    return SubmitRequest(f"{number}-1", PLAN.jobs[number], Overrides(**overrides))


def gone_kinds(updates) -> dict[str, str]:
    return {update.attempt_id: update.failure_kind for update in updates if isinstance(update, Gone)}


def wait_reasons(updates) -> list[tuple[str, str]]:
    return [(update.attempt_id, update.reason) for update in updates if isinstance(update, Queued)]


def submit_event(cluster: int, proc: int, number: int) -> str:
    return (
        f"000 ({cluster:03}.{proc:03}.000) 2026-01-02 10:00:00 Job submitted\n    packtrain {number} {number}-1\n...\n"
    )


END_EVENT = "005 (001.000.000) 2026-01-02 10:00:09 Job terminated.\n\t(1) Normal termination (return value 0)\n...\n"


def test_lost_answer_is_not_submitted_again(folder):
    client = FakeClient([(LOST,)])
    engine = make_engine(folder, client)
    assert engine.submit([make_request(0), make_request(1)]) == {}
    assert gone_kinds(engine.poll()) == {}
    assert engine.submit([make_request(0), make_request(1)]) == {"0-1": "1.0", "1-1": "1.1"}
    assert len(client.descriptions) == 1


def test_lost_answer_is_found_in_the_log(folder):
    client = FakeClient([(LOST,)])
    engine = make_engine(folder, client)
    engine.submit([make_request(0)])
    client.queue.clear()
    (folder.htcondor / "event.log").write_text(submit_event(1, 0, 0) + END_EVENT)
    assert gone_kinds(engine.poll()) == {"0-1": ""}
    assert len(client.descriptions) == 1


def test_cancel_after_lost_answer(folder):
    client = FakeClient([(LOST,)])
    engine = make_engine(folder, client)
    engine.submit([make_request(0)])
    engine.cancel(["0-1"])
    assert gone_kinds(engine.poll()) == {"0-1": ""}
    (folder.htcondor / "event.log").write_text(submit_event(1, 0, 0))
    engine.poll()
    assert client.removed == ["1"]


def test_rejected_but_queued_attempt_continues(folder):
    engine = make_engine(folder, FakeClient([(REJECTED,)]))
    engine.submit([make_request(0)])
    assert gone_kinds(engine.poll()) == {}


def test_unreachable_schedd_is_retried(folder):
    client = FakeClient([LOST, LOST])
    engine = make_engine(folder, client)
    engine.submit([make_request(0)])
    assert wait_reasons(engine.poll()) == [("0-1", "the answer was lost; packtrain tries again")], "once"
    assert wait_reasons(engine.poll()) == [("0-1", "")]
    assert len(client.descriptions) == 1


def test_unreachable_schedd_is_left_alone_for_a_while(folder):
    client = FakeClient([LOST])
    engine = HtcondorEngine(PLAN, folder, client, retry_interval_s=3600.0)
    engine.submit([make_request(0)])
    engine.poll()
    engine.cancel(["0-1"])
    assert gone_kinds(engine.poll()) == {"0-1": ""}, "what does not need the schedd is done"
    assert (client.descriptions, client.removed) == ([], [])


def test_one_of_several_clusters_is_rejected(folder):
    client = FakeClient([None, REJECTED, None])
    engine = make_engine(folder, client)
    names = engine.submit([make_request(0), make_request(1, memory_factor=2.0), make_request(2, disk_factor=2.0)])
    assert names == {"0-1": "1.0", "2-1": "2.0"}
    assert gone_kinds(engine.poll()) == {"1-1": "submit_rejected"}
    engine.poll()
    assert len(client.descriptions) == 2


def test_accepted_cluster_is_not_submitted_again(folder):
    client = FakeClient([None, LOST])
    engine = make_engine(folder, client)
    engine.submit([make_request(0), make_request(1, memory_factor=2.0)])
    engine.poll()
    assert sorted(client.queue.values()) == ["0-1", "1-1"]


def test_cancelled_item_is_removed_when_it_appears(folder):
    client = FakeClient()
    engine = make_engine(folder, client)
    engine.submit([make_request(0), make_request(1), make_request(2)])
    engine.cancel(["1-1"])
    (folder.htcondor / "event.log").write_text(submit_event(1, 0, 0) + submit_event(1, 1, 1))
    engine.submit([make_request(3)])
    assert gone_kinds(engine.poll()) == {"1-1": ""}
    assert client.removed == ["1.1"]
    engine.poll()
    assert client.removed == ["1.1"]


def test_unwanted_item_is_removed_by_next_supervisor(folder):
    client = FakeClient()
    first = make_engine(folder, client)
    first.submit([make_request(0), make_request(1)])
    first.cancel(["1-1"])
    (folder.htcondor / "event.log").write_text(submit_event(1, 0, 0) + submit_event(1, 1, 1))
    engine = make_engine(folder, client)
    engine.recover([make_request(0)])
    assert client.removed == [], "views call recover, too"
    engine.poll()
    assert client.removed == ["1.1"]


def test_last_item_is_removed_with_its_cluster(folder):
    client = FakeClient()
    engine = make_engine(folder, client)
    engine.submit([make_request(0), make_request(1)])
    engine.cancel(["1-1"])
    engine.poll()
    (folder.htcondor / "event.log").write_text(submit_event(1, 0, 0) + END_EVENT)
    engine.poll()
    assert client.removed == ["1"]


def test_jobs_of_newer_supervisor_are_not_removed(folder):
    """A supervisor that was suspended reads about them before it learns that its lease has expired."""
    client = FakeClient()
    old, new = make_engine(folder, client), make_engine(folder, client)
    old.submit([make_request(0)])
    new.submit([make_request(1)])
    (folder.htcondor / "event.log").write_text(submit_event(1, 0, 0) + submit_event(2, 0, 1))
    old.poll()
    assert client.removed == []


def test_paused_cluster_reports_wait_reason(folder):
    engine = make_engine(folder, FakeClient())
    engine.submit([make_request(0), make_request(1)])
    engine.poll()
    log = folder.htcondor / "event.log"
    paused = "037 (001.-01.000) 2026-01-02 10:00:00 Job Materialization Paused\n\ta user did it\n\tPauseCode 1\n...\n"
    log.write_text(submit_event(1, 0, 0) + paused)
    assert wait_reasons(engine.poll()) == [("1-1", "the schedd has paused the cluster of this job (a user did it)")]
    resumed = "038 (001.-01.000) 2026-01-02 10:00:00 Job Materialization Resumed\n...\n"
    log.write_text(submit_event(1, 0, 0) + paused + resumed)
    assert wait_reasons(engine.poll()) == [("1-1", "")]


def test_failing_action_does_not_block_others(folder):
    client = FakeClient()
    engine = make_engine(folder, client)
    engine.submit([make_request(0)])
    engine.submit([make_request(1)])
    remove = client.remove

    def remove_all_but_first(native_ids, reason):
        if "1" in native_ids:
            raise LOST
        remove(native_ids, reason)

    client.remove = remove_all_but_first
    engine.cancel(["0-1"])
    engine.cancel(["1-1"])
    engine.poll()
    assert client.removed == ["2"]


# Messages of HTCondor 24.
@pytest.mark.parametrize(
    ("message", "error_type"),
    [
        (
            "Failed to create new cluster.SCHEDD:22:MAX_JOBS_SUBMITTED exceeded. Current=0, Limit=0",
            ScheddUnreachableError,
        ),
        ("expected next ProcId to be 0, but Schedd says -3", ScheddUnreachableError),
        ("expected next ProcId to be 0, but Schedd says -4", FailedError),
        ("Unable to commit transaction, ", ScheddUnreachableError),
        ("Unable to commit transaction, SCHEDD:2:you may not connect", FailedError),
        ("Failed to connect to schedd.", ScheddUnreachableError),
        ("Failed to create job ad, errmsg=Submit:-1:Parse error in expression: X = timeout(", FailedError),
    ],
)
def test_submit_errors_are_temporary_or_permanent(monkeypatch, message, error_type):
    descriptions = []

    class FakeSchedd:
        def submit(self, description):
            descriptions.append(description)
            raise RuntimeError(message)

    monkeypatch.setattr(client_module, "load_bindings", lambda: SimpleNamespace(Schedd=FakeSchedd, Submit=str))
    with pytest.raises(error_type):
        CondorClient().submit("queue")
    assert len(descriptions) == 1


def test_debug_log(folder, caplog):
    caplog.set_level("DEBUG", "packtrain.engines.htcondor")
    engine = make_engine(folder, FakeClient([LOST]))
    engine.submit([make_request(0)])
    assert "1 attempts wait: the answer was lost" in caplog.text
    engine.poll()
    assert "submitted 1 attempts as cluster 1, the first is 0-1" in caplog.text
