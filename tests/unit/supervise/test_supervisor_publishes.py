"""The supervisor publishes the outputs of accepted attempts: decided before, complete before the job has succeeded."""

from __future__ import annotations

import json
import multiprocessing
import os
from dataclasses import replace

import pytest

from packtrain.events import Event, kinds
from packtrain.plan import (
    CheckpointConfig,
    Job,
    Limits,
    Location,
    ManifestEntry,
    Output,
    OutputManifest,
    Plan,
    Resources,
)
from packtrain.plan.output_manifest import staged_name
from packtrain.publication.publisher import Publisher
from packtrain.state import JobStatus
from packtrain.store import SqliteStore
from packtrain.transfer.backends.file import FileBackend
from packtrain.transfer.integrity.digests import sha256_file
from tests.support.fake_engine import FakeEngine
from tests.support.waiting import wait_until

RUN, NAMES = "run-1", ("a", "b", "c")


class StagingEngine(FakeEngine):
    """An engine whose attempts store outputs at the destination before they report success."""

    def __init__(self, *args, destinations, **more):
        super().__init__(*args, **more)
        self._destinations = destinations

    def _end_attempt(self, request, outcome, kind=""):
        if outcome == "succeeded":
            stage(self._destinations / request.job.id, request.job.id, f"agent-{request.attempt_id}")
        super()._end_attempt(request, outcome, kind)


def stage(destination, job, emitter):
    entries = []
    for name in NAMES:
        path = destination / staged_name(RUN, job, emitter, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name} of {emitter}")
        entries.append(ManifestEntry(name, path.stat().st_size, sha256_file(path)))
    manifest = OutputManifest(RUN, job, emitter, tuple(entries))
    (destination / manifest.name).write_text(manifest.to_text())


class PublishingHarness:
    def __init__(self, harness, root):
        self.harness, self.destinations = harness, root / "destinations"
        self.plan = harness.plan = Plan(RUN, "name", "fake", tuple(map(self.make_job, harness.plan.jobs)))

    def make_job(self, job):
        output = Output(Location((self.destinations / job.id).as_uri()), retry_timeout_s=0.3)
        return Job(job.id, (), Resources(), Limits(max_attempts=1), (), output=output)

    def make_supervisor(self, store=None, script=None, **more):
        engine = StagingEngine(self.harness.folder, script, destinations=self.destinations, **more)
        publisher = Publisher(self.plan, self.harness.folder, True, show_interval_s=0.0, max_parallel_copies=1)
        return self.harness.make_supervisor(engine, store, publisher=publisher)

    def read_events(self, *event_kinds):
        """Return the stored events; also from another thread than the supervisor's."""
        events = [stored.event for stored in SqliteStore(self.harness.store.path).events(RUN)]
        return [event for event in events if event.kind in event_kinds]

    def published(self, job="0"):
        return {path.name: path.read_text() for path in (self.destinations / job).iterdir() if path.is_file()}


@pytest.fixture
def make_publishing(make_harness, tmp_path):
    return lambda jobs=1: PublishingHarness(make_harness(jobs), tmp_path)


def accepted(emitter):
    return {name: f"{name} of {emitter}" for name in NAMES}


def test_acceptance_is_stored_first_and_success_last(make_publishing, monkeypatch):
    publishing, at_first_copy = make_publishing(), []
    copy = FileBackend.copy

    def copy_and_look(backend, *locations, **options):
        at_first_copy.append(
            [e.data.get("attempt") for e in publishing.read_events(kinds.DECISION_MADE, kinds.JOB_ENDED)]
        )
        return copy(backend, *locations, **options)

    monkeypatch.setattr(FileBackend, "copy", copy_and_look)
    state = publishing.make_supervisor().run()
    assert at_first_copy[0] == ["0-1", "0-1"], "submitted and accepted"
    assert publishing.harness.decided_ids("accept") == ["0-1"]
    assert publishing.published() == accepted("agent-0-1")
    assert sorted(os.listdir(publishing.destinations / "0")) == list(NAMES)
    assert (state.jobs["0"].status, state.jobs["0"].accepted_emitter) == (JobStatus.SUCCEEDED, "agent-0-1")
    assert len(state.jobs["0"].attempts) == 1


@pytest.mark.parametrize("n_copies", range(len(NAMES) + 1))
def test_crash_between_any_two_objects(make_publishing, n_copies, monkeypatch):
    """The supervisor dies after a number of renames; after the last one, before the job has succeeded."""
    publishing = make_publishing()
    copied, copy = iter(range(100)), FileBackend.copy

    def copy_or_die(backend, *locations, **options):
        if next(copied) == n_copies:
            os._exit(9)
        return copy(backend, *locations, **options)

    def supervise():
        monkeypatch.setattr(FileBackend, "copy", copy_or_die)
        if n_copies == len(NAMES):
            monkeypatch.setattr("packtrain.publication.publish._save_publication", lambda *args: os._exit(9))
        publishing.make_supervisor(SqliteStore(publishing.harness.store.path)).run()

    process = multiprocessing.get_context("fork").Process(target=supervise)
    process.start()
    process.join(60)
    assert process.exitcode == 9
    assert len(publishing.published()) == n_copies
    stage(publishing.destinations / "0", "0", "agent-late")  # another attempt that continues
    state = publishing.make_supervisor().run()
    assert state.jobs["0"].status is JobStatus.SUCCEEDED
    assert publishing.published() == accepted("agent-0-1")
    assert len(publishing.harness.decided_ids("submit")) == 1


