"""Checkpoints of real agents: carried away while the training runs, complete or invisible, resumed from."""

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
from tests.support.agent_runs import assert_failed, make_job, make_step, read_start_step, wait_until
from tests.support.cli_runs import Workspace
from tests.support.programs import counting_trainer

pytestmark = pytest.mark.slow

PROGRAM = Path(counting_trainer.__file__)


def training(*options, checkpoint="ckpt.bin", output=None, limits=None, every_s=None, first="", **more):
    """Without `exec` a shell stands between: TERM ends it at once, and nobody sees the program's exit code."""
    command = " ".join([first, sys.executable, "-S", str(PROGRAM), *map(str, options)])
    return make_job(
        make_step(command, name="train"),
        checkpoint=CheckpointConfig(checkpoint, every_s),
        output=output,
        limits=limits or Limits(grace_s=10),
        **more,
    )


def records(folder):
    found = Path(folder).glob(".packtrain/checkpoints/run-1/0/*/*/record.json")
    return best_first(CheckpointRecord.from_json(path.read_text()) for path in found)


def assert_whole(folder):
    """Every record that can be seen names files that are there, whole."""
    for record in records(folder):
        for file in record.files:
            data = (Path(folder) / record.prefix / file.name).read_bytes()
            assert len(data) == file.size
            assert counting_trainer.parse_checkpoint_step(data) >= record.step  # it may be saved anew before its notice


@pytest.fixture
def place(tmp_path):
    return tmp_path / "place"


@pytest.fixture
def output(place):
    return Output(Location(f"file://{place}"))


# Saved and resumed


def test_a_training_that_ends_well(attempt, place, output, tmp_path):
    gate = tmp_path / "gate"
    run = attempt(training("--steps", 5, "--wait-at", 3, "--gate", gate, output=output)).start()
    run.wait_for_event("checkpoint.saved")
    gate.touch()
    assert run.wait() == 0, run.stderr
    saved = [e.data for e in run.events("checkpoint.saved")]
    assert saved, "the first steps are carried away while the others run"
    assert [s["step"] for s in saved] == sorted({s["step"] for s in saved})
    assert saved[0]["bytes"] == 1000 and len(saved[0]["sha256"]) == 64
    assert saved[0]["epoch"] == 0
    assert len(records(place)) <= 2
    assert_whole(place)
    assert counting_trainer.parse_checkpoint_step((place / "ckpt.bin").read_bytes()) == 5
    assert (place / "model.bin").exists()
    assert run.notices == []


def test_a_killed_training_goes_on_from_the_newest_generation(attempt, place, output):
    first = attempt(training("--steps", 1000, "--pace", 0.1, output=output)).start()
    first.wait_for_event("checkpoint.saved")
    first.process.kill()
    first.wait()
    assert_whole(place)
    newest = records(place)[0]
    second = attempt(training("--steps", newest.step + 20, output=output)).start_and_wait()
    assert second.process.returncode == 0, second.stderr
    (restored,) = second.events("checkpoint.restored")
    assert (restored.data["step"], restored.data["emitter"]) == (newest.step, newest.emitter)
    assert read_start_step(second) >= newest.step


def test_term_and_85_and_the_wall_time_are_left_in_time(attempt, place, output):
    run = attempt(training("--steps", 100000, "--every", 100000, output=output)).start()
    run.wait_for_event("metric")
    run.process.send_signal(signal.SIGTERM)
    assert run.wait() == 86
    assert run.end_data["outcome"] == "requeued"
    assert run.end_data["failure"] is None
    reached = records(place)[0].step
    assert run.end_data["step"] == reached > 0
    assert "checkpointed at training step" in run.stderr
    assert run.is_sandbox_removed

    limits = Limits(wall_time_s=16, grace_s=10)
    second = attempt(training("--steps", 100000, "--every", 100000, output=output, limits=limits)).start_and_wait()
    assert second.process.returncode == 85, second.stderr
    assert read_start_step(second) >= reached
    assert records(place)[0].step == second.end_data["step"] > reached

    third = attempt(training("--steps", 100000, "--leave-at", second.end_data["step"] + 3, output=output)).start_and_wait()
    assert third.process.returncode == 85, third.stderr
    assert third.end_data["step"] == second.end_data["step"] + 3


def test_a_program_that_dies_by_term(attempt, place, output):
    """What it saved before counts for the next attempt; without anything it is a failure, as ever."""
    run = attempt(training("--steps", 100000, "--deaf", "--every", 100000, output=output)).start()
    run.wait_for_event("metric")
    run.process.send_signal(signal.SIGTERM)
    assert run.wait() == 60
    assert_failed(run, 60, "terminated", "steps", "SIGTERM")
    second = attempt(training("--steps", 100000, "--deaf", output=output)).start()
    second.wait_for_event("checkpoint.saved")
    second.process.send_signal(signal.SIGTERM)
    assert second.wait() == 86
    assert_whole(place)
    limits = Limits(wall_time_s=12, grace_s=5)
    third = attempt(training("--steps", 100000, "--deaf", "--every", 100000, output=output, limits=limits)).start_and_wait()
    assert_failed(third, 16, "wall_time", "steps", "wallTime")


