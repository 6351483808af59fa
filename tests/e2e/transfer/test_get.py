"""`packtrain get` from real servers."""

from __future__ import annotations

import base64
import hashlib

import google_crc32c
import pytest

from testbed.http_server import HttpServer, ResponseFault
from tests.support.transfer_commands import DATA, SHA256, list_names, serve_large_file


def test_get(workspace, server):
    out = workspace.run("get", f"{server.url}/data.bin", "--sha256", SHA256.upper())
    assert (workspace.folder / "data.bin").read_bytes() == DATA
    assert "300 kB in" in out
    assert "verified by sha256" in out
    assert list_names(workspace.folder) == ["data.bin"]


@pytest.mark.parametrize(
    ("option", "digest"),
    [
        ("--md5", hashlib.md5(DATA).hexdigest()),
        ("--md5", base64.b64encode(hashlib.md5(DATA).digest()).decode()),
        ("--crc32c", f"{google_crc32c.value(DATA):08X}"),
        ("--crc32c", base64.b64encode(google_crc32c.value(DATA).to_bytes(4, "big")).decode()),
    ],
)
def test_other_digests(workspace, server, option, digest):
    url = f"{server.url}/data.bin"
    assert f"verified by {option[2:]}" in workspace.run("get", url, option, digest)
    assert f"already exists; verified by {option[2:]}" in workspace.run("get", url, option, digest)


def test_wrong_crc32c(workspace, server):
    workspace.run("get", f"{server.url}/data.bin", "--crc32c", "00000000", exit_code=33)
    assert f"has the crc32c {google_crc32c.value(DATA):08x}, but should have 00000000" in " ".join(
        workspace.stderr.split()
    )
    assert list_names(workspace.folder) == []


def test_unverified_file(workspace, server):
    assert "not verified: the server sent no digest" in workspace.run("get", f"{server.url}/data.bin")
    assert workspace.run_json("get", f"{server.url}/data.bin", "-o", "again")["files"][0]["verified_by"] is None


def test_json(workspace, server):
    (file,) = workspace.run_json("get", f"{server.url}/data.bin", "--sha256", SHA256)["files"]
    assert file["url"] == f"{server.url}/data.bin"
    assert (file["path"], file["bytes"], file["sha256"]) == ("data.bin", len(DATA), SHA256)
    assert (file["already_exists"], file["verified_by"], file["retries"]) == (False, "sha256", 0)
    assert file["duration_s"] > 0


def test_mirror_of_dead_source(workspace, server, dead_url):
    workspace.run("get", dead_url, "--mirror", f"{server.url}/data.bin", "-o", "copies/")
    assert (workspace.folder / "copies/data.bin").read_bytes() == DATA


def test_stalled_source_is_counted(workspace, served):
    data = serve_large_file(served)
    with HttpServer(served) as good, HttpServer(served) as bad:
        bad.faults = [ResponseFault(stall_after_bytes=100_000)] * 100
        (file,) = workspace.run_json("get", f"{bad.url}/large.bin", "--mirror", f"{good.url}/large.bin")["files"]
        assert (workspace.folder / "large.bin").read_bytes() == data
    assert file["stalls"] + file["hedges"] >= 1
    assert file["duration_s"] < 10
    assert file["bytes_by_source"][good.url.removeprefix("http://")] > 0
    assert set(file) == {
        "url", "path", "already_exists", "verified_by", "bytes", "duration_s", "retries", "sha256", "stalls",
        "wasted_bytes", "hedges", "bytes_by_source",
    }  # fmt: skip


def test_file_url(workspace, served):
    workspace.run("get", (served / "data.bin").as_uri(), "-o", "copy")
    assert (workspace.folder / "copy").read_bytes() == DATA


def test_folder_url(workspace, served):
    (served / "deep").mkdir()
    (served / "deep/more.bin").write_bytes(b"more")
    files = workspace.run_json("get", f"{served.as_uri()}/", "-o", "all")["files"]
    assert [file["path"] for file in files] == ["all/data.bin", "all/deep/more.bin"]
    assert (workspace.folder / "all/deep/more.bin").read_bytes() == b"more"
    workspace.run("get", f"{served.as_uri()}/", "--sha256", SHA256, exit_code=2)
    (served / "empty").mkdir()
    workspace.run("get", f"{served.as_uri()}/empty/", exit_code=4)


def test_several_files_need_a_folder(workspace, server, served):
    (served / "more.bin").write_bytes(b"more")
    urls = [f"{server.url}/data.bin", f"{server.url}/more.bin"]
    workspace.run("get", *urls, "-o", "both", exit_code=2)
    assert "write it as both/" in workspace.stderr
    workspace.run("get", *urls, "--sha256", SHA256, exit_code=2)
    workspace.run("get", *urls, "-o", "both/")
    assert list_names(workspace.folder / "both") == ["data.bin", "more.bin"]


def test_wrong_digest(workspace, server):
    workspace.run("get", f"{server.url}/data.bin", "--sha256", "0" * 64, "--retry-timeout", "0", exit_code=33)
    assert SHA256 in workspace.stderr
    assert not (workspace.folder / "data.bin").exists()


def test_missing_object(workspace, server):
    workspace.run("get", f"{server.url}/nothing", "--retry-timeout", "0.2s", exit_code=30)
    assert "404" in workspace.stderr
    error = workspace.run_json("get", f"{server.url}/nothing", "--retry-timeout", "0", exit_code=30)
    assert (error["kind"], error["exit_code"]) == ("object_missing", 30)


