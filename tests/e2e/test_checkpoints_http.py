"""Checkpoints on an http server, which holds a single file and its sidecar record."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from packtrain.agent.checkpoints.record import CHECKPOINT_SUFFIX, RECORD_SUFFIX, CheckpointRecord
from packtrain.plan import CheckpointConfig, Limits, Location, Output
from testbed.http_server import HttpServer, ResponseFault
from tests.support.agent_runs import assert_failed, make_job, make_step, read_start_step
from tests.support.programs import counting_trainer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

PROGRAM = Path(counting_trainer.__file__)


class Destination:
    """The files that the server serves."""

    def __init__(self, folder):
        self.folder, self.file = folder, folder / f"ckpt.bin{CHECKPOINT_SUFFIX}"
        self.record_file = folder / f"ckpt.bin{RECORD_SUFFIX}"
        folder.mkdir()

    @property
    def record(self):
        return CheckpointRecord.from_json(self.record_file.read_text())

    @property
    def step(self):
        return counting_trainer.parse_checkpoint_step(self.file.read_bytes())


class RecordRejectingServer(HttpServer):
    """Answers requests for records with an error status, for one HTTP method."""

    method, status = "PUT", 403

    def record_request(self, request):
        fault = super().record_request(request)
        rejected = request.method == self.method and request.path.endswith(RECORD_SUFFIX)
        return ResponseFault(status=self.status) if rejected else fault


@pytest.fixture
def destination(tmp_path):
    return Destination(tmp_path / "web")


@pytest.fixture
def server(destination):
    with HttpServer(destination.folder, writable=True) as server:
        yield server


@pytest.fixture
def rejecting_server(destination):
    with RecordRejectingServer(destination.folder, writable=True) as server:
        yield server


def make_training(server, *options):
    command = " ".join([sys.executable, "-S", str(PROGRAM), *map(str, options)])
    output = Output(Location(f"{server.url}/ckpt.bin"))
    return make_job(
        make_step(command, name="train"),
        checkpoint=CheckpointConfig("ckpt.bin"),
        output=output,
        limits=Limits(grace_s=10),
    )


def kill_after_save(run):
    """Kill the agent while its program waits after a save, so that no upload is in progress."""
    run.wait_for_event("checkpoint.saved")
    run.process.kill()
    run.wait()


def test_resume_after_kill(attempt, destination, server):
    kill_after_save(attempt(make_training(server, "--steps", 1000, "--every", 20, "--wait-at", 20)).start())
    record = destination.record
    assert (record.step, destination.step) == (20, 20)
    second = attempt(make_training(server, "--steps", 30)).start_and_wait()
    assert second.process.returncode == 0, second.stderr
    (restored,) = second.events("checkpoint.restored")
    assert (restored.data["step"], restored.data["emitter"]) == (20, record.emitter)
    assert read_start_step(second) == 20
    assert second.notices == []


def test_requeue(attempt, destination, server):
    run = attempt(make_training(server, "--steps", 100000, "--every", 100000)).start()
    run.wait_for_event("metric")
    run.process.send_signal(signal.SIGTERM)
    assert run.wait() == 86, run.stderr
    assert run.end_data["step"] == destination.record.step == destination.step
    second = attempt(make_training(server, "--steps", 100000, "--exit-at", destination.step + 3)).start_and_wait()
    assert second.process.returncode == 85, second.stderr
    assert read_start_step(second) == run.end_data["step"]
    assert second.end_data["step"] == run.end_data["step"] + 3
    assert not [request.path for request in server.requests if "/ckpt.bin/" in request.path], "nothing below the file"


def test_other_outputs_are_kept_in_the_attempt_folder(attempt, destination, server):
    training = make_training(server, "--steps", 40, "--exit-at", 20)
    write_log = make_step('echo 1 >> "$PACKTRAIN_OUTPUT/log.txt"', name="write-log")
    job = make_job(write_log, *training.steps, checkpoint=training.checkpoint, output=training.output)
    run = attempt(job).start_and_wait()
    assert run.process.returncode == 85, run.stderr
    assert [path.name for path in run.attempt_folder.output.rglob("*") if path.is_file()] == ["log.txt"]
    assert run.notices == []


def test_file_that_does_not_match_its_record(attempt, destination, server):
    """It happens when an attempt dies after the upload of the file and before that of its record."""
    kill_after_save(attempt(make_training(server, "--steps", 1000, "--every", 20, "--wait-at", 20)).start())
    destination.file.write_bytes(counting_trainer.checkpoint_content(40, 1000))
    second = attempt(make_training(server, "--steps", 1000, "--every", 3, "--wait-at", 3)).start()
    second.wait_for_event("checkpoint.saved", step=3)
    second.process.kill()
    second.wait()
    assert read_start_step(second) == 0
    assert any("step 20" in text and "incomplete or damaged and is ignored" in text for text in second.notices)
    assert (destination.record.step, destination.step) == (3, 3), "although the broken record has step 20"


@pytest.mark.parametrize("status", [403, 405, 409])
def test_server_rejects_record(attempt, destination, rejecting_server, status):
    rejecting_server.status = status
    run = attempt(make_training(rejecting_server, "--steps", 100000)).start()
    wait_until(lambda: destination.file.exists() and destination.step > 40)
    run.process.send_signal(signal.SIGTERM)
    assert run.wait() == 60, "the checkpoint cannot be used to resume"
    (notice,) = [text for text in run.notices if "cannot be used to resume" in text]
    assert f"returned {status}" in notice
    assert run.events("checkpoint.saved") == []
    assert not destination.record_file.exists()


@pytest.mark.parametrize("status", [403, 404, 405])
def test_server_does_not_return_record(attempt, destination, rejecting_server, status):
    rejecting_server.method, rejecting_server.status = "GET", status
    run = attempt(make_training(rejecting_server, "--steps", 100000, "--exit-at", 30)).start_and_wait()
    assert_failed(
        run, run.process.returncode, "upload_failed", "steps", "the server rejected its record", f"returned {status}"
    )
    assert destination.step == 30
    assert run.events("checkpoint.saved") == []


def test_later_step_of_two_attempts_wins(attempt, destination, server):
    slow = attempt(make_training(server, "--steps", 100000, "--pace", 0.3)).start()
    slow.wait_for_event("checkpoint.saved")  # which it cannot do any more once the fast one is ahead
    fast = attempt(make_training(server, "--steps", 100000, "--every", 50)).start()
    wait_until(lambda: any("already uploaded a later step" in text for text in slow.notices))
    n_saved = len(fast.events("checkpoint.saved"))
    wait_until(lambda: len(fast.events("checkpoint.saved")) > n_saved)
    for run in (slow, fast):
        run.process.send_signal(signal.SIGTERM)
        run.wait()
    assert destination.record.emitter == fast.events()[0].emitter
    assert destination.record.step == destination.step == fast.end_data["step"]
    assert slow.process.returncode in (60, 86)


@pytest.mark.parametrize("change", [{"run": "run-0"}, {"job": "1"}])
def test_record_of_another_run_or_job_is_ignored(attempt, destination, server, change):
    record = CheckpointRecord("run-1", "0", "agent-x", 1, 900, None, "ckpt.bin", (), 0.0)
    raw = {**json.loads(record.to_json()), "files": [{"name": "ckpt.bin", "size": 1, "sha256": "0"}], **change}
    destination.record_file.write_text(json.dumps(raw))
    run = attempt(make_training(server, "--steps", 1000, "--exit-at", 5)).start_and_wait()
    assert run.process.returncode == 85, run.stderr
    assert (run.notices, read_start_step(run)) == ([], 0)
    assert destination.record.step == 5


def test_invalid_record_is_reported(attempt, destination, server):
    destination.record_file.write_text("<html>")
    run = attempt(make_training(server, "--steps", 1000, "--exit-at", 5)).start_and_wait()
    assert run.process.returncode == 85, run.stderr
    assert any("an invalid record" in text for text in run.notices)
    assert destination.record.step == 5
