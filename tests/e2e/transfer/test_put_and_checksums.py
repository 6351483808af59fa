"""`packtrain put` and `checksums` as a person uses them, against real servers."""

from __future__ import annotations

import pytest

from testbed import s3
from testbed.http_server import HttpServer
from tests.support.transfer_commands import DATA, SHA256


def test_checksums_are_made_and_verified(desk, served):
    path = served / "data.bin"
    made = desk.run_json("checksums", path, "--block-size", "100kB")
    assert (made["n_blocks"], made["sha256"]) == (3, SHA256)
    checksums = served / "data.bin.checksums.json"
    assert "all 3 blocks match" in desk.run("checksums", path, "--verify", checksums)
    path.write_bytes(DATA[:150_000] + b"?" + DATA[150_001:])
    assert "block 1: bytes 100000 to 200000" in desk.run("checksums", path, "--verify", checksums, code=33)
    found = desk.run_json("checksums", path, "--verify", checksums, code=33)
    assert found["bad_blocks"] == [{"block": 1, "start": 100_000, "stop": 200_000}]
    path.write_bytes(DATA + b"more")
    assert "has 300004 bytes" in desk.run("checksums", path, "--verify", checksums, code=33)


def test_checksums_that_cannot_be(desk, served):
    desk.run("checksums", served / "nothing", code=4)
    desk.run("checksums", served / "data.bin", "--block-size", "0", code=2)
    desk.run("checksums", served / "data.bin", "--block-size", "512MiB", code=2)
    assert "4194304 at most; choose another --block-size" in desk.stderr
    desk.run("checksums", served / "data.bin", "--verify", served / "nothing", code=4)
    desk.run("checksums", served / "data.bin", "--verify", served / "data.bin", code=5)


@pytest.mark.parametrize("by_address", [False, True])
def test_get_with_checksums(desk, origin, served, by_address):
    desk.run("checksums", served / "data.bin", "--block-size", "64KiB")
    checksums = f"{origin.url}/data.bin.checksums.json" if by_address else served / "data.bin.checksums.json"
    out = desk.run("get", f"{origin.url}/data.bin", "--checksums", checksums)
    assert "verified with the checksums file" in out
    assert "already exists" in desk.run("get", f"{origin.url}/data.bin", "--checksums", checksums)
    (desk.folder / "data.bin").write_bytes(DATA[:-1] + b"?")
    desk.run("get", f"{origin.url}/data.bin", "--checksums", checksums, code=2)
    assert "does not match the checksums file" in desk.stderr


def test_data_that_differs_from_its_checksums_is_refused(desk, origin, served):
    desk.run("checksums", served / "data.bin")
    (served / "data.bin").write_bytes(DATA[:-1] + b"?")
    checksums = served / "data.bin.checksums.json"
    desk.run("get", f"{origin.url}/data.bin", "--checksums", checksums, "--retry-timeout", "0", code=33)
    assert not (desk.folder / "data.bin").exists()


# Putting


@pytest.fixture
def results(desk):
    folder = desk.folder / "results"
    (folder / "deep").mkdir(parents=True)
    (folder / "model.pt").write_bytes(DATA)
    (folder / "deep/log.txt").write_bytes(b"log")
    return folder


def test_put_to_a_web_server(desk, served, results):
    with HttpServer(served, token="t0ken", writable=True) as origin:
        desk.run("put", "results", f"{origin.url}/up", code=14)
        desk.environment["MY_TOKEN"] = "t0ken"
        token = ("--token-env", "MY_TOKEN")
        assert "2 files" in desk.run("put", "results", f"{origin.url}/up", *token)
        assert (served / "up/deep/log.txt").read_bytes() == b"log"
        desk.run("put", "results/model.pt", f"{origin.url}/exact.pt", *token)
        desk.run("put", "results/model.pt", f"{origin.url}/below/", *token)
        (file,) = desk.run_json("put", "results/model.pt", f"{origin.url}/json.pt", *token)["files"]
        desk.run("put", "results/model.pt", "results/deep", f"{origin.url}/several", *token)
    assert file == {
        "path": "results/model.pt", "url": f"{origin.url}/json.pt", "bytes": len(DATA), "verified_by": "size",
    }  # fmt: skip
    for name in ("up/model.pt", "exact.pt", "below/model.pt", "json.pt", "several/model.pt"):
        assert (served / name).read_bytes() == DATA
    assert (served / "several/deep/log.txt").exists()


def test_put_fails_with_a_reason(desk, origin, results):
    desk.run("put", "results/model.pt", f"{origin.url}/x", "--retry-timeout", "0", code=38)
    assert "405" in desk.stderr
    desk.run("put", "nothing", f"{origin.url}/x", code=4)
    (desk.folder / "empty").mkdir()
    desk.run("put", "empty", f"{origin.url}/x", code=2)
    desk.run("put", "results", "somewhere", code=2)


def test_put_dry_run(desk, origin, results):
    out = desk.run("put", "results", f"{origin.url}/up", "--dry-run")
    assert f"deep/log.txt (3 B) to {origin.url}/up/deep/log.txt" in out
    assert origin.requests == []


@pytest.mark.slow
@pytest.mark.xdist_group("s3")
def test_put_and_get_over_s3(desk, results, s3_server):
    desk.environment.update(AWS_ACCESS_KEY_ID=s3.ACCESS_KEY, AWS_SECRET_ACCESS_KEY=s3.SECRET_KEY)
    where = ("--endpoint", s3_server.endpoint, "--region", s3.REGION)
    put = desk.run_json("put", "results", f"s3://{s3.BUCKET}/up", *where)
    assert {file["verified_by"] for file in put["files"]} <= {"md5", "sha256", "size"}
    desk.run("get", f"s3://{s3.BUCKET}/up/deep/log.txt", f"s3://{s3.BUCKET}/up/model.pt", "-o", "back/", *where)
    assert (desk.folder / "back/model.pt").read_bytes() == DATA
    desk.run("get", f"s3://{s3.BUCKET}/none", "--retry-timeout", "0", *where, code=30)
    desk.environment["AWS_SECRET_ACCESS_KEY"] = "wrong"
    desk.run("get", f"s3://{s3.BUCKET}/up/model.pt", "--retry-timeout", "0", *where, code=14)


@pytest.mark.slow
def test_put_and_get_over_a_federation(desk, results, tmp_path):
    from testbed.federation import XRootDFederation

    with XRootDFederation(tmp_path / "federation") as federation:
        desk.environment["SSL_CERT_FILE"] = str(federation.ca)
        assert len(desk.run_json("put", "results", federation.url("run"))["files"]) == 2
        (file,) = desk.run_json("get", federation.url("run/model.pt"), "-o", "back.pt")["files"]
        assert (desk.folder / "back.pt").read_bytes() == DATA
        assert sum(file["by_source"].values()) >= len(DATA)
        files = desk.run_json("get", federation.url("run") + "/", "-o", "all")["files"]
        assert {file["path"] for file in files} == {"all/model.pt", "all/deep/log.txt"}
        desk.run("get", federation.url("nothing"), "--retry-timeout", "0", code=30)