def test_85_without_a_checkpoint_is_a_failure(attempt, output):
    run = attempt(training("--every", 100, "--leave-at", 3, output=output)).start_and_wait()
    assert_failed(run, 10, "step_failed", "steps", "ended with exit code 85", "no checkpoint beyond the beginning")


def test_the_engines_own_limit(attempt, place, output):
    plan = training("--steps", 100000, "--every", 100000, output=output)
    run = attempt(plan, options=("--deadline", str(time.time() + 16))).start_and_wait()
    assert run.process.returncode == 86, run.stderr
    assert "the engine's own time limit" in run.end_data["reason"]
    assert records(place)[0].step == run.end_data["step"]


def test_what_the_steps_are_told(attempt, output):
    show = 'echo "$PACKTRAIN_CHECKPOINTS|$PACKTRAIN_STOP|$PACKTRAIN_DEADLINE|$PACKTRAIN_RESUME"; '
    wait = 'trap "" TERM; until [ -e "$PACKTRAIN_STOP" ]; do sleep 0.05; done; cat "$PACKTRAIN_STOP"'
    plan = make_job(make_step(show + wait, name="train"), checkpoint=CheckpointConfig("c"), output=output)
    run = attempt(plan, environ={**os.environ, "PACKTRAIN_RESUME": "/of/another"}).start()
    run.wait_for_event("step.started")
    wait_until(lambda: (run.attempt_folder.logs / "train.out").exists() and (run.attempt_folder.logs / "train.out").stat().st_size)
    run.process.send_signal(signal.SIGTERM)
    run.wait()
    first, word = (run.attempt_folder.logs / "train.out").read_text().split()
    announcements, stop, deadline, resume = first.split("|")
    assert announcements.endswith("/checkpoints.jsonl")
    assert stop.endswith("/stop")
    assert (deadline, resume, word) == ("", "", "term")


def test_a_program_that_announces_nothing(attempt, place, output):
    """Its file is taken when it rests, or when it has left in good order."""
    run = attempt(training("--steps", 100000, "--silent", "--every", 100000, output=output, first="exec")).start()
    wait_until(lambda: any(e.data["step"] >= 5 for e in run.events("metric")))
    run.process.send_signal(signal.SIGTERM)
    assert run.wait() == 86, run.stderr
    (record,) = records(place)
    assert record.step >= 5, "the newest step that was reported"
    second = attempt(training("--steps", record.step + 20, "--silent", output=output)).start_and_wait()
    assert second.process.returncode == 0, second.stderr
    assert read_start_step(second) >= record.step - 1


def test_a_program_with_several_files_that_announces_nothing(attempt, place, output):
    files = '"$PACKTRAIN_OUTPUT"/model.pt "$PACKTRAIN_OUTPUT"/optim.pt'
    command = f'if [ "$PACKTRAIN_RESUME" ]; then cat {files}; else echo saved | tee {files}; exit 85; fi'
    plan = make_job(make_step(command, name="train"), checkpoint=CheckpointConfig("*.pt"), output=output)
    first = attempt(plan).start_and_wait()
    assert first.process.returncode == 85, first.stderr
    assert [file.name for file in records(place)[0].files] == ["model.pt", "optim.pt"]
    second = attempt(plan).start_and_wait()
    assert second.process.returncode == 0, second.stderr
    assert (second.attempt_folder.logs / "train.out").read_text() == "saved\nsaved\n"


def test_other_outputs_come_back_too(attempt, place, output):
    """Logs, or the best model so far: what an attempt that left had written beside its checkpoint."""
    note = 'echo "again" >> "$PACKTRAIN_OUTPUT/log.txt"; '
    plan = training("--steps", 40, "--leave-at", 20, "--pace", 0.001, output=output)
    plan = replace(plan, steps=(make_step(note + plan.steps[0].action.command, name="train"),))
    first = attempt(plan).start_and_wait()
    assert first.process.returncode == 85, first.stderr
    left = place / ".packtrain" / "requeued" / first.events()[0].emitter
    assert [path.name for path in left.iterdir()] == ["log.txt"], "the checkpoint itself is not copied twice"
    second = attempt(plan).start_and_wait()
    assert second.process.returncode == 0, second.stderr
    assert (place / "log.txt").read_text() == "again\nagain\n"


# Trouble


