"""`packtrain get` as a person uses it, against real servers."""

from __future__ import annotations

import base64
import hashlib

import google_crc32c
import pytest

from testbed.http_server import HttpServer, ResponseFault
from tests.support.transfer_commands import DATA, SHA256, list_names, serve_large_file


def test_a_good_file(desk, origin):
    out = desk.run("get", f"{origin.url}/data.bin", "--sha256", SHA256.upper())
    assert (desk.folder / "data.bin").read_bytes() == DATA
    assert "300 kB in" in out
    assert "verified by sha256" in out
    assert list_names(desk.folder) == ["data.bin"]


@pytest.mark.parametrize(
    ("option", "digest"),
    [
        ("--md5", hashlib.md5(DATA).hexdigest()),
        ("--md5", base64.b64encode(hashlib.md5(DATA).digest()).decode()),
        ("--crc32c", f"{google_crc32c.value(DATA):08X}"),
        ("--crc32c", base64.b64encode(google_crc32c.value(DATA).to_bytes(4, "big")).decode()),
    ],
)
def test_other_digests(desk, origin, option, digest):
    url = f"{origin.url}/data.bin"
    assert f"verified by {option[2:]}" in desk.run("get", url, option, digest)
    assert f"already exists; verified by {option[2:]}" in desk.run("get", url, option, digest)


def test_a_wrong_crc32c(desk, origin):
    desk.run("get", f"{origin.url}/data.bin", "--crc32c", "00000000", code=33)
    assert f"has the crc32c {google_crc32c.value(DATA):08x}, but should have 00000000" in " ".join(desk.stderr.split())
    assert list_names(desk.folder) == []


def test_what_was_not_verified_is_not_called_so(desk, origin):
    assert "not verified: the server sent no digest" in desk.run("get", f"{origin.url}/data.bin")
    assert desk.run_json("get", f"{origin.url}/data.bin", "-o", "again")["files"][0]["verified_by"] is None


def test_json_shape(desk, origin):
    (file,) = desk.run_json("get", f"{origin.url}/data.bin", "--sha256", SHA256)["files"]
    assert file["url"] == f"{origin.url}/data.bin"
    assert (file["path"], file["bytes"], file["sha256"]) == ("data.bin", len(DATA), SHA256)
    assert (file["already_exists"], file["verified_by"], file["retries"]) == (False, "sha256", 0)
    assert file["seconds"] > 0


def test_a_dead_source_and_a_mirror(desk, origin, dead):
    desk.run("get", dead, "--mirror", f"{origin.url}/data.bin", "-o", "copies/")
    assert (desk.folder / "copies/data.bin").read_bytes() == DATA


def test_a_source_that_stalls_is_left_and_counted(desk, served):
    data = serve_large_file(served)
    with HttpServer(served) as good, HttpServer(served) as bad:
        bad.faults = [ResponseFault(stall_after_bytes=100_000)] * 100
        (file,) = desk.run_json("get", f"{bad.url}/large.bin", "--mirror", f"{good.url}/large.bin")["files"]
        assert (desk.folder / "large.bin").read_bytes() == data
    assert file["stalls"] + file["hedges"] >= 1
    assert file["seconds"] < 10
    assert file["by_source"][good.url.removeprefix("http://")] > 0
    assert set(file) == {
        "url", "path", "already_exists", "verified_by", "bytes", "seconds", "retries", "sha256", "stalls",
        "wasted_bytes", "hedges", "by_source",
    }  # fmt: skip


def test_a_file_of_this_machine(desk, served):
    desk.run("get", (served / "data.bin").as_uri(), "-o", "copy")
    assert (desk.folder / "copy").read_bytes() == DATA


def test_all_below_an_address(desk, served):
    (served / "deep").mkdir()
    (served / "deep/more.bin").write_bytes(b"more")
    files = desk.run_json("get", f"{served.as_uri()}/", "-o", "all")["files"]
    assert [file["path"] for file in files] == ["all/data.bin", "all/deep/more.bin"]
    assert (desk.folder / "all/deep/more.bin").read_bytes() == b"more"
    desk.run("get", f"{served.as_uri()}/", "--sha256", SHA256, code=2)
    (served / "empty").mkdir()
    desk.run("get", f"{served.as_uri()}/empty/", code=4)


def test_several_files_need_a_folder(desk, origin, served):
    (served / "more.bin").write_bytes(b"more")
    urls = [f"{origin.url}/data.bin", f"{origin.url}/more.bin"]
    desk.run("get", *urls, "-o", "both", code=2)
    assert "-o both/" in desk.stderr
    desk.run("get", *urls, "--sha256", SHA256, code=2)
    desk.run("get", *urls, "-o", "both/")
    assert list_names(desk.folder / "both") == ["data.bin", "more.bin"]


def test_wrong_digest(desk, origin):
    desk.run("get", f"{origin.url}/data.bin", "--sha256", "0" * 64, "--retry-timeout", "0", code=33)
    assert SHA256 in desk.stderr
    assert not (desk.folder / "data.bin").exists()


