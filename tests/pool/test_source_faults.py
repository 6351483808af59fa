"""Faults of servers while jobs of a pool download from them, and an image that cannot run."""

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
CONTAINER_WORKFLOW = """
name: contained
resources: {{tasks: 1, cpusPerTask: 1, memPerCpu: 64, gpus: 0}}
limits: {{maxAttempts: 1}}
steps: [{{run: {{command: "true", container: {{image: {image}}}}}}}]
"""
SIZE = 256 << 20


def write_random_file(path, size):
    """Write a file without repeated blocks and return its sha256."""
    block = os.urandom(1 << 20)
    digest = hashlib.sha256()
    with open(path, "wb") as file:
        for index in range(size >> 20):
            chunk = index.to_bytes(8, "big") + block[8:]
            digest.update(chunk)
            file.write(chunk)
    return digest.hexdigest()


def check_output(workspace, digest):
    assert (workspace.run_folder() / "jobs/0/output/sum.txt").read_text().split()[0] == digest


def test_transient_404(workspace, tmp_path):
    (tmp_path / "www").mkdir()
    digest = write_random_file(tmp_path / "www/x.bin", 5 << 20)
    with FaultProxy(tmp_path / "www", [Fault("status", status=404, active_for_s=5)]) as proxy:
        workspace.write_file(WORKFLOW.format(kind="http", url=f"{proxy.url}/x.bin"))
        workspace.run("run", "workflow.yaml", "--on", "htcondor", "--offline")
        assert proxy.injected_faults
    check_output(workspace, digest)
    assert len(workspace.attempt_folders()) == 1


def test_cache_stops_during_download(workspace, tmp_path):
    with XRootDFederation(tmp_path / "federation") as federation:
        digest = write_random_file(federation.origin.object_dir / "x.bin", SIZE)
        workspace.pool.trust_ca(federation.ca)
        workspace.environment["SSL_CERT_FILE"] = str(federation.ca)
        workspace.write_file(WORKFLOW.format(kind="osdf", url=federation.url("x.bin")))
        process = workspace.start("run", "workflow.yaml", "--on", "htcondor")
        cached = tmp_path / "federation/cache1/store/data/x.bin"
        workspace.wait_for(lambda: cached.exists() and cached.stat().st_blocks * 512 > SIZE // 10)
        federation.caches[0].pause()
        out, err = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, out + err
    check_output(workspace, digest)
    assert len(workspace.attempt_folders()) == 1


def test_container_does_not_start(workspace):
    """HTCondor itself would restart such a job forever."""
    (workspace.folder / "broken.sif").write_bytes(b"#!/usr/bin/env run-singularity\n" + bytes(5000))
    workspace.write_file(CONTAINER_WORKFLOW.format(image=workspace.folder / "broken.sif"))
    workspace.run("run", "workflow.yaml", "--on", "htcondor", exit_code=51)
    why = workspace.run("why")
    assert "container_failed" in why
    assert "Singularity test failed" in why
