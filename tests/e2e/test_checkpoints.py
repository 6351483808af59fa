"""Checkpoints of real agents: uploaded while the training runs, complete or invisible, and used to resume."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from packtrain.agent.checkpoints.record import CheckpointRecord, best_first
from packtrain.plan import CheckpointConfig, Limits, Location, Output
from tests.support.agent_runs import assert_failed, make_job, make_step, read_start_step
from tests.support.cli_runs import Workspace
from tests.support.programs import counting_trainer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

PROGRAM = Path(counting_trainer.__file__)


def make_training(*options, output, limits=None, prefix=""):
    """A job that runs the counting trainer.

    Without the prefix `exec` a shell runs the program: SIGTERM ends the shell at once, and the program's exit code is
    lost.
    """
    command = " ".join([prefix, sys.executable, "-S", str(PROGRAM), *map(str, options)])
    return make_job(
        make_step(command, name="train"),
        checkpoint=CheckpointConfig("ckpt.bin"),
        output=output,
        limits=limits or Limits(grace_s=10),
    )


def read_records(folder):
    paths = Path(folder).glob(".packtrain/checkpoints/run-1/0/*/*/record.json")
    return best_first(CheckpointRecord.from_json(path.read_text()) for path in paths)


def assert_complete(folder):
    """Every visible record names complete files."""
    for record in read_records(folder):
        for file in record.files:
            data = (Path(folder) / record.prefix / file.name).read_bytes()
            assert len(data) == file.size
            assert (
                counting_trainer.parse_checkpoint_step(data) >= record.step
            )  # it may be replaced before its notice is read


@pytest.fixture
def destination(tmp_path):
    return tmp_path / "destination"


@pytest.fixture
def output(destination):
    return Output(Location(f"file://{destination}"))


# Save and resume


def test_successful_training(attempt, destination, output, tmp_path):
    gate = tmp_path / "gate"
    run = attempt(make_training("--steps", 5, "--wait-at", 3, "--gate", gate, output=output)).start()
    run.wait_for_event("checkpoint.saved")
    gate.touch()
    assert run.wait() == 0, run.stderr
    saved = [e.data for e in run.events("checkpoint.saved")]
    assert saved, "the first steps are uploaded while the others run"
    assert [s["step"] for s in saved] == sorted({s["step"] for s in saved})
    assert saved[0]["bytes"] == 1000 and len(saved[0]["sha256"]) == 64
    assert saved[0]["epoch"] == 0
    assert len(read_records(destination)) <= 2
    assert_complete(destination)
    assert counting_trainer.parse_checkpoint_step((destination / run.staged_name("ckpt.bin")).read_bytes()) == 5
    assert (destination / run.staged_name("model.bin")).exists()
    assert run.notices == []


def test_resume_after_kill(attempt, destination, output):
    first = attempt(make_training("--steps", 1000, "--pace", 0.1, output=output)).start()
    first.wait_for_event("checkpoint.saved")
    first.process.kill()
    first.wait()
    assert_complete(destination)
    newest = read_records(destination)[0]
    second = attempt(make_training("--steps", newest.step + 20, output=output)).start_and_wait()
    assert second.process.returncode == 0, second.stderr
    (restored,) = second.events("checkpoint.restored")
    assert (restored.data["step"], restored.data["emitter"]) == (newest.step, newest.emitter)
    assert read_start_step(second) >= newest.step


def test_requeue_after_term_wall_time_and_exit_85(attempt, destination, output):
    run = attempt(make_training("--steps", 100000, "--every", 100000, output=output)).start()
    run.wait_for_event("metric")
    run.process.send_signal(signal.SIGTERM)
    assert run.wait() == 86
    assert run.end_data["outcome"] == "requeued"
    assert run.end_data["failure"] is None
    reached = read_records(destination)[0].step
    assert run.end_data["step"] == reached > 0
    assert "checkpointed at training step" in run.stderr
    assert run.is_sandbox_removed

    limits = Limits(wall_time_s=16, grace_s=10)
    second = attempt(make_training("--steps", 100000, "--every", 100000, output=output, limits=limits)).start_and_wait()
    assert second.process.returncode == 85, second.stderr
    assert read_start_step(second) >= reached
    assert read_records(destination)[0].step == second.end_data["step"] > reached

    third = attempt(
        make_training("--steps", 100000, "--exit-at", second.end_data["step"] + 3, output=output)
    ).start_and_wait()
    assert third.process.returncode == 85, third.stderr
    assert third.end_data["step"] == second.end_data["step"] + 3


def test_program_that_dies_on_term(attempt, destination, output):
    """Its earlier checkpoints count for the next attempt; without any, the attempt failed."""
    run = attempt(make_training("--steps", 100000, "--ignore-stop", "--every", 100000, output=output)).start()
    run.wait_for_event("metric")
    run.process.send_signal(signal.SIGTERM)
    assert run.wait() == 60
    assert_failed(run, 60, "terminated", "steps", "SIGTERM")
    second = attempt(make_training("--steps", 100000, "--ignore-stop", output=output)).start()
    second.wait_for_event("checkpoint.saved")
    second.process.send_signal(signal.SIGTERM)
    assert second.wait() == 86
    assert_complete(destination)
    limits = Limits(wall_time_s=12, grace_s=5)
    third = attempt(
        make_training("--steps", 100000, "--ignore-stop", "--every", 100000, output=output, limits=limits)
    ).start_and_wait()
    assert_failed(third, 16, "wall_time", "steps", "wallTime")


def test_exit_85_without_checkpoint_fails(attempt, output):
    run = attempt(make_training("--every", 100, "--exit-at", 3, output=output)).start_and_wait()
    assert_failed(run, 10, "step_failed", "steps", "ended with exit code 85", "no checkpoint was saved")


def test_engine_deadline(attempt, destination, output):
    job = make_training("--steps", 100000, "--every", 100000, output=output)
    run = attempt(job, options=("--deadline", str(time.time() + 16))).start_and_wait()
    assert run.process.returncode == 86, run.stderr
    assert "the engine's own time limit" in run.end_data["reason"]
    assert read_records(destination)[0].step == run.end_data["step"]


def test_variables_of_steps(attempt, output):
    print_variables = 'echo "$PACKTRAIN_CHECKPOINTS|$PACKTRAIN_STOP|$PACKTRAIN_DEADLINE|$PACKTRAIN_RESUME"; '
    wait_for_stop = 'trap "" TERM; until [ -e "$PACKTRAIN_STOP" ]; do sleep 0.05; done; cat "$PACKTRAIN_STOP"'
    step = make_step(print_variables + wait_for_stop, name="train")
    job = make_job(step, checkpoint=CheckpointConfig("c"), output=output)
    run = attempt(job, environ={**os.environ, "PACKTRAIN_RESUME": "/of/another"}).start()
    run.wait_for_event("step.started")
    log = run.attempt_folder.logs / "train.out"
    wait_until(lambda: log.exists() and log.stat().st_size)
    run.process.send_signal(signal.SIGTERM)
    run.wait()
    variables, reason = log.read_text().split()
    checkpoints_file, stop_file, deadline, resume = variables.split("|")
    assert checkpoints_file.endswith("/checkpoints.jsonl")
    assert stop_file.endswith("/stop")
    assert (deadline, resume, reason) == ("", "", "term")


def test_program_without_notices(attempt, destination, output):
    """Its file is uploaded when it is stable, or after exit code 85."""
    run = attempt(
        make_training("--steps", 100000, "--no-announce", "--every", 100000, output=output, prefix="exec")
    ).start()
    wait_until(lambda: any(e.data["step"] >= 5 for e in run.events("metric")))
    run.process.send_signal(signal.SIGTERM)
    assert run.wait() == 86, run.stderr
    (record,) = read_records(destination)
    assert record.step >= 5, "the latest reported step"
    second = attempt(make_training("--steps", record.step + 20, "--no-announce", output=output)).start_and_wait()
    assert second.process.returncode == 0, second.stderr
    assert read_start_step(second) >= record.step - 1


def test_several_files_without_notices(attempt, destination, output):
    files = '"$PACKTRAIN_OUTPUT"/model.pt "$PACKTRAIN_OUTPUT"/optim.pt'
    command = f'if [ "$PACKTRAIN_RESUME" ]; then cat {files}; else echo saved | tee {files}; exit 85; fi'
    job = make_job(make_step(command, name="train"), checkpoint=CheckpointConfig("*.pt"), output=output)
    first = attempt(job).start_and_wait()
    assert first.process.returncode == 85, first.stderr
    assert [file.name for file in read_records(destination)[0].files] == ["model.pt", "optim.pt"]
    second = attempt(job).start_and_wait()
    assert second.process.returncode == 0, second.stderr
    assert (second.attempt_folder.logs / "train.out").read_text() == "saved\nsaved\n"


def test_other_outputs_are_restored(attempt, destination, output):
    """A requeued attempt also uploads its logs, the best model so far, and so on."""
    append = 'echo "again" >> "$PACKTRAIN_OUTPUT/log.txt"; '
    job = make_training("--steps", 40, "--exit-at", 20, "--pace", 0.001, output=output)
    job = replace(job, steps=(make_step(append + job.steps[0].action.command, name="train"),))
    first = attempt(job).start_and_wait()
    assert first.process.returncode == 85, first.stderr
    folder = destination / ".packtrain" / "requeued" / first.events()[0].emitter
    assert [path.name for path in folder.iterdir()] == ["log.txt"], "the checkpoint itself is not uploaded twice"
    second = attempt(job).start_and_wait()
    assert second.process.returncode == 0, second.stderr
    assert (destination / second.staged_name("log.txt")).read_text() == "again\nagain\n"


# Faults


def test_full_disk_at_the_destination(attempt, destination, output):
    """A limit on file sizes simulates it: the agent's writes fail, those of the training do not."""
    run = attempt(make_training("--steps", 100000, "--size", 300_000, output=output)).start()
    first = run.wait_for_event("checkpoint.saved").data["step"]
    unlimited = resource.RLIM_INFINITY
    resource.prlimit(run.process.pid, resource.RLIMIT_FSIZE, (200_000, unlimited))
    wait_until(lambda: any("could not be uploaded" in text for text in run.notices))
    reached = run.events("metric")[-1].data["step"]
    wait_until(lambda: run.events("metric")[-1].data["step"] > reached + 5)
    assert_complete(destination)
    assert not list(destination.rglob(".packtrain-new-*"))
    resource.prlimit(run.process.pid, resource.RLIMIT_FSIZE, (unlimited, unlimited))
    wait_until(lambda: any(e.data["step"] > max(reached, first) for e in run.events("checkpoint.saved")))
    run.process.kill()
    run.wait()
    assert_complete(destination)
    newest = read_records(destination)[0]
    second = attempt(make_training("--steps", newest.step + 20, "--size", 300_000, output=output)).start_and_wait()
    assert second.events("checkpoint.restored")[0].data["step"] == newest.step


