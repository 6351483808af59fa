"""What becomes of submissions: answers that are lost, limits that are reached, and items that nobody wants any more."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from packtrain.engines.api import Overrides, SubmitRequest
from packtrain.engines.htcondor import HtcondorEngine
from packtrain.engines.htcondor import condor_client as client_module
from packtrain.engines.htcondor import condor_engine as engine_module
from packtrain.engines.htcondor.condor_client import CondorClient, ScheddUnreachableError
from packtrain.engines.htcondor.run_settings import RunSettings
from packtrain.engines.htcondor.run_setup import write_run_files
from packtrain.errors import FailedError
from packtrain.plan import RunFolder
from tests.support.condor_plans import make_job, make_plan

LOST = ScheddUnreachableError("the answer was lost")
REFUSED = FailedError("submit_rejected", "no")
PLAN = make_plan(*(make_job(number) for number in range(4)))


@dataclass
class Schedd:
    """Stands for the client: `answers` are what the next submissions meet, `queue` has what was taken."""

    answers: list[Any] = field(default_factory=list)  # None: taken; an error; (error,): taken, but the answer is lost
    queue: dict[int, str] = field(default_factory=dict)  # the decision of the first item, by cluster
    texts: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)

    def submit(self, text: str) -> int:
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        self.texts.append(text)
        items = next(line for line in text.splitlines() if line.startswith("queue ")).rpartition(" from ")[2]
        self.queue[len(self.texts)] = Path(items).read_text().split()[1]
        if answer:
            raise answer[0]
        return len(self.texts)

    def query(self, constraint: str, projection: Any, clusters: bool = False) -> list[dict[str, Any]]:
        return [{"ClusterId": c, "ProcId": 0, "PacktrainAttempt": first} for c, first in self.queue.items()]

    def remove(self, names: Any, reason: str) -> None:
        self.removed += names


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(engine_module, "_RETRY_INTERVAL_S", 0.0)


@pytest.fixture
def folder(tmp_path):
    made = RunFolder(tmp_path / "run-1")
    made.root.mkdir()
    write_run_files(PLAN, made, RunSettings())
    return made


def ticket(number: int, **amended: Any) -> SubmitRequest:
    return SubmitRequest(f"{number}-1", PLAN.jobs[number], Overrides(**amended))


def gone(sightings) -> dict[str, str]:
    return {one.decision: one.kind for one in sightings if one.status == "gone"}


def waits(sightings) -> list[tuple[str, str]]:
    return [(one.decision, one.glimpse["wait_reason"]) for one in sightings if one.glimpse]


def submitted(cluster: int, proc: int, number: int) -> str:
    return (
        f"000 ({cluster:03}.{proc:03}.000) 2026-01-02 10:00:00 Job submitted\n    packtrain {number} {number}-1\n...\n"
    )


def test_what_was_taken_though_the_answer_was_lost_is_not_submitted_again(folder):
    schedd = Schedd([(LOST,)])
    engine = HtcondorEngine(PLAN, folder, schedd)
    assert engine.submit([ticket(0), ticket(1)]) == {}
    assert gone(engine.poll()) == {}
    assert engine.submit([ticket(0), ticket(1)]) == {"0-1": "1.0", "1-1": "1.1"}
    assert len(schedd.texts) == 1


def test_what_has_left_the_queue_before_it_is_looked_for_is_found_in_the_log(folder):
    schedd = Schedd([(LOST,)])
    engine = HtcondorEngine(PLAN, folder, schedd)
    engine.submit([ticket(0)])
    schedd.queue.clear()
    ended = "005 (001.000.000) 2026-01-02 10:00:09 Job terminated.\n\t(1) Normal termination (return value 0)\n...\n"
    (folder.htcondor / "event.log").write_text(submitted(1, 0, 0) + ended)
    assert gone(engine.poll()) == {"0-1": ""}
    assert len(schedd.texts) == 1


def test_what_was_taken_unheard_and_is_cancelled_then_does_not_run(folder):
    schedd = Schedd([(LOST,)])
    engine = HtcondorEngine(PLAN, folder, schedd)
    engine.submit([ticket(0)])
    engine.cancel(["0-1"])
    assert gone(engine.poll()) == {"0-1": ""}
    (folder.htcondor / "event.log").write_text(submitted(1, 0, 0))
    engine.poll()
    assert schedd.removed == ["1"]


def test_what_is_refused_though_it_was_taken_runs_on(folder):
    engine = HtcondorEngine(PLAN, folder, Schedd([(REFUSED,)]))
    engine.submit([ticket(0)])
    assert gone(engine.poll()) == {}


def test_a_schedd_that_takes_nothing_for_now_is_asked_again_and_says_why(folder):
    schedd = Schedd([LOST, LOST])
    engine = HtcondorEngine(PLAN, folder, schedd)
    engine.submit([ticket(0)])
    assert waits(engine.poll()) == [("0-1", "the answer was lost; this is tried again")], "once"
    assert waits(engine.poll()) == [("0-1", "")]
    assert len(schedd.texts) == 1


def test_only_the_refused_one_of_several_clusters_is_a_verdict(folder):
    schedd = Schedd([None, REFUSED, None])
    engine = HtcondorEngine(PLAN, folder, schedd)
    names = engine.submit([ticket(0), ticket(1, memory_factor=2.0), ticket(2, disk_factor=2.0)])
    assert names == {"0-1": "1.0", "2-1": "2.0"}
    assert gone(engine.poll()) == {"1-1": "submit_rejected"}
    engine.poll()
    assert len(schedd.texts) == 2


def test_of_several_clusters_those_that_were_taken_are_not_submitted_again(folder):
    schedd = Schedd([None, LOST])
    engine = HtcondorEngine(PLAN, folder, schedd)
    engine.submit([ticket(0), ticket(1, memory_factor=2.0)])
    engine.poll()
    assert sorted(schedd.queue.values()) == ["0-1", "1-1"]


def test_an_item_that_was_cancelled_before_it_appeared_is_removed_whoever_reads_of_it(folder):
    schedd = Schedd()
    engine = HtcondorEngine(PLAN, folder, schedd)
    engine.submit([ticket(0), ticket(1), ticket(2)])
    engine.cancel(["1-1"])
    (folder.htcondor / "event.log").write_text(submitted(1, 0, 0) + submitted(1, 1, 1))
    engine.submit([ticket(3)])
    assert gone(engine.poll()) == {"1-1": ""}
    assert schedd.removed == ["1.1"]
    engine.poll()
    assert schedd.removed == ["1.1"]


def test_an_item_that_appeared_while_nobody_supervised_is_removed_by_the_next_one(folder):
    schedd = Schedd()
    first = HtcondorEngine(PLAN, folder, schedd)
    first.submit([ticket(0), ticket(1)])
    first.cancel(["1-1"])
    (folder.htcondor / "event.log").write_text(submitted(1, 0, 0) + submitted(1, 1, 1))
    engine = HtcondorEngine(PLAN, folder, schedd)
    engine.recover([ticket(0)])
    assert schedd.removed == [], "who looks may be a view"
    engine.poll()
    assert schedd.removed == ["1.1"]


def test_with_the_last_of_its_cluster_goes_an_item_that_never_appeared(folder):
    schedd = Schedd()
    engine = HtcondorEngine(PLAN, folder, schedd)
    engine.submit([ticket(0), ticket(1)])
    engine.cancel(["1-1"])
    engine.poll()
    ended = "005 (001.000.000) 2026-01-02 10:00:09 Job terminated.\n\t(1) Normal termination (return value 0)\n...\n"
    (folder.htcondor / "event.log").write_text(submitted(1, 0, 0) + ended)
    engine.poll()
    assert schedd.removed == ["1"]


def test_jobs_of_a_newer_supervisor_are_left_alone(folder):
    """One that was suspended reads of them before it learns that its lease is over."""
    schedd = Schedd()
    old, new = HtcondorEngine(PLAN, folder, schedd), HtcondorEngine(PLAN, folder, schedd)
    old.submit([ticket(0)])
    new.submit([ticket(1)])
    (folder.htcondor / "event.log").write_text(submitted(1, 0, 0) + submitted(2, 0, 1))
    old.poll()
    assert schedd.removed == []


def test_items_of_a_cluster_that_was_paused_say_why_they_do_not_come(folder):
    engine = HtcondorEngine(PLAN, folder, Schedd())
    engine.submit([ticket(0), ticket(1)])
    engine.poll()
    log = folder.htcondor / "event.log"
    paused = "037 (001.-01.000) 2026-01-02 10:00:00 Job Materialization Paused\n\ta person did it\n\tPauseCode 1\n...\n"
    log.write_text(submitted(1, 0, 0) + paused)
    assert waits(engine.poll()) == [("1-1", "the schedd makes no more jobs of its cluster (a person did it)")]
    resumed = "038 (001.-01.000) 2026-01-02 10:00:00 Job Materialization Resumed\n...\n"
    log.write_text(submitted(1, 0, 0) + paused + resumed)
    assert waits(engine.poll()) == [("1-1", "")]


def test_what_the_schedd_never_does_keeps_nothing_else_from_being_done(folder):
    schedd = Schedd()
    engine = HtcondorEngine(PLAN, folder, schedd)
    engine.submit([ticket(0)])
    engine.submit([ticket(1)])
    remove = schedd.remove

    def picky(names, reason):
        if "1" in names:
            raise LOST
        remove(names, reason)

    schedd.remove = picky
    engine.cancel(["0-1"])
    engine.cancel(["1-1"])
    engine.poll()
    assert schedd.removed == ["2"]


# What HTCondor 24 was seen to answer.
@pytest.mark.parametrize(
    ("said", "error"),
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
def test_a_submission_is_tried_once_and_its_error_is_final_or_not(monkeypatch, said, error):
    calls = []

    class Bindings:
        def submit(self, description):
            calls.append(description)
            raise RuntimeError(said)

    monkeypatch.setattr(client_module, "load_bindings", lambda: SimpleNamespace(Schedd=Bindings, Submit=str))
    with pytest.raises(error):
        CondorClient().submit("queue")
    assert len(calls) == 1