def test_missing_object(desk, origin):
    desk.run("get", f"{origin.url}/nothing", "--retry-timeout", "0.2s", code=30)
    assert "404" in desk.stderr
    told = desk.run_json("get", f"{origin.url}/nothing", "--retry-timeout", "0", code=30)
    assert (told["kind"], told["exit_code"]) == ("object_missing", 30)


def test_unknown_host(desk):
    desk.run("get", "http://no-such-host.invalid/data.bin", "--retry-timeout", "0", code=46)
    assert "no-such-host.invalid" in desk.stderr


def test_a_page_instead_of_the_data(desk, origin):
    origin.faults = [ResponseFault(html_body=b"<!DOCTYPE html><html><title>Please log in</title></html>")] * 100
    desk.run("get", f"{origin.url}/data.bin", "--retry-timeout", "0", code=31)
    assert "Please log in" in desk.stderr
    assert not (desk.folder / "data.bin").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["get", "data.bin"], "is not a URL"),
        (["get", "gopher://host/x"], "scheme"),
        (["get", "http://"], "has no host; write for example http://host/path"),
        (["get", "https:///x"], "has no host"),
        (["get", "http://host/x", "--sha256", "abc"], "64 hexadecimal digits"),
        (["get", "http://host/x", "--crc32c", "abc"], "'abc' is no CRC-32C digest: 8 hexadecimal digits, or base64"),
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
def test_wrong_calls(desk, arguments, said):
    desk.run(*arguments, code=2)
    assert said in desk.stderr


def test_a_place_that_cannot_be_written_is_told(desk, origin, served):
    (desk.folder / "file").touch()
    desk.run("get", f"{origin.url}/data.bin", "-o", "file/below", code=2)
    assert "file cannot be used: " in desk.stderr
    desk.run("checksums", served / "data.bin", "-o", "no/folder", code=2)
    assert "No such file or directory" in desk.stderr


def test_dry_run_asks_and_writes_nothing(desk, origin, dead):
    out = desk.run("get", dead, "--mirror", f"{origin.url}/data.bin", "--dry-run")
    assert "would get data.bin" in out
    assert "300 kB" in out
    desk.run("get", f"{origin.url}/nothing", "--dry-run", code=30)
    assert list_names(desk.folder) == []
    assert {seen.method for seen in origin.requests} == {"HEAD"}


# Tokens


def test_token_from_variable_and_file(desk, served):
    with HttpServer(served, token="t0ken-of-mine") as origin:
        url = f"{origin.url}/data.bin"
        desk.run("get", url, "--retry-timeout", "0", code=14)
        assert "--token-env" in desk.stderr
        desk.environment["MY_TOKEN"] = "t0ken-of-mine"
        desk.run("get", url, "--token-env", "MY_TOKEN")
        (desk.folder / "token").write_text("t0ken-of-mine\n")
        desk.run("get", url, "--token-file", "token", "-o", "second")
        assert (desk.folder / "second").read_bytes() == DATA
        desk.run("get", url, "--token-env", "UNSET", "-o", "third", code=15)


def test_a_mirror_elsewhere_never_sees_the_token(desk, served, tmp_path):
    (tmp_path / "empty").mkdir()
    with HttpServer(tmp_path / "empty") as home, HttpServer(served) as mirror:
        desk.environment["MY_TOKEN"] = "t0ken-of-mine"
        urls = (f"{home.url}/data.bin", "--mirror", f"{mirror.url}/data.bin")
        desk.run("get", *urls, "--token-env", "MY_TOKEN")
        assert all("authorization" not in seen.headers for seen in mirror.requests)
        assert any(seen.headers.get("authorization") == "Bearer t0ken-of-mine" for seen in home.requests)


# Files that exist


def test_a_file_that_is_there_and_right_is_left_alone(desk, origin):
    url = f"{origin.url}/data.bin"
    desk.run("get", url, "--sha256", SHA256)
    asked = len(origin.requests)
    assert "already exists; verified by sha256" in desk.run("get", url, "--sha256", SHA256)
    assert len(origin.requests) == asked
    assert desk.run_json("get", url)["files"][0]["already_exists"] is True


def test_a_file_that_differs_is_replaced_by_force_only(desk, origin):
    other, url = desk.folder / "data.bin", f"{origin.url}/data.bin"
    other.write_bytes(b"mine")
    for more in ([], ["--sha256", SHA256]):
        desk.run("get", url, *more, code=2)
        assert "--force" in desk.stderr
        assert other.read_bytes() == b"mine"
    desk.run("get", url, "--force")
    assert other.read_bytes() == DATA


def test_the_digest_of_the_server_tells_whether_it_is_there(desk, served):
    with HttpServer(served, headers={"Digest": f"sha-256={SHA256}"}) as origin:
        assert "verified by sha256" in desk.run("get", f"{origin.url}/data.bin", "-o", "fresh")
        (desk.folder / "data.bin").write_bytes(DATA[:-1] + b"x")
        desk.run("get", f"{origin.url}/data.bin", code=2)
        (desk.folder / "data.bin").write_bytes(DATA)
        assert "verified by sha256" in desk.run("get", f"{origin.url}/data.bin")
