"""The transfer plugin in a real pool: a job ships it and uses it for inputs and outputs."""

from __future__ import annotations

import pytest

from packtrain.engines.bundle import build_plugin
from testbed.federation import Federation
from testbed.http_server import HttpServer, ResponseFault

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pool-1"), pytest.mark.timeout(600)]

DATA = bytes(range(256)) * 4_000
SUBMIT = """executable = /bin/sh
transfer_executable = false
arguments = "-c '{command}'"
transfer_plugins = pelican,http=packtrain-plugin.pyz
transfer_input_files = {inputs}
output = out
error = err
+PacktrainRetryTimeout = {retry_timeout_s}
{extra_lines}
queue
"""


def submit(workspace, inputs, command="wc -c *.bin", retry_timeout_s=20, extra_lines=""):
    build_plugin(workspace.folder / "packtrain-plugin.pyz")
    text = SUBMIT.format(
        command=command, inputs=", ".join(inputs), retry_timeout_s=retry_timeout_s, extra_lines=extra_lines
    )
    return workspace.condor_submit(text)


@pytest.fixture
def origin(tmp_path):
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "data.bin").write_bytes(DATA)
    with HttpServer(folder, writable=True) as origin:
        yield origin


def test_inputs_from_federation_and_web_server(workspace, origin, tmp_path):
    (tmp_path / "federation" / "data").mkdir(parents=True)
    with Federation(tmp_path / "federation") as federation:
        (federation.origin.folder / "data" / "other.bin").write_bytes(DATA * 2)
        workspace.pool.trust_ca(federation.ca)
        origin.faults = [ResponseFault(status=404), ResponseFault(close_after_bytes=1000)]
        submit(workspace, [f"pelican://{federation.host}/data/other.bin", f"{origin.url}/data.bin"])
        workspace.wait_for_end()
    sizes = (workspace.folder / "out").read_text().split()
    assert sizes[:4] == [str(len(DATA)), "data.bin", str(len(DATA) * 2), "other.bin"], (
        workspace.folder / "err"
    ).read_text()


def test_missing_input_holds_the_job(workspace, origin):
    jobs = submit(workspace, [f"{origin.url}/none.bin"], retry_timeout_s=1)
    job_ad = workspace.pool.wait_for_job(
        jobs, status=5, attributes=["HoldReason", "HoldReasonCode", "HoldReasonSubCode"]
    )
    assert job_ad["HoldReasonCode"] == 13 and job_ad["HoldReasonSubCode"] == 1 << 8
    assert "returned 404" in job_ad["HoldReason"] and "object_missing" in job_ad["HoldReason"]


def test_unavailable_service_is_retryable(workspace, origin):
    origin.faults = [ResponseFault(status=503)] * 10_000
    jobs = submit(workspace, [f"{origin.url}/data.bin"], retry_timeout_s=1)
    job_ad = workspace.pool.wait_for_job(jobs, status=5, attributes=["HoldReason", "HoldReasonSubCode"])
    assert job_ad["HoldReasonSubCode"] == 11 << 8
    assert "transient: try again later" in job_ad["HoldReason"]


def test_output_remapped_to_url(workspace, origin):
    extra_lines = f'transfer_output_files = result.bin\ntransfer_output_remaps = "result.bin = {origin.url}/result.bin"'
    submit(workspace, [f"{origin.url}/data.bin"], command="cp data.bin result.bin", extra_lines=extra_lines)
    workspace.wait_for_end()
    assert (origin.folder / "result.bin").read_bytes() == DATA