def test_a_full_disk_at_the_destination(attempt, place, output):
    """A limit on the size of files stands for it: the agent's writes fail, those of the training do not."""
    run = attempt(training("--steps", 100000, "--size", 300_000, output=output)).start()
    first = run.wait_for_event("checkpoint.saved").data["step"]
    unlimited = resource.RLIM_INFINITY
    resource.prlimit(run.process.pid, resource.RLIMIT_FSIZE, (200_000, unlimited))
    wait_until(lambda: any("could not be carried away" in text for text in run.notices))
    reached = run.events("metric")[-1].data["step"]
    wait_until(lambda: run.events("metric")[-1].data["step"] > reached + 5)
    assert_whole(place)
    assert not list(place.rglob(".packtrain-new-*"))
    resource.prlimit(run.process.pid, resource.RLIMIT_FSIZE, (unlimited, unlimited))
    wait_until(lambda: any(e.data["step"] > max(reached, first) for e in run.events("checkpoint.saved")))
    run.process.kill()
    run.wait()
    assert_whole(place)
    newest = records(place)[0]
    second = attempt(training("--steps", newest.step + 20, "--size", 300_000, output=output)).start_and_wait()
    assert second.events("checkpoint.restored")[0].data["step"] == newest.step


def test_a_broken_record_is_told_and_passed_over(attempt, place, output):
    first = attempt(training("--steps", 100000, output=output)).start()
    first.wait_for_event("checkpoint.saved", generation=2)
    first.process.kill()
    first.wait()
    newest, before = records(place)[:2]
    (place / newest.prefix / "record.json").write_text('{"version": 1')
    second = attempt(training("--steps", before.step + 20, output=output)).start_and_wait()
    assert second.events("checkpoint.restored")[0].data["step"] == before.step
    assert any("no good record" in text for text in second.notices)


def test_two_attempts_at_once(attempt, place, output):
    """The slower one neither harms the other's generations nor hides its result."""
    fast = attempt(training("--steps", 100000, "--pace", 0.01, output=output)).start()
    slow = attempt(training("--steps", 100000, "--pace", 0.3, output=output)).start()
    fast.wait_for_event("checkpoint.saved")
    slow.wait_for_event("checkpoint.saved")
    wait_until(lambda: fast.events("metric")[-1].data["step"] > 100)
    for run in (fast, slow):
        run.process.send_signal(signal.SIGTERM)
        assert run.wait() == 86, run.stderr
    assert_whole(place)
    found = records(place)
    assert {record.emitter for record in found} == {run.events()[0].emitter for run in (fast, slow)}
    assert found[0].step == fast.end_data["step"] > slow.end_data["step"]
    assert counting_trainer.parse_checkpoint_step((place / "ckpt.bin").read_bytes()) >= fast.end_data["step"] - 1


# Whole runs

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


def test_a_run_longer_than_its_wall_time(tmp_path, data):
    """limits.maxAttempts is 1: attempts that left in time and got further are not counted."""
    desk = Workspace(tmp_path)
    (data / "data.tar.gz").rename(tmp_path / "data.tar.gz")
    command = f"{sys.executable} -S {PROGRAM} --steps 80 --pace 0.15"
    desk.write_file(WORKFLOW.format(wall="14s", command=command))
    desk.run("run", "workflow.yaml")
    (found,) = desk.run_json("ps", desk.run_folder().name)["jobs"]
    statuses = [attempt["status"] for attempt in found["attempts"]]
    assert statuses[-1] == "succeeded"
    assert set(statuses[:-1]) == {"requeued"}
    steps = [attempt["checkpoint"]["step"] for attempt in found["attempts"][:-1]]
    assert steps == sorted(set(steps))
    fetches = [e.data for e in desk.read_events("stage.ended") if e.data["stage"] == "fetch"]
    assert sum(f["source"] == "reused" for f in fetches) == len(statuses) - 1
    assert not (desk.run_folder() / "jobs" / "0" / "reusable-inputs").exists()
    (entry,) = [e for e in desk.run_json("outputs") if e["name"] == "ckpt.bin"]
    assert counting_trainer.parse_checkpoint_step(Path(entry["url"].removeprefix("file://")).read_bytes()) == 80


def test_a_run_whose_agent_is_killed_goes_on(tmp_path, data):
    desk = Workspace(tmp_path)
    (data / "data.tar.gz").rename(tmp_path / "data.tar.gz")
    command = f"{sys.executable} -S {PROGRAM} --steps 60 --pace 0.05"
    desk.write_file(WORKFLOW.format(wall="1h", command=command))
    process = desk.start("run", "workflow.yaml")
    desk.wait_for(lambda: desk.read_events("checkpoint.saved"))
    desk.kill_agent()
    out, err = process.communicate(timeout=90)
    assert process.returncode == 0, out + err
    (restored,) = desk.read_events("checkpoint.restored")
    assert restored.data["step"] >= 1