def test_unknown_host(workspace):
    workspace.run("get", "http://no-such-host.invalid/data.bin", "--retry-timeout", "0", exit_code=46)
    assert "no-such-host.invalid" in workspace.stderr


def test_error_page(workspace, server):
    server.faults = [ResponseFault(html_body=b"<!DOCTYPE html><html><title>Please log in</title></html>")] * 100
    workspace.run("get", f"{server.url}/data.bin", "--retry-timeout", "0", exit_code=31)
    assert "Please log in" in workspace.stderr
    assert not (workspace.folder / "data.bin").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["get", "data.bin"], "is not a URL"),
        (["get", "gopher://host/x"], "scheme"),
        (["get", "http://"], "has no host; write for example http://host/path"),
        (["get", "https:///x"], "has no host"),
        (["get", "http://host/x", "--sha256", "abc"], "64 hexadecimal digits"),
        (["get", "http://host/x", "--crc32c", "abc"], "'abc' is not a valid CRC-32C digest: write 8 hexadecimal"),
        (
            ["get", "http://host/x", "--md5", "0" * 32, "--crc32c", "0" * 8],
            "give one digest, not both --md5 and --crc32c",
        ),
        (["get", "http://host/x", "http://host/y", "--md5", "0" * 32], "digests apply to one file"),
        (["get", "http://host/x", "--retry-timeout", "long"], "is not a duration"),
        (["get", "http://host/x", "--unpack"], "-o FOLDER"),
        (["get", "http://host/x", "--nested"], "--nested needs --unpack"),
        (["get", "http://host/x", "--token-env", "A", "--token-file", "b"], "exclude each other"),
    ],
)
def test_usage_errors(workspace, arguments, message):
    workspace.run(*arguments, exit_code=2)
    assert message in workspace.stderr


def test_target_cannot_be_written(workspace, server, served):
    (workspace.folder / "file").touch()
    workspace.run("get", f"{server.url}/data.bin", "-o", "file/below", exit_code=2)
    assert "file cannot be used: " in workspace.stderr
    workspace.run("checksums", served / "data.bin", "-o", "no/folder", exit_code=2)
    assert "No such file or directory" in workspace.stderr


def test_dry_run(workspace, server, dead_url):
    out = workspace.run("get", dead_url, "--mirror", f"{server.url}/data.bin", "--dry-run")
    assert "would get data.bin" in out
    assert "300 kB" in out
    workspace.run("get", f"{server.url}/nothing", "--dry-run", exit_code=30)
    assert list_names(workspace.folder) == []
    assert {request.method for request in server.requests} == {"HEAD"}


# Tokens


def test_token_from_variable_and_file(workspace, served):
    with HttpServer(served, token="t0ken-of-mine") as server:
        url = f"{server.url}/data.bin"
        workspace.run("get", url, "--retry-timeout", "0", exit_code=14)
        assert "--token-env" in workspace.stderr
        workspace.environment["MY_TOKEN"] = "t0ken-of-mine"
        workspace.run("get", url, "--token-env", "MY_TOKEN")
        (workspace.folder / "token").write_text("t0ken-of-mine\n")
        workspace.run("get", url, "--token-file", "token", "-o", "second")
        assert (workspace.folder / "second").read_bytes() == DATA
        workspace.run("get", url, "--token-env", "UNSET", "-o", "third", exit_code=15)


def test_mirror_on_other_host_gets_no_token(workspace, served, tmp_path):
    (tmp_path / "empty").mkdir()
    with HttpServer(tmp_path / "empty") as home, HttpServer(served) as mirror:
        workspace.environment["MY_TOKEN"] = "t0ken-of-mine"
        urls = (f"{home.url}/data.bin", "--mirror", f"{mirror.url}/data.bin")
        workspace.run("get", *urls, "--token-env", "MY_TOKEN")
        assert all("authorization" not in request.headers for request in mirror.requests)
        assert any(request.headers.get("authorization") == "Bearer t0ken-of-mine" for request in home.requests)


# Files that exist


def test_valid_file_is_kept(workspace, server):
    url = f"{server.url}/data.bin"
    workspace.run("get", url, "--sha256", SHA256)
    n_requests = len(server.requests)
    assert "already exists; verified by sha256" in workspace.run("get", url, "--sha256", SHA256)
    assert len(server.requests) == n_requests
    assert workspace.run_json("get", url)["files"][0]["already_exists"] is True


def test_different_file_needs_force(workspace, server):
    other, url = workspace.folder / "data.bin", f"{server.url}/data.bin"
    other.write_bytes(b"mine")
    for options in ([], ["--sha256", SHA256]):
        workspace.run("get", url, *options, exit_code=2)
        assert "--force" in workspace.stderr
        assert other.read_bytes() == b"mine"
    workspace.run("get", url, "--force")
    assert other.read_bytes() == DATA


def test_existing_file_is_verified_by_server_digest(workspace, served):
    with HttpServer(served, headers={"Digest": f"sha-256={SHA256}"}) as server:
        assert "verified by sha256" in workspace.run("get", f"{server.url}/data.bin", "-o", "fresh")
        (workspace.folder / "data.bin").write_bytes(DATA[:-1] + b"x")
        workspace.run("get", f"{server.url}/data.bin", exit_code=2)
        (workspace.folder / "data.bin").write_bytes(DATA)
        assert "verified by sha256" in workspace.run("get", f"{server.url}/data.bin")
