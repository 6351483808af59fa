"""Checkpoints on a real S3 server (SeaweedFS) that is slow, rejects requests, freezes or is killed during an upload.

The training continues, nothing incomplete is ever visible, and the next attempt resumes from the newest complete
generation.
"""

from __future__ import annotations

import hashlib
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from packtrain.agent.checkpoints.record import CheckpointRecord, best_first
from packtrain.plan import CheckpointConfig, Limits, Output
from testbed import s3 as testbed_s3
from testbed.faults import Fault, FaultProxy
from tests.support.agent_runs import TIMEOUT_S, make_job, make_step
from tests.support.programs import counting_trainer
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("s3-faults")]

PROGRAM = Path(counting_trainer.__file__)
MB = 1_000_000
_PREFIX_NUMBERS = count()


@pytest.fixture(scope="module")
def server():
    with testbed_s3.S3Server() as running:
        yield running


@pytest.fixture
def proxy(server):
    with FaultProxy(server.endpoint) as running:
        yield running


class Destination:
    """An output below its own prefix. The agent uses the fault proxy, the tests use the server directly with boto3."""

    def __init__(self, server, proxy):
        self.server, self.prefix = server, f"job-{next(_PREFIX_NUMBERS)}"
        location = server.location(self.prefix)
        self.output = Output(replace(location, s3=replace(location.s3, endpoint=proxy.url)))

    def objects(self):
        pages = self.server.client.get_paginator("list_objects_v2").paginate(Bucket=testbed_s3.BUCKET)
        keys = [o["Key"] for page in pages for o in page.get("Contents", [])]
        return [key for key in keys if key.startswith(f"{self.prefix}/")]

    def read(self, name):
        return self.server.client.get_object(Bucket=testbed_s3.BUCKET, Key=f"{self.prefix}/{name}")["Body"].read()

    def put(self, name, data):
        self.server.client.put_object(Bucket=testbed_s3.BUCKET, Key=f"{self.prefix}/{name}", Body=data)

    def records(self):
        names = [key.split("/", 1)[1] for key in self.objects() if key.endswith("/record.json")]
        return best_first(CheckpointRecord.from_json(self.read(name).decode()) for name in names)

    def assert_complete(self):
        for record in self.records():
            for file in record.files:
                data = self.read(f"{record.prefix}/{file.name}")
                assert hashlib.sha256(data).hexdigest() == file.sha256
                # The file may be replaced before its notice is read.
                assert counting_trainer.parse_checkpoint_step(data) >= record.step


@pytest.fixture
def destination(server, proxy):
    return Destination(server, proxy)


def make_training(destination, *options, **job_options):
    command = " ".join([sys.executable, "-S", str(PROGRAM), *map(str, options)])
    return make_job(
        make_step(command, name="train"),
        checkpoint=CheckpointConfig("*.bin"),
        output=destination.output,
        limits=Limits(grace_s=20),
        **job_options,
    )


def start(attempt, destination, *options, **job_options):
    return attempt(make_training(destination, "--steps", 1_000_000, *options, **job_options)).start()


def latest_step(run):
    return max((e.data["step"] for e in run.events("metric")), default=0)


def wait_for_progress(run, steps=5):
    """Wait until the training has advanced by some steps."""
    reached = latest_step(run)
    wait_until(lambda: latest_step(run) >= reached + steps)


def wait_for_upload(run, beyond=-1):
    return wait_until(lambda: [e.data["step"] for e in run.events("checkpoint.saved") if e.data["step"] > beyond])[-1]


def wait_for_notice(run, fragment):
    wait_until(lambda: any(fragment in text for text in run.notices))


def kill_and_resume(attempt, destination, run):
    """Kill the agent, and assert that the next attempt resumes from the newest complete generation."""
    run.process.kill()
    run.wait()
    destination.assert_complete()
    newest = destination.records()[0]
    second = attempt(make_training(destination, "--steps", newest.step + 20)).start_and_wait()
    assert second.process.returncode == 0, second.stderr
    assert second.events("checkpoint.restored")[0].data["step"] == newest.step
    assert counting_trainer.parse_checkpoint_step(destination.read(second.staged_name("ckpt.bin"))) == newest.step + 20
    return newest


