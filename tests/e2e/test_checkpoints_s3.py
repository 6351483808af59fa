"""Checkpoints to a real S3 server (SeaweedFS) that is slow, refuses, freezes or is killed in mid-upload: the training
goes on, nothing incomplete is ever visible, and the next attempt goes on from the newest complete generation."""

from __future__ import annotations

import hashlib
import sys
import time
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

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("s3-faults")]

PROGRAM = Path(counting_trainer.__file__)
MB = 1_000_000
_NUMBERS = count()


@pytest.fixture(scope="module")
def server():
    with testbed_s3.S3Server() as running:
        yield running


@pytest.fixture
def proxy(server):
    with FaultProxy(server.endpoint) as running:
        yield running


class Place:
    """An output below a prefix of its own, reached through the proxy; looked at past it, with boto3."""

    def __init__(self, server, proxy):
        self.server, self.prefix = server, f"job-{next(_NUMBERS)}"
        ref = server.location(self.prefix)
        self.output = Output(replace(ref, s3=replace(ref.s3, endpoint=proxy.url)))

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

    def assert_whole(self):
        for record in self.records():
            for file in record.files:
                data = self.read(f"{record.prefix}/{file.name}")
                assert hashlib.sha256(data).hexdigest() == file.sha256
                assert (
                    counting_trainer.parse_checkpoint_step(data) >= record.step
                )  # it may be saved anew before its notice


@pytest.fixture
def place(server, proxy):
    return Place(server, proxy)


def training(place, *options, every_s=None, **more):
    command = " ".join([sys.executable, "-S", str(PROGRAM), *map(str, options)])
    limits = Limits(grace_s=20)
    return make_job(
        make_step(command, name="train"),
        checkpoint=CheckpointConfig("*.bin", every_s),
        output=place.output,
        limits=limits,
        **more,
    )


def start(attempt, place, *options, **more):
    return attempt(training(place, "--steps", 1_000_000, *options, **more)).start()


def newest_step(run):
    return max((e.data["step"] for e in run.events("metric")), default=0)


def await_further_training(run, steps=5):
    """The training goes on."""
    reached = newest_step(run)
    deadline = time.monotonic() + TIMEOUT_S
    while newest_step(run) < reached + steps:
        assert time.monotonic() < deadline, "the training stands still"
        assert run.process.poll() is None
        time.sleep(0.05)


def await_saved(run, beyond=-1):
    deadline = time.monotonic() + 2 * TIMEOUT_S
    while True:
        saved = [e.data for e in run.events("checkpoint.saved") if e.data["step"] > beyond]
        if saved:
            return saved[-1]["step"]
        assert time.monotonic() < deadline, run.notices
        assert run.process.poll() is None
        time.sleep(0.05)


def await_notice(run, words):
    deadline = time.monotonic() + 2 * TIMEOUT_S
    while not any(words in text for text in run.notices):
        assert time.monotonic() < deadline, run.notices
        time.sleep(0.05)


def kill_and_resume(attempt, place, run):
    """SIGKILL; the next attempt goes on from the newest complete generation."""
    run.process.kill()
    run.wait()
    place.assert_whole()
    newest = place.records()[0]
    second = attempt(training(place, "--steps", newest.step + 20)).start_and_wait()
    assert second.process.returncode == 0, second.stderr
    assert second.events("checkpoint.restored")[0].data["step"] == newest.step
    assert counting_trainer.parse_checkpoint_step(place.read("ckpt.bin")) == newest.step + 20
    return newest


def test_a_refusing_server(attempt, place, proxy):
    run = start(attempt, place)
    first = await_saved(run)
    proxy.set_faults([Fault("status", status=403, max_times=None)])
    await_notice(run, "could not be carried away")
    await_further_training(run)
    time_of_refusal = newest_step(run)
    place.assert_whole()
    proxy.set_faults([])
    assert await_saved(run, time_of_refusal) > first
    assert sum("could not be carried away" in text for text in run.notices) == 1, "told once"
    kill_and_resume(attempt, place, run)


def test_a_slow_server(attempt, place, proxy):
    proxy.set_faults([Fault("late", duration_s=0.5, max_times=None)])
    run = start(attempt, place)
    first = await_saved(run)
    await_further_training(run)
    await_saved(run, first)
    steps = [e.data["step"] for e in run.events("checkpoint.saved")]
    assert len(steps) < newest_step(run), "newer saves took the place of those that waited"
    proxy.set_faults([])
    kill_and_resume(attempt, place, run)


