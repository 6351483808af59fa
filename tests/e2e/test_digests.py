"""Digests that a workflow states: compared by the agent, and refused where that would take too long."""

from __future__ import annotations

import google_crc32c
import pytest

from packtrain.transfer.crc32c import MAX_PURE_PYTHON_BYTES
from testbed.http_server import HttpServer
from tests.support.cli_runs import Workspace

DATA = bytes(i * 7919 % 251 for i in range(2_500_000))
WORKFLOW = """
resources: {{tasks: 1, cpusPerTask: 1, memPerCpu: 100, gpus: 0}}
limits: {{maxAttempts: 1}}
input:
  http:
    url: {url}/data.bin
    crc32c: {crc32c}
steps: [{{run: {{command: test -s $STORAGE_PATH/input/data.bin}}}}]
"""


@pytest.fixture
def desk(tmp_path):
    folder = tmp_path / "desk"
    folder.mkdir()
    return Workspace(folder)


@pytest.fixture
def origin(tmp_path):
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "data.bin").write_bytes(DATA)
    with HttpServer(tmp_path / "served") as made:
        yield made


def workflow(desk, origin, crc32c="00000000"):
    return desk.write_file(WORKFLOW.format(url=origin.url, crc32c=crc32c))


def grown(origin):
    """To more than the agent can compute a crc32c of."""
    with open(origin.folder / "data.bin", "r+b") as file:
        file.truncate(MAX_PURE_PYTHON_BYTES + 1)


@pytest.mark.slow
def test_the_agent_compares_it(desk, origin):
    desk.run("run", workflow(desk, origin, f"{google_crc32c.value(DATA):08x}"))
    desk.run("run", workflow(desk, origin), code=33)


@pytest.mark.parametrize("command", [["plan"], ["run"], ["run", "--json"]])
def test_too_much_is_refused_when_its_size_is_known(desk, origin, command):
    grown(origin)
    desk.run(*command, workflow(desk, origin), code=2)
    said = (
        "workflow.yaml:7:13: data.bin has 1.1 GB, and a job would take too long to compute a crc32c of more than 1 GiB"
    )
    assert f"{said}; give its sha256 or md5 instead" in " ".join(desk.stderr.split())
    assert not (desk.folder / ".packtrain").exists()


@pytest.mark.parametrize("there", [False, True])
def test_get_refuses_it_too_without_a_module(desk, origin, tmp_path, there):
    grown(origin)
    for name in ("google_crc32c", "crc32c", "awscrt"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('not here')")
    desk.environment["PYTHONPATH"] = str(tmp_path)
    if there:
        (desk.folder / "data.bin").symlink_to(origin.folder / "data.bin")
    desk.run("get", f"{origin.url}/data.bin", "--crc32c", "00000000", code=18)
    assert "takes too long without a module such as google-crc32c; state its sha256 or md5" in desk.stderr
    assert [path.name for path in desk.folder.iterdir()] == (["data.bin"] if there else [])


@pytest.mark.slow
def test_else_by_the_agent(desk, origin):
    grown(origin)
    desk.run("run", "--offline", workflow(desk, origin), code=18)
    assert origin.sent_bytes < MAX_PURE_PYTHON_BYTES // 10


REPAIRED = """
resources: {{tasks: 1, cpusPerTask: 1, memPerCpu: 100, gpus: 0}}
limits: {{maxAttempts: 1}}
input:
  http:
    urls: ['{spoiled}/data.bin', '{url}/data.bin']
    checksums: {url}/data.bin.checksums.json
output: {{file: {{path: results}}}}
steps: [{{run: {{command: cp $STORAGE_PATH/input/data.bin $DEEPSQUARE_OUTPUT}}}}]
"""


@pytest.mark.slow
def test_a_job_repairs_a_bad_block_from_another_source(desk, origin, tmp_path):
    (tmp_path / "spoiled").mkdir()
    (tmp_path / "spoiled" / "data.bin").write_bytes(DATA[:1_500_000] + b"?" + DATA[1_500_001:])
    desk.run("checksums", origin.folder / "data.bin")
    with HttpServer(tmp_path / "spoiled") as spoiled:
        desk.run("run", desk.write_file(REPAIRED.format(url=origin.url, spoiled=spoiled.url)))
    assert (desk.folder / "results" / "data.bin").read_bytes() == DATA