def test_invalid_record_is_reported_and_ignored(attempt, destination, output):
    first = attempt(make_training("--steps", 100000, output=output)).start()
    first.wait_for_event("checkpoint.saved", generation=2)
    first.process.kill()
    first.wait()
    newest, before = read_records(destination)[:2]
    (destination / newest.prefix / "record.json").write_text('{"version": 2')
    second = attempt(make_training("--steps", before.step + 20, output=output)).start_and_wait()
    assert second.events("checkpoint.restored")[0].data["step"] == before.step
    assert any("an invalid record" in text for text in second.notices)


def test_two_attempts_at_once(attempt, destination, output):
    """The slower one does not change the other's generations."""
    fast = attempt(make_training("--steps", 100000, "--pace", 0.01, output=output)).start()
    slow = attempt(make_training("--steps", 100000, "--pace", 0.3, output=output)).start()
    fast.wait_for_event("checkpoint.saved")
    slow.wait_for_event("checkpoint.saved")
    wait_until(lambda: fast.events("metric")[-1].data["step"] > 100)
    for run in (fast, slow):
        run.process.send_signal(signal.SIGTERM)
        assert run.wait() == 86, run.stderr
    assert_complete(destination)
    records = read_records(destination)
    assert {record.emitter for record in records} == {run.events()[0].emitter for run in (fast, slow)}
    assert records[0].step == fast.end_data["step"] > slow.end_data["step"]


