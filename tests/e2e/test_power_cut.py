"""After a power cut at any step, whatever a record says is there: the run's folder and the user's are on two disks."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from packtrain import fileutil
from packtrain.agent.checkpoints.store import CheckpointStore
from packtrain.agent.checkpoints.upload_executor import UploadExecutor
from packtrain.agent.checkpoints.upload_planner import (
    CheckpointSnapshot,
    CommitGeneration,
    DeleteGeneration,
    UploadFile,
)
from packtrain.agent.outputs.sync import move_outputs
from packtrain.engines.htcondor.output_retrieval import commit_outputs, job_spool_dir, save_spooled_checkpoint
from packtrain.engines.slurm.batch_script import TASKS_SUFFIX
from packtrain.engines.slurm.submissions import ArraySubmission, Task, read_submissions, write_submission
from packtrain.events import Event, Journal, JournalReader, kinds
from packtrain.events.redact import Redactor
from packtrain.plan import AttemptFolder, CheckpointConfig, Location, RemoteFile, RunFolder, read_plan
from packtrain.plan.claim import acquire_claim
from packtrain.store import SqliteStore
from packtrain.submission.create_run import create_run
from packtrain.submission.prepare import prepare
from packtrain.transfer.backends.file import FileBackend
from packtrain.transfer.cache import DownloadCache
from packtrain.transfer.engine import resume_log
from packtrain.transfer.engine.part_file import PartFile
from packtrain.transfer.engine.resume_log import ObjectIdentity
from packtrain.transfer.upload import upload_folder
from testbed.power_cut import Disk, PowerCuts, write_names, write_nothing, write_randomly
from tests.support.attempt_contexts import attempt_contexts
from tests.support.condor_plans import make_job, output_at

pytestmark = pytest.mark.slow

CONTENTS = {"model.pt": os.urandom(300_000), "logs/train.log": b"epoch 1\n" * 900, "empty": b"", "a/b/c.json": b"{}"}
TRANSFER_OPTIONS = {"check_cancelled": lambda: None, "on_progress": lambda done, total: None, "retry_timeout_s": 0.0}
WRITEBACKS = {
    "nothing": lambda: write_nothing,
    "names": lambda: write_names,
    **{f"random-{seed}": lambda seed=seed: write_randomly(seed) for seed in (1, 2)},
}


@pytest.fixture(params=WRITEBACKS)
def cuts(tmp_path, request):
    with Disk(tmp_path / "run") as run, Disk(tmp_path / "user") as user:
        yield PowerCuts([run, user], tmp_path, WRITEBACKS[request.param]())


def write_files(folder: Path) -> None:
    for name, data in CONTENTS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def read_files(folder: Path) -> dict[str, bytes]:
    """The content of all files under their final names."""
    paths = [path for path in folder.rglob("*") if path.is_file() and not fileutil.is_temporary_name(path.name)]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def end_event() -> Event:
    outputs = [{"path": name, "bytes": len(data), "sha256": sha256(data)} for name, data in CONTENTS.items()]
    data = {"outcome": "succeeded", "outputs": outputs, "n_outputs": len(outputs)}
    return Event("r", "0", "agent-0", 1, kinds.AGENT_ENDED, 1.0, 1.0, data)


def has_ended(journal: Path) -> bool:
    return any(event.kind == kinds.AGENT_ENDED for event in JournalReader(journal).read())


@pytest.mark.parametrize("disk", ["user", "run"])
def test_outputs_of_a_pool(cuts, tmp_path, disk):
    """The pool returns files without a sync; the supervisor moves them and stores that the job succeeded."""
    attempt, target = AttemptFolder(tmp_path / "run/attempt"), tmp_path / disk / "results/cifar"
    job, store_path = make_job(output=output_at(target.as_uri())), tmp_path / "run/store.db"
    store = SqliteStore(store_path)
    with cuts.record():
        write_files(attempt.output)
        attempt.journal.write_text(end_event().to_json() + "\n")
        commit_outputs(job, attempt)
        store.append([Event("r", "0", "supervisor", 1, kinds.JOB_ENDED, 1.0, 1.0, {"result": "succeeded"})])
    store.close()
    for cut in cuts.boot():
        store = SqliteStore(store_path)
        has_succeeded = bool(store.events("r"))
        store.close()
        if not has_succeeded:
            try:
                commit_outputs(job, attempt)  # the next supervisor repeats it
            except OSError:
                continue  # the files that the pool returned are damaged, and the job fails
        assert read_files(target) == CONTENTS, cut
    assert has_succeeded, "a stored decision survives"


def test_outputs_of_an_agent(cuts, tmp_path):
    """The agent uploads to the user's folder, and then writes its last event."""
    target, journal_path = tmp_path / "user/results/cifar", tmp_path / "run/attempt/journal.jsonl"
    write_files(tmp_path / "run/output")
    journal = Journal(journal_path, "r", "0", "agent-0", Redactor())
    with cuts.record():
        upload_folder(tmp_path / "run/output", output_at(target.as_uri()), str, **TRANSFER_OPTIONS)
        journal.emit(kinds.AGENT_ENDED, outcome="succeeded")
    journal.close()
    for cut in cuts.boot():
        present = read_files(target)
        assert present == {name: CONTENTS[name] for name in present}, f"{cut}: a file is complete or absent"
        assert present == CONTENTS or not has_ended(journal_path), cut
    assert has_ended(journal_path)


