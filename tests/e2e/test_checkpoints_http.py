"""Checkpoints at one address of an http server: the file, its record beside it, and what comes between the two."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from packtrain.agent.checkpoints.record import RECORD_SUFFIX, CheckpointRecord
from packtrain.plan import CheckpointConfig, Limits, Location, Output
from testbed.http_server import HttpServer, ResponseFault
from tests.support.agent_runs import assert_failed, make_job, make_step, read_start_step, wait_until
from tests.support.programs import counting_trainer

pytestmark = pytest.mark.slow

PROGRAM = Path(counting_trainer.__file__)


class Place:
    """What stands at the address."""

    def __init__(self, folder):
        self.folder, self.file = folder, folder / "ckpt.bin"
        self.beside = folder / f"ckpt.bin{RECORD_SUFFIX}"
        folder.mkdir()

    @property
    def record(self):
        return CheckpointRecord.from_json(self.beside.read_text())

    @property
    def step(self):
        return counting_trainer.parse_checkpoint_step(self.file.read_bytes())


class Refusing(HttpServer):
    """Answers with a status whatever is asked of records by one method."""

    method, status = "PUT", 403

    def record_request(self, seen):
        fault = super().record_request(seen)
        refused = seen.method == self.method and seen.path.endswith(RECORD_SUFFIX)
        return ResponseFault(status=self.status) if refused else fault


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path / "web")


@pytest.fixture
def origin(place):
    with HttpServer(place.folder, writable=True) as origin:
        yield origin


@pytest.fixture
def refusing(place):
    with Refusing(place.folder, writable=True) as origin:
        yield origin


def training(origin, *options, grace_s=10):
    command = " ".join([sys.executable, "-S", str(PROGRAM), *map(str, options)])
    output = Output(Location(f"{origin.url}/ckpt.bin"))
    return make_job(
        make_step(command, name="train"),
        checkpoint=CheckpointConfig("ckpt.bin"),
        output=output,
        limits=Limits(grace_s=grace_s),
    )


def killed(run):
    """After a save, where it waits: what stands there is whole."""
    run.wait_for_event("checkpoint.saved")
    run.process.kill()
    run.wait()


def test_a_killed_training_goes_on(attempt, place, origin):
    killed(attempt(training(origin, "--steps", 1000, "--every", 20, "--wait-at", 20)).start())
    record = place.record
    assert (record.step, place.step) == (20, 20)
    second = attempt(training(origin, "--steps", 30)).start_and_wait()
    assert second.process.returncode == 0, second.stderr
    (restored,) = second.events("checkpoint.restored")
    assert (restored.data["step"], restored.data["emitter"]) == (20, record.emitter)
    assert read_start_step(second) == 20
    assert second.notices == []


def test_it_is_left_in_time(attempt, place, origin):
    run = attempt(training(origin, "--steps", 100000, "--every", 100000)).start()
    run.wait_for_event("metric")
    run.process.send_signal(signal.SIGTERM)
    assert run.wait() == 86, run.stderr
    assert run.end_data["step"] == place.record.step == place.step
    second = attempt(training(origin, "--steps", 100000, "--leave-at", place.step + 3)).start_and_wait()
    assert second.process.returncode == 85, second.stderr
    assert read_start_step(second) == run.end_data["step"]
    assert second.end_data["step"] == run.end_data["step"] + 3
    assert not [seen.path for seen in origin.requests if "/ckpt.bin/" in seen.path], "there is nothing below a file"


def test_other_outputs_stay_in_the_attempts_folder(attempt, place, origin):
    plan = training(origin, "--steps", 40, "--leave-at", 20)
    note = make_step('echo 1 >> "$PACKTRAIN_OUTPUT/log.txt"', name="note")
    run = attempt(make_job(note, *plan.steps, checkpoint=plan.checkpoint, output=plan.output)).start_and_wait()
    assert run.process.returncode == 85, run.stderr
    assert [path.name for path in run.attempt_folder.output.rglob("*") if path.is_file()] == ["log.txt"]
    assert run.notices == []


def test_what_is_not_whole_is_told_and_does_not_hold_up_the_next(attempt, place, origin):
    """As when an attempt dies between the file and its record."""
    killed(attempt(training(origin, "--steps", 1000, "--every", 20, "--wait-at", 20)).start())
    place.file.write_bytes(counting_trainer.checkpoint_content(40, 1000))
    second = attempt(training(origin, "--steps", 1000, "--every", 3, "--wait-at", 3)).start()
    second.wait_for_event("checkpoint.saved", step=3)
    second.process.kill()
    second.wait()
    assert read_start_step(second) == 0
    assert any("step 20" in text and "not whole and is not used" in text for text in second.notices)
    assert (place.record.step, place.step) == (3, 3), "although the record said 20"


@pytest.mark.parametrize("status", [403, 405, 409])
def test_a_server_that_refuses_the_record(attempt, place, refusing, status):
    refusing.status = status
    run = attempt(training(refusing, "--steps", 100000)).start()
    wait_until(lambda: place.file.exists() and place.step > 40)
    run.process.send_signal(signal.SIGTERM)
    assert run.wait() == 60, "nobody could go on from it"
    told = [text for text in run.notices if "nobody can go on from it" in text]
    assert len(told) == 1, "once"
    assert f"answered {status}" in told[0]
    assert run.events("checkpoint.saved") == []
    assert not place.beside.exists()


@pytest.mark.parametrize("status", [403, 404, 405])
def test_a_server_that_does_not_give_the_record_back(attempt, place, refusing, status):
    refusing.method, refusing.status = "GET", status
    run = attempt(training(refusing, "--steps", 100000, "--leave-at", 30)).start_and_wait()
    assert_failed(run, run.process.returncode, "upload_failed", "steps", "its record was refused", f"answered {status}")
    assert place.step == 30
    assert run.events("checkpoint.saved") == []


def test_of_two_attempts_the_further_one_stands(attempt, place, origin):
    fast = attempt(training(origin, "--steps", 100000, "--every", 50)).start()
    slow = attempt(training(origin, "--steps", 100000, "--pace", 0.3)).start()
    slow.wait_for_event("checkpoint.saved")
    fast.wait_for_event("checkpoint.saved", step=50)
    wait_until(lambda: any("has carried a later step" in text for text in slow.notices))
    fast.wait_for_event("checkpoint.saved", step=100)
    for run in (slow, fast):
        run.process.send_signal(signal.SIGTERM)
        run.wait()
    assert place.record.emitter == fast.events()[0].emitter
    assert place.record.step == place.step == fast.end_data["step"]
    assert slow.process.returncode in (60, 86)


@pytest.mark.parametrize("change", [{"run": "run-0"}, {"job": "1"}])
def test_the_record_of_another_run_or_job_is_not_ours(attempt, place, origin, change):
    record = CheckpointRecord("run-1", "0", "agent-x", 1, 900, None, "ckpt.bin", (), 0.0)
    raw = {**json.loads(record.to_json()), "files": [{"name": "ckpt.bin", "size": 1, "sha256": "0"}], **change}
    place.beside.write_text(json.dumps(raw))
    run = attempt(training(origin, "--steps", 1000, "--leave-at", 5)).start_and_wait()
    assert run.process.returncode == 85, run.stderr
    assert (run.notices, read_start_step(run)) == ([], 0)
    assert place.record.step == 5


def test_what_is_no_record_is_told(attempt, place, origin):
    place.beside.write_text("<html>")
    run = attempt(training(origin, "--steps", 1000, "--leave-at", 5)).start_and_wait()
    assert run.process.returncode == 85, run.stderr
    assert any("no good record" in text for text in run.notices)
    assert place.record.step == 5