# Complete runs

WORKFLOW = """
resources: {{tasks: 1, gpus: 0, cpusPerTask: 1, memPerCpu: 64}}
input: {{file: {{path: data.tar.gz}}}}
checkpoint: {{path: ckpt.bin}}
limits: {{maxAttempts: 1, wallTime: {wall}, grace: 5s}}
expect: [model.bin]
steps:
  - name: train
    run:
      command: test -e $PACKTRAIN_INPUT/data.txt && {command}
"""


def test_training_longer_than_wall_time(tmp_path, data):
    """limits.maxAttempts is 1: requeued attempts with progress do not count."""
    workspace = Workspace(tmp_path)
    (data / "data.tar.gz").rename(tmp_path / "data.tar.gz")
    command = f"{sys.executable} -S {PROGRAM} --steps 80 --pace 0.15"
    workspace.write_file(WORKFLOW.format(wall="14s", command=command))
    workspace.run("run", "workflow.yaml")
    (job,) = workspace.run_json("ps", workspace.run_folder().name)["jobs"]
    statuses = [attempt["status"] for attempt in job["executions"]]
    assert statuses[-1] == "succeeded"
    assert set(statuses[:-1]) == {"requeued"}
    steps = [attempt["checkpoint"]["step"] for attempt in job["executions"][:-1]]
    assert steps == sorted(set(steps))
    fetches = [e.data for e in workspace.read_events("stage.ended") if e.data["stage"] == "fetch"]
    assert sum(f["source"] == "reused" for f in fetches) == len(statuses) - 1
    assert not (workspace.run_folder() / "jobs" / "0" / "reusable-inputs").exists()
    (entry,) = [e for e in workspace.run_json("outputs") if e["name"] == "ckpt.bin"]
    assert counting_trainer.parse_checkpoint_step(Path(entry["url"].removeprefix("file://")).read_bytes()) == 80


def test_run_continues_after_killed_agent(tmp_path, data):
    workspace = Workspace(tmp_path)
    (data / "data.tar.gz").rename(tmp_path / "data.tar.gz")
    command = f"{sys.executable} -S {PROGRAM} --steps 60 --pace 0.05"
    workspace.write_file(WORKFLOW.format(wall="1h", command=command))
    process = workspace.start("run", "workflow.yaml")
    workspace.wait_for(lambda: workspace.read_events("checkpoint.saved"))
    workspace.kill_agent()
    out, err = process.communicate(timeout=90)
    assert process.returncode == 0, out + err
    (restored,) = workspace.read_events("checkpoint.restored")
    assert restored.data["step"] >= 1