def test_outputs_kept_in_the_attempt_folder(cuts, tmp_path):
    """The upload failed; the last event lists the outputs."""
    job = make_job(output=output_at("s3://unreachable/x"))
    with attempt_contexts(tmp_path / "run") as make_context:
        context = make_context(job, root="../user/sandbox")
        shutil.rmtree(context.sandbox.output)
        write_files(context.sandbox.output)
        with cuts.record():
            move_outputs(context, ".packtrain/agent-1/", context.sandbox.attempt_folder.output)
            context.journal.emit(kinds.AGENT_ENDED, outcome="failed")
    attempt = context.sandbox.attempt_folder
    for cut in cuts.boot():
        kept = attempt.output / ".packtrain/agent-1"
        assert not kept.exists() or read_files(kept) == CONTENTS, cut
        assert kept.exists() or not has_ended(attempt.journal), cut
    assert has_ended(attempt.journal)


def test_checkpoints(cuts, tmp_path):
    """A record names complete files, and an older generation is deleted only when the newer one is durable."""
    staging, output = tmp_path / "run/staging", output_at((tmp_path / "user/results").as_uri())
    write_files(staging)

    def open_store(emitter: str = "") -> CheckpointStore:
        return CheckpointStore(output.location, FileBackend(), run="r", job="0", emitter=emitter)

    executor = UploadExecutor(open_store("agent-1"), tmp_path / "run/record.json", lambda: None)
    with cuts.record():
        for generation in (1, 2):
            snapshot = CheckpointSnapshot(staging, tuple(CONTENTS), ".", step=generation)
            for name in CONTENTS:
                executor.execute(UploadFile(generation, snapshot, name))
            executor.execute(CommitGeneration(generation, snapshot))
        executor.execute(DeleteGeneration(1, tuple(CONTENTS)))
    has_record = False
    for cut in cuts.boot():
        store = open_store()
        records = store.read_records()
        assert not store.broken_records, cut
        assert records or not has_record, cut
        has_record |= bool(records)
        for file in [file for record in records for file in store.remote_files(record)]:
            path = Path(file.locations[0].url.removeprefix("file://"))
            assert path.exists(), (cut, file.name)
            assert sha256(path.read_bytes()) == file.digest.value, (cut, file.name)
    assert [record.generation for record in records] == [2]


def test_checkpoint_in_the_spool(cuts, tmp_path):
    """The schedd deletes its spool when the job is removed."""
    job, attempt = make_job(checkpoint=CheckpointConfig("c.bin")), AttemptFolder(tmp_path / "user/0-1")
    spool_dir = job_spool_dir(str(tmp_path / "run"), 1, 0)
    write_files(spool_dir / "checkpoint")
    attempt.root.mkdir()
    fileutil.sync_tree(tmp_path / "run")
    fileutil.sync_tree(tmp_path / "user")
    with cuts.record():
        save_spooled_checkpoint(job, attempt, spool_dir)
        shutil.rmtree(spool_dir)
    for cut in cuts.boot():
        assert CONTENTS in (read_files(spool_dir / "checkpoint"), read_files(attempt.checkpoint)), cut
        assert not attempt.checkpoint.exists() or read_files(attempt.checkpoint) == CONTENTS, cut


