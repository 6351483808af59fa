"""Self-checkpointing: HTCondor transfers the checkpoint folder of a job without an output after exit code 85."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from packtrain.agent.checkpoints.record import CheckpointRecord, best_first
from packtrain.plan import CheckpointConfig, Limits
from tests.support.agent_runs import make_input, make_job, make_step
from tests.support.programs import counting_trainer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

PROGRAM = Path(counting_trainer.__file__)


@pytest.fixture
def condor_attempt(attempt, tmp_path):
    """Makes attempts as HTCondor starts them, with a job ad that names the folder `checkpoint`."""
    ad = tmp_path / "job.ad"
    ad.write_text('TransferCheckpoint = "checkpoint, journal.jsonl, logs"\n')
    return lambda job, **options: attempt(job, environ={**os.environ, "_CONDOR_JOB_AD": str(ad)}, **options)


def make_training(*options, min_interval_s=0.0, prefix="", inputs=()):
    command = " ".join([prefix, sys.executable, "-S", str(PROGRAM), *map(str, options)])
    return make_job(
        make_step(command, name="train"),
        checkpoint=CheckpointConfig("ckpt.bin", min_interval_s),
        limits=Limits(grace_s=10),
        inputs=inputs,
    )


def read_records(run):
    paths = run.attempt_folder.root.glob("checkpoint/.packtrain/checkpoints/run-1/0/*/*/record.json")
    return best_first(CheckpointRecord.from_json(path.read_text()) for path in paths)


def test_resume_in_place_after_each_exit_85(condor_attempt, data, tmp_path):
    gate, inputs = tmp_path / "gate", (make_input(f"file://{data}/data.tar.gz"),)
    run = condor_attempt(make_training("--steps", 30, "--pace", 0.05, "--wait-at", 10, "--gate", gate, inputs=inputs))
    codes, reached = [], [-1]
    while not codes or codes[-1] == 85:
        codes.append(run.start().wait())
        assert codes[-1] in (0, 85), run.stderr
        if codes[-1] == 85:
            (record,) = read_records(run)
            assert record.step > reached[-1], "each execution makes progress"
            reached.append(record.step)
        if len(codes) == 2:  # until then it cannot finish
            gate.touch()
    assert len(codes) > 2
    assert counting_trainer.parse_checkpoint_step((run.attempt_folder.output / "ckpt.bin").read_bytes()) == 30
    assert (run.attempt_folder.output / "model.bin").exists()
    restored = [event.data["step"] for event in run.events("checkpoint.restored")]
    assert restored == reached[1:]
    fetched = [e.data.get("source") for e in run.events("stage.ended") if e.data["stage"] == "fetch"]
    assert fetched[1:] == ["reused"] * (len(codes) - 1)
    emitters = {event.emitter for event in run.events("agent.started")}
    assert len(emitters) == len(codes), "one journal, and a new emitter for each execution"
    assert run.is_sandbox_removed


def test_other_outputs_are_transferred(condor_attempt, tmp_path):
    append, gate = "echo more >> $PACKTRAIN_OUTPUT/notes.txt;", tmp_path / "gate"
    run = condor_attempt(make_training("--steps", 15, "--pace", 0.05, "--wait-at", 10, "--gate", gate, prefix=append))
    assert run.start().wait() == 85, run.stderr
    gate.touch()
    (other_output,) = run.attempt_folder.root.glob("checkpoint/.packtrain/requeued/*/*")
    assert other_output.name == "notes.txt", "the files of a generation are not stored twice"
    assert not run.attempt_folder.output.exists(), "there are no results yet"
    while run.start().wait() == 85:
        pass
    assert run.process.returncode == 0, run.stderr
    assert (run.attempt_folder.output / "notes.txt").read_text().split() == ["more"] * len(run.events("agent.started"))


def test_folder_has_newest_checkpoint_at_the_end(condor_attempt):
    """The outputs are not retrieved yet: if that fails, the next execution resumes from the folder."""
    run = condor_attempt(
        make_training("--steps", 30, "--pace", 0.02, min_interval_s=3600.0, prefix="echo > $PACKTRAIN_OUTPUT/x;")
    ).start_and_wait()
    assert run.process.returncode == 0, run.stderr
    (record,) = read_records(run)
    files = [path for path in (run.attempt_folder.root / "checkpoint").rglob("*") if path.is_file()]
    assert sorted(path.name for path in files) == ["ckpt.bin", "record.json"]
    assert 0 < record.step <= 30


def test_folder_has_newest_checkpoint_after_eviction(condor_attempt, tmp_path):
    run = condor_attempt(make_training("--steps", 100000, "--every", 100000, min_interval_s=3600.0)).start()
    run.wait_for_event("metric")
    run.process.send_signal(signal.SIGTERM)
    assert run.wait() == 86, run.stderr
    (record,) = read_records(run)
    assert run.end_data["step"] == record.step > 0

    elsewhere = condor_attempt(make_training("--steps", record.step + 5, min_interval_s=3600.0))
    elsewhere.attempt_folder.root.mkdir()
    os.rename(run.attempt_folder.root / "checkpoint", elsewhere.attempt_folder.root / "checkpoint")
    os.rename(run.attempt_folder.journal, elsewhere.attempt_folder.journal)
    elsewhere.start()
    assert elsewhere.wait() == 0, elsewhere.stderr
    (restored,) = elsewhere.events("checkpoint.restored")
    assert restored.data["step"] == record.step
    assert len({event.emitter for event in elsewhere.events()}) == 2


def test_exit_85_before_engine_limit(condor_attempt):
    ad = Path(condor_attempt(make_training()).environment["_CONDOR_JOB_AD"])
    ad.write_text(ad.read_text() + "AllowedExecuteDuration = 20\nJobMaxVacateTime = 5\n")
    job = make_training("--steps", 100000, "--every", 100000, min_interval_s=3600.0)
    run = condor_attempt(job, options=("--deadline", "auto"))
    assert run.start().wait() == 85, run.stderr
    assert "the engine's own time limit was near" in run.end_data["reason"]
    assert read_records(run)[0].step > 0


def test_killed_execution_keeps_complete_checkpoints(condor_attempt):
    run = condor_attempt(make_training("--steps", 100000, "--pace", 0.05, min_interval_s=3600.0)).start()
    run.wait_for_event("checkpoint.saved")
    run.process.kill()
    run.wait()
    assert read_records(run)
    (run.attempt_folder.claim).unlink()  # HTCondor would start it elsewhere, in a new folder
    again = run.start()
    before = len(again.events("checkpoint.saved"))
    wait_until(lambda: len(again.events("checkpoint.saved")) > before)
    assert again.events("checkpoint.restored")
    again.process.send_signal(signal.SIGTERM)
    assert again.wait() == 86, again.stderr
    assert {record.emitter for record in read_records(run)} == {again.events("checkpoint.saved")[-1].emitter}


def test_no_folder_without_engine_transfer(attempt):
    run = attempt(make_training("--steps", 3)).start_and_wait()
    assert run.process.returncode == 0, run.stderr
    assert not (run.attempt_folder.root / "checkpoint").exists()