def test_failed_publication_fails_the_job_and_is_repeated_by_resume(make_publishing):
    publishing = make_publishing()
    blocker = publishing.destinations / "0" / "b"
    (blocker / "folder").mkdir(parents=True)
    job = publishing.make_supervisor().run().jobs["0"]
    assert (job.status, job.result.failure.kind) == (JobStatus.FAILED, "upload_failed")
    assert "is a folder, not a file; they are kept in " in job.result.failure.detail
    assert f"`packtrain resume {RUN}` publishes them" in job.result.failure.detail
    (blocker / "folder").rmdir()
    blocker.rmdir()
    job = publishing.make_supervisor().run(reopen=True).jobs["0"]
    assert job.status is JobStatus.SUCCEEDED
    assert publishing.published() == accepted("agent-0-1")
    assert publishing.harness.decided_ids("submit") == ["0-1"], "the job is not run again"


def test_slow_destination_does_not_hold_up_other_jobs(make_publishing, monkeypatch):
    publishing, copy = make_publishing(3), FileBackend.copy

    def copy_last(backend, source, target, **options):
        if "/0/" in target.url:
            wait_until(lambda: len(publishing.read_events(kinds.JOB_ENDED)) == 2)
        return copy(backend, source, target, **options)

    monkeypatch.setattr(FileBackend, "copy", copy_last)
    state = publishing.make_supervisor().run()
    assert [event.job for event in publishing.harness.events(kinds.JOB_ENDED)][-1] == "0"
    assert state.count_jobs(JobStatus.SUCCEEDED) == 3


def test_cancelled_while_publishing(make_publishing, monkeypatch):
    publishing, copy = make_publishing(), FileBackend.copy

    def cancel_first(backend, *locations, **options):
        if not publishing.read_events(kinds.USER_REQUESTED):
            request = {"action": "cancel", "reason": "enough"}
            SqliteStore(publishing.harness.store.path).append(
                [Event(RUN, "0", "cli-1", 1, kinds.USER_REQUESTED, 1.0, 1.0, request)]
            )
            wait_until(lambda: publishing.read_events(kinds.JOB_ENDED))
        return copy(backend, *locations, **options)

    monkeypatch.setattr(FileBackend, "copy", cancel_first)
    assert publishing.make_supervisor().run().jobs["0"].status is JobStatus.CANCELLED


def test_intermediate_outputs_are_shown_and_replaced(make_publishing):
    """They are shown while it runs, and gone once another set is accepted."""
    publishing = make_publishing()
    output = replace(publishing.plan.jobs[0].output, continuous_sync=True)
    publishing.plan = publishing.harness.plan = replace(
        publishing.plan, jobs=(replace(publishing.plan.jobs[0], output=output),)
    )
    destination = publishing.destinations / "0"
    shown = destination / "early.txt"
    manifest = OutputManifest(RUN, "0", "agent-0-1", (ManifestEntry("early.txt", 5, "0"),))

    def write_early():
        path = destination / staged_name(RUN, "0", "agent-0-1", "early.txt")
        if not path.exists() and not shown.exists():
            path.parent.mkdir(parents=True)
            path.write_text("early")
            path.parent.parent.joinpath("synced.jsonl").write_text(manifest.to_text())
        if shown.exists():
            engine_script["0"] = ["succeed"]

    engine_script = {"0": ["hang"]}
    state = publishing.make_supervisor(script=engine_script, on_wait=write_early).run()
    assert state.jobs["0"].status is JobStatus.SUCCEEDED
    assert publishing.published() == accepted("agent-0-1")


def test_newest_checkpoint_is_shown_until_results_are_accepted(make_publishing):
    publishing = make_publishing()
    job = replace(publishing.plan.jobs[0], checkpoint=CheckpointConfig("ckpt.pt"))
    publishing.plan = publishing.harness.plan = replace(publishing.plan, jobs=(job,))
    destination, script, steps_shown = publishing.destinations / "0", {"0": ["hang"]}, []

    def save_next():
        shown = destination / "ckpt.pt"
        if shown.exists() and shown.read_text() not in steps_shown:
            steps_shown.append(shown.read_text())
        if len(steps_shown) == 2:
            script["0"] = ["succeed"]
        elif not steps_shown or steps_shown[-1] == f"step {len(steps_shown) * 10}":
            save_checkpoint(publishing, len(steps_shown) + 1)

    publishing.make_supervisor(script=script, on_wait=save_next).run()
    assert steps_shown == ["step 10", "step 20"]
    assert publishing.published() == accepted("agent-0-1"), "the checkpoint is not one of the accepted outputs"


def save_checkpoint(publishing, generation):
    folder = publishing.destinations / "0" / ".packtrain/checkpoints" / RUN / "0/agent-0-1" / str(generation)
    if not folder.exists():
        folder.mkdir(parents=True)
        (folder / "ckpt.pt").write_text(f"step {generation * 10}")
        (folder / "record.json").write_text(json.dumps({"files": [{"name": "ckpt.pt"}]}))
        path = publishing.harness.folder.attempt_folder("0", "0-1").journal
        data = {"generation": generation, "step": generation * 10, "path": "ckpt.pt"}
        event = Event(RUN, "0", "agent-0-1", 10 + generation, kinds.CHECKPOINT_SAVED, 1.0, 1.0, data)
        with open(path, "a") as journal:
            journal.write(event.to_json() + "\n")