def test_download_cache(cuts, tmp_path):
    data, cache = os.urandom(500_000), DownloadCache(tmp_path / "user/cache")
    (tmp_path / "data.bin").write_bytes(data)
    remote_file = RemoteFile("data.bin", (Location((tmp_path / "data.bin").as_uri()),), len(data))
    with cuts.record():
        cache.get(remote_file, tmp_path / "one", str, **TRANSFER_OPTIONS)
    for cut in cuts.boot():
        for entry in cache.entries():
            path = tmp_path / "user/cache" / entry.key[:2] / entry.key
            assert not entry.is_complete or path.read_bytes() == data, cut
        cache.get(remote_file, tmp_path / "two", str, **TRANSFER_OPTIONS)
        assert (tmp_path / "two").read_bytes() == data, cut


def test_blocks_in_the_resume_log(cuts, tmp_path, monkeypatch):
    """Blocks are recorded without a sync. After a reboot, those that were lost are recognized."""
    block_bytes, n_blocks, target = 1 << 16, 12, tmp_path / "user/data.bin"
    data = os.urandom(n_blocks * block_bytes - 5000)
    blocks = [data[start : start + block_bytes] for start in range(0, len(data), block_bytes)]
    part = PartFile(target)
    with cuts.record():
        part.begin(ObjectIdentity(len(data), '"etag"', None, block_bytes))
        for index, block in enumerate(blocks):
            if index % 2:
                part.write_block(index, memoryview(block))
            else:
                part.write_at(index * block_bytes, memoryview(block))
                part.record_block(index)
    part.close()
    monkeypatch.setattr(resume_log, "boot_id", lambda: "the next boot")
    for cut in cuts.boot():
        part = PartFile(target)
        valid = part.resume(block_bytes, None)
        part.close()
        path = target.with_name("data.bin.part")
        for index in valid:
            start = index * block_bytes
            assert path.read_bytes()[start : start + block_bytes] == blocks[index], (cut, index)


def test_run_folder(cuts, tmp_path, monkeypatch):
    """A run that the store lists has its plan, its agent and its secrets."""
    workflow = tmp_path / "workflow.yaml"
    resources = {"tasks": 1, "cpusPerTask": 1, "memPerCpu": 10, "gpus": 0}
    env = [{"key": "TOKEN", "value": "${env:SECRET_TOKEN}"}]
    steps = [{"run": {"command": "true"}}]
    workflow.write_text(json.dumps({"resources": resources, "matrix": {"seed": [1, 2]}, "env": env, "steps": steps}))
    monkeypatch.setenv("SECRET_TOKEN", "a secret")
    (tmp_path / "user/runs").mkdir()
    monkeypatch.chdir(tmp_path / "user/runs")
    submission = prepare(workflow, "local")
    store = SqliteStore(tmp_path / "run/new/store.db")
    with cuts.record():
        create_run(submission, store)
    store.close()
    folder = submission.run_folder
    agent = (folder.agent).read_bytes()
    monkeypatch.chdir(tmp_path)
    for cut in cuts.boot():
        store = SqliteStore(tmp_path / "run/new/store.db")
        runs = store.list_runs()
        store.close()
        for run_info in runs:
            assert read_plan(run_info.folder / "plan.json") == submission.plan, cut
            assert read_plan(run_info.folder / "jobs/1/plan.json"), cut
            assert (run_info.folder / "agent.pyz").read_bytes() == agent, cut
            assert [path.read_text() for path in (run_info.folder / "secrets").iterdir()] == ["a secret"], cut
    assert runs


def test_submission_to_slurm(cuts, tmp_path):
    """The record of an array has its script, and the list of tasks that the script reads."""
    folder, submission = RunFolder(tmp_path / "run"), ArraySubmission("pt-1", (Task("0-1", "0"), Task("1-1", "1")))
    with cuts.record():
        path = write_submission(submission, "#!/bin/sh\n", folder)
    for cut in cuts.boot():
        submissions = list(read_submissions(folder))
        for _ in submissions:
            assert path.read_text() == "#!/bin/sh\n", cut
            assert path.with_suffix(TASKS_SUFFIX).read_text() == "0 0-1\n1 1-1\n", cut
    assert submissions == [submission]


def test_claim(cuts, tmp_path):
    """An attempt that was started cannot be started by another agent after the reboot."""
    path = AttemptFolder(tmp_path / "run/jobs/0/attempts/0-1").claim
    with cuts.record():
        os.close(acquire_claim(path))
    for _ in cuts.boot():
        pass  # to the end
    assert acquire_claim(path) is None
