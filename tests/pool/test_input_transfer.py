"""How inputs reach the jobs of a real pool, whose sites do not see the access point's files."""

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


def run(desk, text):
    desk.write_file(HEAD + text)
    return desk.run_json("run", "workflow.yaml", "--on", "htcondor")


def brought_home(desk, job=0):
    """All files that the job made, by name."""
    folder = desk.run_folder() / f"jobs/{job}/output"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def sent_by_access_point(desk):
    """Whatever HTCondor itself listed for the jobs' inputs."""
    (ad,) = desk.pool.history(f'PacktrainRun == "{desk.run_folder().name}"', "TransferInput")
    return ad["TransferInput"]


def make_sparse(path, size):
    with open(path, "wb") as file:
        file.truncate(size)


@pytest.mark.parametrize("source", ["file: {path: big.bin}", "http: {url: 'ORIGIN/big.bin'}"])
def test_what_the_access_point_may_not_send_the_agent_fetches(desk, origin, source):
    make_sparse(desk.folder / "big.bin", 60 * MB)
    make_sparse(origin.folder / "big.bin", 60 * MB)
    given = "input: {%s, unpack: never, delivery: %s}\n"
    with desk.pool.configured(MAX_TRANSFER_INPUT_MB=50):
        desk.write_file(HEAD + given % ("file: {path: big.bin}", "native") + SIZE)
        desk.run("run", "workflow.yaml", "--on", "htcondor", code=2)
        assert "send 60.0 MB to each job, but sends at most 52.4 MB" in desk.stderr
        run(desk, given % (source.replace("ORIGIN", origin.url), "agent") + SIZE)
    assert brought_home(desk) == {"size.txt": b"60000000\n"}
    assert "big.bin" not in sent_by_access_point(desk)


def test_six_gigabytes_are_refused_before_anything_is_submitted(desk):
    make_sparse(desk.folder / "big.bin", 6000 * MB)
    desk.write_file(HEAD + "input: {file: {path: big.bin}, unpack: never, transfer: condor}\n" + SIZE)
    with desk.pool.configured(MAX_TRANSFER_INPUT_MB=5000):
        desk.run("run", "workflow.yaml", "--on", "htcondor", code=2)
        assert "send 6.0 GB to each job, but sends at most 5.2 GB" in desk.stderr and "transfer: agent" in desk.stderr
        assert desk.pool.queue("true") == []


def test_a_plugin_fetches_from_a_web_server(desk, origin):
    (origin.folder / "x.bin").write_bytes(b"by http")
    address = f"{origin.url}/x.bin"
    run(desk, f"input: {{http: {{url: '{address}'}}, unpack: never, transfer: plugin}}\n{COPY}")
    assert brought_home(desk) == {"x.bin": b"by http"}
    assert address in sent_by_access_point(desk)
    assert all("curl" in seen.headers.get("user-agent", "").lower() for seen in origin.requests if seen.method == "GET")


def test_a_plugin_makes_names_of_its_own_which_are_found(desk, origin):
    (origin.folder / "v2").write_bytes(b"seventh")
    (origin.folder / "all classes").write_bytes(b"all")
    files = f"[{{url: '{origin.url}/v2?id=7', name: seven.txt}}, '{origin.url}/all%20classes']"
    run(desk, f"input: {{http: {{files: {files}}}, unpack: never, transfer: plugin}}\n{COPY}")
    assert brought_home(desk) == {"seven.txt": b"seventh", "all classes": b"all"}


def test_two_files_that_a_plugin_would_put_under_one_name_are_refused(desk, origin):
    for folder in ("train", "test"):
        (origin.folder / folder).mkdir()
        (origin.folder / folder / "x.bin").write_text(folder)
    given = f"  NAME: {{http: {{url: '{origin.url}/NAME/x.bin'}}, transfer: plugin}}\n"
    desk.write_file(f"{HEAD}inputs:\n{given.replace('NAME', 'train')}{given.replace('NAME', 'test')}{COPY}")
    desk.run("run", "workflow.yaml", "--on", "htcondor", code=2)
    assert "workflow.yaml:5:" in desk.stderr and "two different files under the name 'x.bin'" in desk.stderr


def test_a_plugin_fetches_from_a_federation(desk, tmp_path):
    (tmp_path / "objects/data").mkdir(parents=True)
    (tmp_path / "objects/data/x.bin").write_bytes(b"by osdf")
    with Federation(tmp_path / "objects") as federation:
        desk.pool.trust(federation.ca)
        desk.pool.federation(federation.host)
        desk.environment["SSL_CERT_FILE"] = str(federation.ca)
        desk.write_file(f"{HEAD}input: {{osdf: {{path: /data/x.bin}}, unpack: never, transfer: plugin}}\n{COPY}")
        desk.run("run", "workflow.yaml", "--on", "htcondor", "--offline")
    assert brought_home(desk) == {"x.bin": b"by osdf"}
    assert "osdf:///data/x.bin" in sent_by_access_point(desk)


def test_each_job_of_a_matrix_gets_its_own_native_input(desk):
    for name in ("cats", "dogs", "mice"):
        (desk.folder / f"{name}.txt").write_text(f"all {name}")
    (desk.folder / "labels.txt").write_text("for all")
    inputs = "inputs: {animals: {file: {path: '{animal}.txt'}}, labels: {file: {path: labels.txt}}}\n"
    run(desk, f"matrix: {{animal: [cats, dogs, mice]}}\n{inputs}{COPY.replace('_INPUT/', '_INPUTS/')}")
    homes = [brought_home(desk, job) for job in range(3)]
    labels = {"labels/labels.txt": b"for all"}
    assert homes == [{f"animals/{n}.txt": f"all {n}".encode(), **labels} for n in ("cats", "dogs", "mice")]
