"""Checkpoints of a job that has no place for them: in a folder of its own that the engine carries, by exit code 85."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from packtrain.agent.checkpoints.record import CheckpointRecord, best_first
from packtrain.plan import CheckpointConfig, Limits
from tests.support.agent_runs import make_input, make_job, make_step, wait_until
from tests.support.programs import counting_trainer

pytestmark = pytest.mark.slow

PROGRAM = Path(counting_trainer.__file__)


@pytest.fixture
def carrying(attempt, tmp_path):
    """An attempt as HTCondor starts it: the folder `checkpoint` goes along."""
    ad = tmp_path / "job.ad"
    ad.write_text('TransferCheckpoint = "checkpoint, journal.jsonl, logs"\n')
    return lambda planned, **more: attempt(planned, environ={**os.environ, "_CONDOR_JOB_AD": str(ad)}, **more)


def training(*options, every_s=0.0, first="", **more):
    command = " ".join([first, sys.executable, "-S", str(PROGRAM), *map(str, options)])
    limits = more.pop("limits", Limits(grace_s=10))
    return make_job(
        make_step(command, name="train"), checkpoint=CheckpointConfig("ckpt.bin", every_s), limits=limits, **more
    )


def records(run):
    found = run.attempt_folder.root.glob("checkpoint/.packtrain/checkpoints/run-1/0/*/*/record.json")
    return best_first(CheckpointRecord.from_json(path.read_text()) for path in found)


def test_it_leaves_with_85_again_and_again_and_goes_on_in_place(carrying, data, tmp_path):
    gate, inputs = tmp_path / "gate", (make_input(f"file://{data}/data.tar.gz"),)
    run = carrying(training("--steps", 30, "--pace", 0.05, "--wait-at", 10, "--gate", gate, inputs=inputs))
    codes, reached = [], [-1]
    while not codes or codes[-1] == 85:
        codes.append(run.start().wait())
        assert codes[-1] in (0, 85), run.stderr
        if codes[-1] == 85:
            (record,) = records(run)
            assert record.step > reached[-1], "each start brings it further"
            reached.append(record.step)
        if len(codes) == 2:  # until then it cannot come to its end
            gate.touch()
    assert len(codes) > 2
    assert counting_trainer.parse_checkpoint_step((run.attempt_folder.output / "ckpt.bin").read_bytes()) == 30
    assert (run.attempt_folder.output / "model.bin").exists()
    restored = [event.data["step"] for event in run.events("checkpoint.restored")]
    assert restored == reached[1:]
    fetched = [e.data.get("source") for e in run.events("stage.ended") if e.data["stage"] == "fetch"]
    assert fetched[1:] == ["reused"] * (len(codes) - 1)
    emitters = {event.emitter for event in run.events("agent.started")}
    assert len(emitters) == len(codes), "one journal, and a new voice for each start"
    assert run.is_sandbox_removed


def test_other_outputs_go_along(carrying, tmp_path):
    notes, gate = "echo more >> $PACKTRAIN_OUTPUT/notes.txt;", tmp_path / "gate"
    run = carrying(training("--steps", 15, "--pace", 0.05, "--wait-at", 10, "--gate", gate, first=notes))
    assert run.start().wait() == 85, run.stderr
    gate.touch()
    (left,) = run.attempt_folder.root.glob("checkpoint/.packtrain/requeued/*/*")
    assert left.name == "notes.txt", "what stands in a generation is not carried twice"
    assert not run.attempt_folder.output.exists(), "nothing looks like a result"
    while run.start().wait() == 85:
        pass
    assert run.process.returncode == 0, run.stderr
    assert (run.attempt_folder.output / "notes.txt").read_text().split() == ["more"] * len(run.events("agent.started"))


def test_at_its_end_the_folder_still_holds_the_newest_checkpoint_and_no_more(carrying):
    """Its outputs are still to be brought home: if that fails, the next start goes on from here."""
    run = carrying(training("--steps", 30, "--pace", 0.02, every_s=3600.0, first="echo > $PACKTRAIN_OUTPUT/x;")).start_and_wait()
    assert run.process.returncode == 0, run.stderr
    (record,) = records(run)
    files = [path for path in (run.attempt_folder.root / "checkpoint").rglob("*") if path.is_file()]
    assert sorted(path.name for path in files) == ["ckpt.bin", "record.json"]
    assert 0 < record.step <= 30


def test_an_evicted_job_has_its_newest_checkpoint_in_the_folder(carrying, tmp_path):
    run = carrying(training("--steps", 100000, "--every", 100000, every_s=3600.0)).start()
    run.wait_for_event("metric")
    run.process.send_signal(signal.SIGTERM)
    assert run.wait() == 86, run.stderr
    (record,) = records(run)
    assert run.end_data["step"] == record.step > 0

    elsewhere = carrying(training("--steps", record.step + 5, every_s=3600.0))
    elsewhere.attempt_folder.root.mkdir()
    os.rename(run.attempt_folder.root / "checkpoint", elsewhere.attempt_folder.root / "checkpoint")
    os.rename(run.attempt_folder.journal, elsewhere.attempt_folder.journal)
    elsewhere.start()
    assert elsewhere.wait() == 0, elsewhere.stderr
    (restored,) = elsewhere.events("checkpoint.restored")
    assert restored.data["step"] == record.step
    assert len({event.emitter for event in elsewhere.events()}) == 2


def test_before_the_engines_limit_it_leaves_to_go_on_here(carrying):
    ad = Path(carrying(training()).environment["_CONDOR_JOB_AD"])
    ad.write_text(ad.read_text() + "AllowedExecuteDuration = 20\nJobMaxVacateTime = 5\n")
    planned = training("--steps", 100000, "--every", 100000, every_s=3600.0)
    run = carrying(planned, options=("--deadline", "auto"))
    assert run.start().wait() == 85, run.stderr
    assert "the engine's own time limit was near" in run.end_data["reason"]
    assert records(run)[0].step > 0


def test_a_killed_start_leaves_what_was_complete(carrying):
    run = carrying(training("--steps", 100000, "--pace", 0.05, every_s=3600.0)).start()
    run.wait_for_event("checkpoint.saved")
    run.process.kill()
    run.wait()
    assert records(run)
    (run.attempt_folder.claim).unlink()  # HTCondor starts it elsewhere, in a fresh folder
    again = run.start()
    before = len(again.events("checkpoint.saved"))
    wait_until(lambda: len(again.events("checkpoint.saved")) > before)
    assert again.events("checkpoint.restored")
    again.process.send_signal(signal.SIGTERM)
    assert again.wait() == 86, again.stderr
    assert {record.emitter for record in records(run)} == {again.events("checkpoint.saved")[-1].emitter}


def test_where_nobody_carries_it_no_folder_is_made(attempt):
    run = attempt(training("--steps", 3)).start_and_wait()
    assert run.process.returncode == 0, run.stderr
    assert not (run.attempt_folder.root / "checkpoint").exists()