def test_rejecting_server(attempt, destination, proxy):
    run = start(attempt, destination)
    first = wait_for_upload(run)
    proxy.set_faults([Fault("status", status=403, max_times=None)])
    wait_for_notice(run, "could not be uploaded")
    wait_for_progress(run)
    step_at_rejection = latest_step(run)
    destination.assert_complete()
    proxy.set_faults([])
    assert wait_for_upload(run, step_at_rejection) > first
    assert sum("could not be uploaded" in text for text in run.notices) == 1, "reported once"
    kill_and_resume(attempt, destination, run)


def test_slow_server(attempt, destination, proxy):
    proxy.set_faults([Fault("delay", duration_s=0.5, max_times=None)])
    run = start(attempt, destination)
    first = wait_for_upload(run)
    wait_for_progress(run)
    wait_for_upload(run, first)
    steps = [e.data["step"] for e in run.events("checkpoint.saved")]
    assert len(steps) < latest_step(run), "newer saves replaced waiting ones"
    proxy.set_faults([])
    kill_and_resume(attempt, destination, run)


def test_frozen_server(attempt, server, destination):
    run = start(attempt, destination)
    wait_for_upload(run)
    server.pause()
    try:
        wait_for_progress(run, 20)
        reached = latest_step(run)
    finally:
        server.resume()
    wait_for_upload(run, reached)
    kill_and_resume(attempt, destination, run)


def test_server_killed_during_upload(attempt, server, destination, proxy):
    """40 MB are uploaded in parts: some parts exist, the object does not."""
    run = start(attempt, destination, "--every", 25, "--size", 40 * MB, "--pace", 0.05)
    first = wait_for_upload(run)
    before = {id(c) for c in proxy.connections}
    wait_until(
        lambda: any(
            "partNumber" in request for c in list(proxy.connections) if id(c) not in before for request in c.requests
        )
    )
    server.kill()
    try:
        wait_for_notice(run, "could not be uploaded")
        wait_for_progress(run)
    finally:
        server.start()
    assert wait_for_upload(run, first) > first
    kill_and_resume(attempt, destination, run)


def test_agent_killed_during_upload(attempt, destination, proxy):
    run = start(attempt, destination, "--every", 10)
    wait_for_upload(run)
    proxy.set_faults([Fault("delay", path_contains="/ckpt.bin", duration_s=60.0, max_times=None)])
    assert proxy.wait_for_faults(1, TIMEOUT_S)
    run.process.kill()
    run.wait()
    proxy.release()
    proxy.set_faults([])
    destination.assert_complete()
    newest = destination.records()[0]
    second = attempt(make_training(destination, "--steps", newest.step + 20)).start_and_wait()
    assert second.process.returncode == 0, second.stderr
    assert second.events("checkpoint.restored")[0].data["step"] == newest.step


def test_damaged_generation_falls_back_to_previous(attempt, destination):
    run = start(attempt, destination)
    wait_for_upload(run, wait_for_upload(run))
    run.process.kill()
    run.wait()
    newest, before = destination.records()[:2]
    destination.put(f"{newest.prefix}/ckpt.bin", b"x" * newest.files[0].size)
    second = attempt(make_training(destination, "--steps", before.step + 20)).start_and_wait()
    assert second.process.returncode == 0, second.stderr
    assert second.events("checkpoint.restored")[0].data["step"] == before.step
    (notice,) = [text for text in second.notices if "is incomplete or damaged" in text]
    assert f"step {newest.step}" in notice


def test_server_down_at_the_end(attempt, destination, proxy):
    """Complete generations count, and a notice reports the lost save."""
    run = start(attempt, destination, retry_timeout_s=1.0)
    wait_for_upload(run)
    proxy.set_faults([Fault("status", status=503, max_times=None)])
    run.process.terminate()
    assert run.wait() == 86, run.stderr
    assert run.end_data["outcome"] == "requeued"
    assert any("could not be uploaded" in text for text in run.notices)
    proxy.set_faults([])
    destination.assert_complete()


def test_output_upload_fails_after_retry_timeout(attempt, destination, proxy, tmp_path):
    destination.output, gate = replace(destination.output, retry_timeout_s=1.0), tmp_path / "gate"
    run = attempt(make_training(destination, "--steps", 100, "--wait-at", 20, "--gate", gate)).start()
    wait_for_upload(run)
    proxy.set_faults([Fault("status", status=503, max_times=None)])
    gate.touch()
    assert run.wait() == 38, run.stderr
    assert run.failure["kind"] == "upload_failed"
    folder = run.attempt_folder.output / ".packtrain" / run.events()[0].emitter
    assert counting_trainer.parse_checkpoint_step((folder / "model.bin").read_bytes()) == 100