def test_a_frozen_server(attempt, server, place):
    run = start(attempt, place)
    await_saved(run)
    server.pause()
    try:
        await_further_training(run, 20)
        reached = newest_step(run)
    finally:
        server.resume()
    await_saved(run, reached)
    kill_and_resume(attempt, place, run)


def test_a_server_killed_in_mid_upload(attempt, server, place, proxy):
    """40 MB go in parts: some of them are there, the object is not."""
    run = start(attempt, place, "--every", 25, "--size", 40 * MB, "--pace", 0.05)
    first = await_saved(run)
    before = {id(c) for c in proxy.connections}
    deadline = time.monotonic() + TIMEOUT_S
    while not any(
        "partNumber" in request for c in list(proxy.connections) if id(c) not in before for request in c.requests
    ):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    server.kill()
    try:
        await_notice(run, "could not be carried away")
        await_further_training(run)
    finally:
        server.start()
    assert await_saved(run, first) > first
    kill_and_resume(attempt, place, run)


def test_an_agent_killed_in_mid_upload(attempt, place, proxy):
    run = start(attempt, place, "--every", 10)
    await_saved(run)
    proxy.set_faults([Fault("late", path_contains="/ckpt.bin", duration_s=60.0, max_times=None)])
    assert proxy.wait_for_faults(1, TIMEOUT_S)
    run.process.kill()
    run.wait()
    proxy.release()
    proxy.set_faults([])
    place.assert_whole()
    newest = place.records()[0]
    second = attempt(training(place, "--steps", newest.step + 20)).start_and_wait()
    assert second.process.returncode == 0, second.stderr
    assert second.events("checkpoint.restored")[0].data["step"] == newest.step


def test_what_another_attempt_is_putting_to_the_same_key_is_left_alone(attempt, server, place):
    """Also if it begins with the very same bytes: how it goes on nobody knows."""
    size, at = 20 * MB, {"Bucket": testbed_s3.BUCKET, "Key": f"{place.prefix}/ckpt.bin"}
    at["UploadId"] = server.client.create_multipart_upload(**at)["UploadId"]
    server.client.upload_part(**at, PartNumber=1, Body=counting_trainer.checkpoint_content(3, size)[: 16 << 20])
    run = attempt(training(place, "--steps", 3, "--size", size)).start_and_wait()
    assert run.process.returncode == 0, run.stderr
    assert counting_trainer.parse_checkpoint_step(place.read("ckpt.bin")) == 3
    assert len(server.client.list_parts(**at)["Parts"]) == 1


def test_a_damaged_newest_one_falls_back_to_the_one_before(attempt, place):
    run = start(attempt, place)
    await_saved(run, await_saved(run))
    run.process.kill()
    run.wait()
    newest, before = place.records()[:2]
    place.put(f"{newest.prefix}/ckpt.bin", b"x" * newest.files[0].size)
    second = attempt(training(place, "--steps", before.step + 20)).start_and_wait()
    assert second.process.returncode == 0, second.stderr
    assert second.events("checkpoint.restored")[0].data["step"] == before.step
    (notice,) = [text for text in second.notices if "is not whole" in text]
    assert f"step {newest.step}" in notice


def test_a_server_that_is_down_when_it_is_time_to_leave(attempt, place, proxy):
    """What was complete before counts; what came later is told to be lost."""
    run = start(attempt, place, retry_timeout_s=1.0)
    await_saved(run)
    proxy.set_faults([Fault("status", status=503, max_times=None)])
    run.process.terminate()
    assert run.wait() == 86, run.stderr
    assert run.end_data["outcome"] == "requeued"
    assert any("could not be carried away" in text for text in run.notices)
    proxy.set_faults([])
    place.assert_whole()


def test_the_last_copy_fails_loudly_when_its_patience_ends(attempt, place, proxy, tmp_path):
    place.output, gate = replace(place.output, retry_timeout_s=1.0), tmp_path / "gate"
    run = attempt(training(place, "--steps", 100, "--wait-at", 20, "--gate", gate)).start()
    await_saved(run)
    proxy.set_faults([Fault("status", status=503, max_times=None)])
    gate.touch()
    assert run.wait() == 38, run.stderr
    assert run.failure["kind"] == "upload_failed"
    kept = run.attempt_folder.output / ".packtrain" / run.events()[0].emitter
    assert counting_trainer.parse_checkpoint_step((kept / "model.bin").read_bytes()) == 100
