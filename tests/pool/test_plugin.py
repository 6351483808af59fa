"""The transfer plugin in a real pool: sent along by a single job, for inputs and outputs."""

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
+PacktrainRetryTimeout = {patience}
{more}
queue
"""


def submit(desk, inputs, command="wc -c *.bin", patience=20, more=""):
    build_plugin(desk.folder / "packtrain-plugin.pyz")
    text = SUBMIT.format(command=command, inputs=", ".join(inputs), patience=patience, more=more)
    return desk.condor_submit(text)


@pytest.fixture
def origin(tmp_path):
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "data.bin").write_bytes(DATA)
    with HttpServer(folder, writable=True) as origin:
        yield origin


def test_inputs_of_a_federation_and_of_a_web_server(desk, origin, tmp_path):
    (tmp_path / "federation" / "data").mkdir(parents=True)
    with Federation(tmp_path / "federation") as federation:
        (federation.origin.folder / "data" / "other.bin").write_bytes(DATA * 2)
        desk.pool.trust(federation.ca)
        origin.faults = [ResponseFault(status=404), ResponseFault(close_after_bytes=1000)]
        submit(desk, [f"pelican://{federation.host}/data/other.bin", f"{origin.url}/data.bin"])
        desk.wait_for_end()
    sizes = (desk.folder / "out").read_text().split()
    assert sizes[:4] == [str(len(DATA)), "data.bin", str(len(DATA) * 2), "other.bin"], (desk.folder / "err").read_text()


def test_an_input_that_is_missing_holds_the_job_with_the_reason(desk, origin):
    jobs = submit(desk, [f"{origin.url}/none.bin"], patience=1)
    held = desk.pool.await_job(jobs, status=5, attributes=["HoldReason", "HoldReasonCode", "HoldReasonSubCode"])
    assert held["HoldReasonCode"] == 13 and held["HoldReasonSubCode"] == 1 << 8
    assert "answered 404" in held["HoldReason"] and "object_missing" in held["HoldReason"]


def test_a_service_that_is_down_is_said_to_be_retryable(desk, origin):
    origin.faults = [ResponseFault(status=503)] * 10_000
    jobs = submit(desk, [f"{origin.url}/data.bin"], patience=1)
    held = desk.pool.await_job(jobs, status=5, attributes=["HoldReason", "HoldReasonSubCode"])
    assert held["HoldReasonSubCode"] == 11 << 8
    assert "it may pass: try again later" in held["HoldReason"]


def test_outputs_go_where_their_address_says(desk, origin):
    more = f'transfer_output_files = made.bin\ntransfer_output_remaps = "made.bin = {origin.url}/made.bin"'
    submit(desk, [f"{origin.url}/data.bin"], command="cp data.bin made.bin", more=more)
    desk.wait_for_end()
    assert (origin.folder / "made.bin").read_bytes() == DATA
