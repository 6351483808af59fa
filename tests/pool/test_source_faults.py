"""Servers that fail while jobs of a pool fetch from them, and an image that cannot run."""

from __future__ import annotations

import hashlib
import os

import pytest

from testbed.faults import Fault, FaultProxy
from testbed.federation import XRootDFederation
from tests.support.cli_runs import TIMEOUT_S

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pool-2"), pytest.mark.timeout(600)]

WORKFLOW = """
name: fetching
resources: {{tasks: 1, cpusPerTask: 1, memPerCpu: 200, gpus: 0}}
input: {{{kind}: {{url: "{url}"}}}}
expect: [sum.txt]
steps: [{{run: {{command: "sha256sum < $PACKTRAIN_INPUT/x.bin > $PACKTRAIN_OUTPUT/sum.txt"}}}}]
"""
CONTAINED = """
name: contained
resources: {{tasks: 1, cpusPerTask: 1, memPerCpu: 64, gpus: 0}}
limits: {{maxAttempts: 1}}
steps: [{{run: {{command: "true", container: {{image: {image}}}}}}}]
"""
SIZE = 256 << 20


def write_noise(path, size):
    block = os.urandom(1 << 20)
    digest = hashlib.sha256()
    with open(path, "wb") as file:
        for number in range(size >> 20):
            piece = number.to_bytes(8, "big") + block[8:]
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()


def assert_arrived(desk, digest):
    assert (desk.run_folder() / "jobs/0/output/sum.txt").read_text().split()[0] == digest


def test_not_found_for_a_while(desk, tmp_path):
    (tmp_path / "www").mkdir()
    digest = write_noise(tmp_path / "www/x.bin", 5 << 20)
    with FaultProxy(tmp_path / "www", [Fault("status", status=404, active_for_s=5)]) as proxy:
        desk.write_file(WORKFLOW.format(kind="http", url=f"{proxy.url}/x.bin"))
        desk.run("run", "workflow.yaml", "--on", "htcondor", "--offline")
        assert proxy.injected_faults
    assert_arrived(desk, digest)
    assert len(desk.attempt_folders()) == 1


def test_a_cache_stops_in_the_middle(desk, tmp_path):
    with XRootDFederation(tmp_path / "federation") as federation:
        digest = write_noise(federation.origin.object_dir / "x.bin", SIZE)
        desk.pool.trust(federation.ca)
        desk.environment["SSL_CERT_FILE"] = str(federation.ca)
        desk.write_file(WORKFLOW.format(kind="osdf", url=federation.url("x.bin")))
        process = desk.start("run", "workflow.yaml", "--on", "htcondor")
        kept = tmp_path / "federation/cache1/store/data/x.bin"
        desk.wait_for(lambda: kept.exists() and kept.stat().st_blocks * 512 > SIZE // 10)
        federation.caches[0].pause()
        out, err = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, out + err
    assert_arrived(desk, digest)
    assert len(desk.attempt_folders()) == 1


def test_a_container_that_does_not_start(desk):
    """HTCondor itself would start such a job for ever."""
    (desk.folder / "broken.sif").write_bytes(b"#!/usr/bin/env run-singularity\n" + bytes(5000))
    desk.write_file(CONTAINED.format(image=desk.folder / "broken.sif"))
    desk.run("run", "workflow.yaml", "--on", "htcondor", code=51)
    why = desk.run("why")
    assert "container_failed" in why
    assert "Singularity test failed" in why
