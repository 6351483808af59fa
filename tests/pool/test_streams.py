"""A training on a real pool that streams from a federation through caches, and is evicted mid-epoch."""

from __future__ import annotations

import json
import sys
from collections import Counter

import pytest

from testbed.federation import XRootDFederation
from tests.support.nested_archives import write_nested_tar
from tests.support.programs import stream_training

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pool-2"), pytest.mark.timeout(600)]

WORKFLOW = """
name: streaming
resources: {{tasks: 1, cpusPerTask: 1, memPerCpu: 500, gpus: 0}}
limits: {{grace: 20s, disk: 3GB}}
input: {{osdf: {{url: "{url}"}}, mode: stream}}
checkpoint: {{path: checkpoint.pt, minInterval: 1h}}
expect: [seen.json]
steps: [{{name: train, run: {{command: "exec {python} {program} --wait-at 5 --gate {gate}"}}}}]
"""
TIMEOUT_S = 120  # torch is imported and caches are started, on a busy machine
STEPS_PER_EPOCH = 9  # 36 samples in batches of 4


def test_eviction_mid_epoch(workspace, tmp_path):
    """Each sample is seen once per epoch."""
    gate = workspace.folder / "gate"
    with XRootDFederation(tmp_path / "federation") as federation:
        samples = write_nested_tar(federation.origin.object_dir / "train.tar")
        workspace.pool.trust_ca(federation.ca)
        workspace.environment |= {"SSL_CERT_FILE": str(federation.ca), "XDG_CACHE_HOME": str(tmp_path / "cache")}
        program = {"python": sys.executable, "program": stream_training.__file__, "gate": gate}
        workspace.write_file(WORKFLOW.format(url=federation.url("train.tar"), **program))
        process = workspace.start("run", "workflow.yaml", "--on", "htcondor")
        workspace.wait_for((workspace.folder / "waits").exists, TIMEOUT_S)
        workspace.pool.run_as_user(["condor_vacate_job", "-constraint", "JobUniverse == 5"])
        workspace.wait_for(lambda: "\n004 (" in (workspace.run_folder() / "htcondor/event.log").read_text())
        gate.touch()
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, out + err
    assert "input: 36 samples of 3 classes to stream" in out
    seen = json.loads((workspace.run_folder() / "jobs/0/output/seen.json").read_text())
    for epoch in (0, 1):
        crcs = Counter(crc for number, batch in seen if number == epoch for crc in batch)
        assert crcs == Counter(crc for crc, _ in samples), f"epoch {epoch}"
    logs = [log.read_text() for log in workspace.run_folder().glob("jobs/0/attempts/*/logs/train.out")]
    lines = [line for text in logs for line in text.splitlines()]
    first_steps = sorted(int(line.split()[-1]) for line in lines if line.startswith("starts at"))
    assert first_steps[0] == 0 and 5 <= first_steps[-1] < STEPS_PER_EPOCH, "it resumed in the first epoch"
