"""How inputs reach the jobs of a real pool, whose sites cannot access the files of the access point."""

from __future__ import annotations

import pytest

from testbed.federation import Federation
from testbed.http_server import HttpServer

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pool-2"), pytest.mark.timeout(600)]

HEAD = "resources: {tasks: 1, cpusPerTask: 1, memPerCpu: 100, gpus: 0}\nlimits: {grace: 2s, disk: 100MB}\n"
COPY = "steps: [{run: {command: 'cp -rL $PACKTRAIN_INPUT/. $PACKTRAIN_OUTPUT'}}]\n"
SIZE = 'steps: [{run: {command: "stat -c %s $PACKTRAIN_INPUT/big.bin > $PACKTRAIN_OUTPUT/size.txt"}}]\n'
MB = 10**6


@pytest.fixture
def origin(tmp_path):
    folder = tmp_path / "served"
    folder.mkdir()
    with HttpServer(folder) as origin:
        yield origin


def run(workspace, text):
    workspace.write_file(HEAD + text)
    return workspace.run_json("run", "workflow.yaml", "--on", "htcondor")


def read_outputs(workspace, job=0):
    """Return the outputs of a job by name."""
    folder = workspace.run_folder() / f"jobs/{job}/output"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def transfer_input_list(workspace):
    """Return HTCondor's own list of the inputs of the job."""
    (ad,) = workspace.pool.history(f'PacktrainRun == "{workspace.run_folder().name}"', "TransferInput")
    return ad["TransferInput"]


def make_sparse(path, size):
    with open(path, "wb") as file:
        file.truncate(size)


@pytest.mark.parametrize("source", ["file: {path: big.bin}", "http: {url: 'ORIGIN/big.bin'}"])
def test_agent_fetches_inputs_over_the_limit(workspace, origin, source):
    make_sparse(workspace.folder / "big.bin", 60 * MB)
    make_sparse(origin.folder / "big.bin", 60 * MB)
    template = "input: {%s, unpack: never, transfer: %s}\n"
    with workspace.pool.override_config(MAX_TRANSFER_INPUT_MB=50):
        workspace.write_file(HEAD + template % ("file: {path: big.bin}", "condor") + SIZE)
        workspace.run("run", "workflow.yaml", "--on", "htcondor", exit_code=2)
        assert "send 60 MB to each job, but sends at most 52.4 MB" in workspace.stderr
        run(workspace, template % (source.replace("ORIGIN", origin.url), "agent") + SIZE)
    assert read_outputs(workspace) == {"size.txt": b"60000000\n"}
    assert "big.bin" not in transfer_input_list(workspace)


def test_input_of_six_gigabytes_is_rejected(workspace):
    make_sparse(workspace.folder / "big.bin", 6000 * MB)
    workspace.write_file(HEAD + "input: {file: {path: big.bin}, unpack: never, transfer: condor}\n" + SIZE)
    with workspace.pool.override_config(MAX_TRANSFER_INPUT_MB=5000):
        workspace.run("run", "workflow.yaml", "--on", "htcondor", exit_code=2)
        assert (
            "send 6 GB to each job, but sends at most 5.2 GB" in workspace.stderr
            and "transfer: agent" in workspace.stderr
        )
        assert workspace.pool.queue("true") == []


def test_plugin_with_http(workspace, origin):
    (origin.folder / "x.bin").write_bytes(b"by http")
    url = f"{origin.url}/x.bin"
    run(workspace, f"input: {{http: {{url: '{url}'}}, unpack: never, transfer: plugin}}\n{COPY}")
    assert read_outputs(workspace) == {"x.bin": b"by http"}
    assert url in transfer_input_list(workspace)
    requests = [request for request in origin.requests if request.method == "GET"]
    assert all("curl" in request.headers.get("user-agent", "").lower() for request in requests)


def test_plugin_file_names(workspace, origin):
    (origin.folder / "v2").write_bytes(b"seventh")
    (origin.folder / "all classes").write_bytes(b"all")
    files = f"[{{url: '{origin.url}/v2?id=7', name: seven.txt}}, '{origin.url}/all%20classes']"
    run(workspace, f"input: {{http: {{files: {files}}}, unpack: never, transfer: plugin}}\n{COPY}")
    assert read_outputs(workspace) == {"seven.txt": b"seventh", "all classes": b"all"}


def test_plugin_name_conflict(workspace, origin):
    for folder in ("train", "test"):
        (origin.folder / folder).mkdir()
        (origin.folder / folder / "x.bin").write_text(folder)
    template = f"  NAME: {{http: {{url: '{origin.url}/NAME/x.bin'}}, transfer: plugin}}\n"
    workspace.write_file(f"{HEAD}inputs:\n{template.replace('NAME', 'train')}{template.replace('NAME', 'test')}{COPY}")
    workspace.run("run", "workflow.yaml", "--on", "htcondor", exit_code=2)
    assert "workflow.yaml:5:" in workspace.stderr and "two different files the name 'x.bin'" in workspace.stderr


def test_plugin_with_federation(workspace, tmp_path):
    (tmp_path / "objects/data").mkdir(parents=True)
    (tmp_path / "objects/data/x.bin").write_bytes(b"by osdf")
    with Federation(tmp_path / "objects") as federation:
        workspace.pool.trust_ca(federation.ca)
        workspace.pool.set_federation(federation.host)
        workspace.environment["SSL_CERT_FILE"] = str(federation.ca)
        workspace.write_file(f"{HEAD}input: {{osdf: {{path: /data/x.bin}}, unpack: never, transfer: plugin}}\n{COPY}")
        workspace.run("run", "workflow.yaml", "--on", "htcondor", "--offline")
    assert read_outputs(workspace) == {"x.bin": b"by osdf"}
    assert "osdf:///data/x.bin" in transfer_input_list(workspace)


def test_local_inputs_of_a_matrix(workspace):
    for name in ("cats", "dogs", "mice"):
        (workspace.folder / f"{name}.txt").write_text(f"all {name}")
    (workspace.folder / "labels.txt").write_text("for all")
    inputs = "inputs: {animals: {file: {path: '{animal}.txt'}}, labels: {file: {path: labels.txt}}}\n"
    run(workspace, f"matrix: {{animal: [cats, dogs, mice]}}\n{inputs}{COPY.replace('_INPUT/', '_INPUTS/')}")
    outputs = [read_outputs(workspace, job) for job in range(3)]
    labels = {"labels/labels.txt": b"for all"}
    assert outputs == [{f"animals/{n}.txt": f"all {n}".encode(), **labels} for n in ("cats", "dogs", "mice")]
