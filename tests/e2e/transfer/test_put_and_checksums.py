"""`packtrain put` to real servers, and `packtrain checksums`."""

from __future__ import annotations

import pytest

from testbed import s3
from testbed.http_server import HttpServer
from tests.support.transfer_commands import DATA, SHA256


def test_make_and_verify_checksums(workspace, served):
    path = served / "data.bin"
    result = workspace.run_json("checksums", path, "--block-size", "100kB")
    assert (result["n_blocks"], result["sha256"]) == (3, SHA256)
    checksums = served / "data.bin.checksums.json"
    assert "all 3 blocks match" in workspace.run("checksums", path, "--verify", checksums)
    path.write_bytes(DATA[:150_000] + b"?" + DATA[150_001:])
    assert "block 1: bytes 100000 to 200000" in workspace.run("checksums", path, "--verify", checksums, exit_code=33)
    result = workspace.run_json("checksums", path, "--verify", checksums, exit_code=33)
    assert result["bad_blocks"] == [{"block": 1, "start": 100_000, "stop": 200_000}]
    path.write_bytes(DATA + b"more")
    assert "has 300004 bytes" in workspace.run("checksums", path, "--verify", checksums, exit_code=33)


def test_invalid_checksums(workspace, served):
    workspace.run("checksums", served / "nothing", exit_code=4)
    workspace.run("checksums", served / "data.bin", "--block-size", "0", exit_code=2)
    workspace.run("checksums", served / "data.bin", "--block-size", "512MiB", exit_code=2)
    assert "the maximum is 4194304; choose another --block-size" in workspace.stderr
    workspace.run("checksums", served / "data.bin", "--verify", served / "nothing", exit_code=4)
    workspace.run("checksums", served / "data.bin", "--verify", served / "data.bin", exit_code=5)


@pytest.mark.parametrize("by_url", [False, True])
def test_get_with_checksums(workspace, server, served, by_url):
    workspace.run("checksums", served / "data.bin", "--block-size", "64KiB")
    checksums = f"{server.url}/data.bin.checksums.json" if by_url else served / "data.bin.checksums.json"
    out = workspace.run("get", f"{server.url}/data.bin", "--checksums", checksums)
    assert "verified with the checksums file" in out
    assert "already exists" in workspace.run("get", f"{server.url}/data.bin", "--checksums", checksums)
    (workspace.folder / "data.bin").write_bytes(DATA[:-1] + b"?")
    workspace.run("get", f"{server.url}/data.bin", "--checksums", checksums, exit_code=2)
    assert "does not match the checksums file" in workspace.stderr


def test_data_differs_from_checksums(workspace, server, served):
    workspace.run("checksums", served / "data.bin")
    (served / "data.bin").write_bytes(DATA[:-1] + b"?")
    checksums = served / "data.bin.checksums.json"
    workspace.run("get", f"{server.url}/data.bin", "--checksums", checksums, "--retry-timeout", "0", exit_code=33)
    assert not (workspace.folder / "data.bin").exists()


# Uploads


@pytest.fixture
def results(workspace):
    folder = workspace.folder / "results"
    (folder / "deep").mkdir(parents=True)
    (folder / "model.pt").write_bytes(DATA)
    (folder / "deep/log.txt").write_bytes(b"log")
    return folder


def test_put_over_http(workspace, served, results):
    with HttpServer(served, token="t0ken", writable=True) as server:
        workspace.run("put", "results", f"{server.url}/up", exit_code=14)
        workspace.environment["MY_TOKEN"] = "t0ken"
        token = ("--token-env", "MY_TOKEN")
        assert "2 files" in workspace.run("put", "results", f"{server.url}/up", *token)
        assert (served / "up/deep/log.txt").read_bytes() == b"log"
        workspace.run("put", "results/model.pt", f"{server.url}/exact.pt", *token)
        workspace.run("put", "results/model.pt", f"{server.url}/below/", *token)
        (file,) = workspace.run_json("put", "results/model.pt", f"{server.url}/json.pt", *token)["files"]
        workspace.run("put", "results/model.pt", "results/deep", f"{server.url}/several", *token)
    assert file == {
        "path": "results/model.pt", "url": f"{server.url}/json.pt", "bytes": len(DATA), "verified_by": "size",
    }  # fmt: skip
    for name in ("up/model.pt", "exact.pt", "below/model.pt", "json.pt", "several/model.pt"):
        assert (served / name).read_bytes() == DATA
    assert (served / "several/deep/log.txt").exists()


def test_put_fails_with_a_reason(workspace, server, results):
    workspace.run("put", "results/model.pt", f"{server.url}/x", "--retry-timeout", "0", exit_code=41)
    assert "405" in workspace.stderr
    workspace.run("put", "nothing", f"{server.url}/x", exit_code=4)
    (workspace.folder / "empty").mkdir()
    workspace.run("put", "empty", f"{server.url}/x", exit_code=2)
    workspace.run("put", "results", "somewhere", exit_code=2)


def test_put_dry_run(workspace, server, results):
    out = workspace.run("put", "results", f"{server.url}/up", "--dry-run")
    assert f"deep/log.txt (3 B) to {server.url}/up/deep/log.txt" in out
    assert server.requests == []


@pytest.mark.slow
@pytest.mark.xdist_group("s3")
def test_put_and_get_over_s3(workspace, results, s3_server):
    workspace.environment.update(AWS_ACCESS_KEY_ID=s3.ACCESS_KEY, AWS_SECRET_ACCESS_KEY=s3.SECRET_KEY)
    s3_options = ("--endpoint", s3_server.endpoint, "--region", s3.REGION)
    put = workspace.run_json("put", "results", f"s3://{s3.BUCKET}/up", *s3_options)
    assert {file["verified_by"] for file in put["files"]} <= {"md5", "sha256", "size"}
    workspace.run(
        "get", f"s3://{s3.BUCKET}/up/deep/log.txt", f"s3://{s3.BUCKET}/up/model.pt", "-o", "back/", *s3_options
    )
    assert (workspace.folder / "back/model.pt").read_bytes() == DATA
    workspace.run("get", f"s3://{s3.BUCKET}/none", "--retry-timeout", "0", *s3_options, exit_code=30)
    workspace.environment["AWS_SECRET_ACCESS_KEY"] = "wrong"
    workspace.run("get", f"s3://{s3.BUCKET}/up/model.pt", "--retry-timeout", "0", *s3_options, exit_code=14)


@pytest.mark.slow
def test_put_and_get_over_federation(workspace, results, tmp_path):
    from testbed.federation import XRootDFederation

    with XRootDFederation(tmp_path / "federation") as federation:
        workspace.environment["SSL_CERT_FILE"] = str(federation.ca)
        assert len(workspace.run_json("put", "results", federation.url("run"))["files"]) == 2
        (file,) = workspace.run_json("get", federation.url("run/model.pt"), "-o", "back.pt")["files"]
        assert (workspace.folder / "back.pt").read_bytes() == DATA
        assert sum(file["bytes_by_source"].values()) >= len(DATA)
        files = workspace.run_json("get", federation.url("run") + "/", "-o", "all")["files"]
        assert {file["path"] for file in files} == {"all/model.pt", "all/deep/log.txt"}
        workspace.run("get", federation.url("nothing"), "--retry-timeout", "0", exit_code=30)
