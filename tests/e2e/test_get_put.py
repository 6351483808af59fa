"""`packtrain get`, `put` and `checksums` as a person uses them, against real servers."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import pty
import signal
import socket
import sys
import zipfile

import google_crc32c
import pytest
from agent_runs import make_tar
from cli_runs import Desk

from testbed.origin import Fault, Origin

DATA = bytes(i * 7919 % 251 for i in range(300_000))
BLOCK, CONNECTIONS = 1 << 20, 16  # what a kill may cost: a block of each connection
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def desk(tmp_path):
    folder = tmp_path / "desk"
    folder.mkdir()
    return Desk(folder)


@pytest.fixture
def served(tmp_path):
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "data.bin").write_bytes(DATA)
    return folder


@pytest.fixture
def origin(served):
    with Origin(served) as made:
        yield made


@pytest.fixture
def dead():
    """The address of a port where nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}/data.bin"


def left_behind(folder):
    return sorted(path.name for path in folder.iterdir())


# Getting


def test_a_good_file(desk, origin):
    out = desk.call("get", f"{origin.url}/data.bin", "--sha256", SHA256.upper())
    assert (desk.folder / "data.bin").read_bytes() == DATA
    assert "300 kB in" in out
    assert "verified by sha256" in out
    assert left_behind(desk.folder) == ["data.bin"]


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
    assert f"verified by {option[2:]}" in desk.call("get", url, option, digest)
    assert f"already there; verified by {option[2:]}" in desk.call("get", url, option, digest)


def test_a_wrong_crc32c(desk, origin):
    desk.call("get", f"{origin.url}/data.bin", "--crc32c", "00000000", code=33)
    assert f"has the crc32c {google_crc32c.value(DATA):08x}, but should have 00000000" in " ".join(desk.err.split())
    assert left_behind(desk.folder) == []


def test_what_was_not_verified_is_not_called_so(desk, origin):
    assert "not verified: the server gave no digest" in desk.call("get", f"{origin.url}/data.bin")
    assert desk.json("get", f"{origin.url}/data.bin", "-o", "again")["files"][0]["verified_by"] is None


def test_json_shape(desk, origin):
    (file,) = desk.json("get", f"{origin.url}/data.bin", "--sha256", SHA256)["files"]
    assert file["url"] == f"{origin.url}/data.bin"
    assert (file["path"], file["bytes"], file["sha256"]) == ("data.bin", len(DATA), SHA256)
    assert (file["already_there"], file["verified_by"], file["retries"]) == (False, "sha256", 0)
    assert file["seconds"] > 0


def test_a_dead_source_and_a_mirror(desk, origin, dead):
    desk.call("get", dead, "--mirror", f"{origin.url}/data.bin", "-o", "copies/")
    assert (desk.folder / "copies/data.bin").read_bytes() == DATA


def test_a_source_that_stalls_is_left_and_counted(desk, served):
    data = large(served)
    with Origin(served) as good, Origin(served) as bad:
        bad.faults = [Fault(stall_after=100_000)] * 100
        (file,) = desk.json("get", f"{bad.url}/large.bin", "--mirror", f"{good.url}/large.bin")["files"]
        assert (desk.folder / "large.bin").read_bytes() == data
    assert file["stalls"] + file["hedges"] >= 1
    assert file["seconds"] < 10
    assert file["by_source"][good.url.removeprefix("http://")] > 0
    assert set(file) == {
        "url", "path", "already_there", "verified_by", "bytes", "seconds", "retries", "sha256", "stalls",
        "wasted_bytes", "hedges", "by_source",
    }  # fmt: skip


def test_a_file_of_this_machine(desk, served):
    desk.call("get", (served / "data.bin").as_uri(), "-o", "copy")
    assert (desk.folder / "copy").read_bytes() == DATA


def test_all_below_an_address(desk, served):
    (served / "deep").mkdir()
    (served / "deep/more.bin").write_bytes(b"more")
    files = desk.json("get", f"{served.as_uri()}/", "-o", "all")["files"]
    assert [file["path"] for file in files] == ["all/data.bin", "all/deep/more.bin"]
    assert (desk.folder / "all/deep/more.bin").read_bytes() == b"more"
    desk.call("get", f"{served.as_uri()}/", "--sha256", SHA256, code=2)
    (served / "empty").mkdir()
    desk.call("get", f"{served.as_uri()}/empty/", code=4)


def test_several_files_need_a_folder(desk, origin, served):
    (served / "more.bin").write_bytes(b"more")
    urls = [f"{origin.url}/data.bin", f"{origin.url}/more.bin"]
    desk.call("get", *urls, "-o", "both", code=2)
    assert "-o both/" in desk.err
    desk.call("get", *urls, "--sha256", SHA256, code=2)
    desk.call("get", *urls, "-o", "both/")
    assert left_behind(desk.folder / "both") == ["data.bin", "more.bin"]


def test_wrong_digest(desk, origin):
    desk.call("get", f"{origin.url}/data.bin", "--sha256", "0" * 64, "--patience", "0", code=33)
    assert SHA256 in desk.err
    assert not (desk.folder / "data.bin").exists()


def test_missing_object(desk, origin):
    desk.call("get", f"{origin.url}/nothing", "--patience", "0.2s", code=30)
    assert "404" in desk.err
    told = desk.json("get", f"{origin.url}/nothing", "--patience", "0", code=30)
    assert (told["kind"], told["exit_code"]) == ("object_missing", 30)


def test_unknown_host(desk):
    desk.call("get", "http://no-such-host.invalid/data.bin", "--patience", "0", code=46)
    assert "no-such-host.invalid" in desk.err


def test_a_page_instead_of_the_data(desk, origin):
    origin.faults = [Fault(page=b"<!DOCTYPE html><html><title>Please log in</title></html>")] * 100
    desk.call("get", f"{origin.url}/data.bin", "--patience", "0", code=31)
    assert "Please log in" in desk.err
    assert not (desk.folder / "data.bin").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["get", "data.bin"], "is no address"),
        (["get", "gopher://host/x"], "scheme"),
        (["get", "http://host/x", "--sha256", "abc"], "64 hexadecimal digits"),
        (["get", "http://host/x", "--crc32c", "abc"], "'abc' is no CRC-32C digest: 8 hexadecimal digits, or base64"),
        (
            ["get", "http://host/x", "--md5", "0" * 32, "--crc32c", "0" * 8],
            "give one digest, not both --md5 and --crc32c",
        ),
        (["get", "http://host/x", "http://host/y", "--md5", "0" * 32], "a digest belong to one file"),
        (["get", "http://host/x", "--patience", "long"], "is no duration"),
        (["get", "http://host/x", "--unpack"], "-o FOLDER"),
        (["get", "http://host/x", "--nested"], "give --unpack as well"),
        (["get", "http://host/x", "--token-env", "A", "--token-file", "b"], "not both"),
    ],
)
def test_wrong_calls(desk, arguments, said):
    desk.call(*arguments, code=2)
    assert said in desk.err


def test_a_place_that_cannot_be_written_is_told(desk, origin, served):
    (desk.folder / "file").touch()
    desk.call("get", f"{origin.url}/data.bin", "-o", "file/below", code=2)
    assert "file cannot be used: " in desk.err
    desk.call("checksums", served / "data.bin", "-o", "no/folder", code=2)
    assert "No such file or directory" in desk.err


def test_dry_run_asks_and_writes_nothing(desk, origin, dead):
    out = desk.call("get", dead, "--mirror", f"{origin.url}/data.bin", "--dry-run")
    assert "would get data.bin" in out
    assert "300 kB" in out
    desk.call("get", f"{origin.url}/nothing", "--dry-run", code=30)
    assert left_behind(desk.folder) == []
    assert {seen.method for seen in origin.seen} == {"HEAD"}


# Tokens


def test_token_from_variable_and_file(desk, served):
    with Origin(served, token="t0ken-of-mine") as origin:
        url = f"{origin.url}/data.bin"
        desk.call("get", url, "--patience", "0", code=14)
        assert "--token-env" in desk.err
        desk.environment["MY_TOKEN"] = "t0ken-of-mine"
        desk.call("get", url, "--token-env", "MY_TOKEN")
        (desk.folder / "token").write_text("t0ken-of-mine\n")
        desk.call("get", url, "--token-file", "token", "-o", "second")
        assert (desk.folder / "second").read_bytes() == DATA
        desk.call("get", url, "--token-env", "UNSET", "-o", "third", code=15)


def test_a_mirror_elsewhere_never_sees_the_token(desk, served, tmp_path):
    (tmp_path / "empty").mkdir()
    with Origin(tmp_path / "empty") as home, Origin(served) as mirror:
        desk.environment["MY_TOKEN"] = "t0ken-of-mine"
        urls = (f"{home.url}/data.bin", "--mirror", f"{mirror.url}/data.bin")
        desk.call("get", *urls, "--token-env", "MY_TOKEN")
        assert all("authorization" not in seen.headers for seen in mirror.seen)
        assert any(seen.headers.get("authorization") == "Bearer t0ken-of-mine" for seen in home.seen)


# Files that exist


def test_a_file_that_is_there_and_right_is_left_alone(desk, origin):
    url = f"{origin.url}/data.bin"
    desk.call("get", url, "--sha256", SHA256)
    asked = len(origin.seen)
    assert "already there; verified by sha256" in desk.call("get", url, "--sha256", SHA256)
    assert len(origin.seen) == asked
    assert desk.json("get", url)["files"][0]["already_there"] is True


def test_a_file_that_differs_is_replaced_by_force_only(desk, origin):
    other, url = desk.folder / "data.bin", f"{origin.url}/data.bin"
    other.write_bytes(b"mine")
    for more in ([], ["--sha256", SHA256]):
        desk.call("get", url, *more, code=2)
        assert "--force" in desk.err
        assert other.read_bytes() == b"mine"
    desk.call("get", url, "--force")
    assert other.read_bytes() == DATA


def test_the_digest_of_the_server_tells_whether_it_is_there(desk, served):
    with Origin(served, headers={"Digest": f"sha-256={SHA256}"}) as origin:
        assert "verified by sha256" in desk.call("get", f"{origin.url}/data.bin", "-o", "fresh")
        (desk.folder / "data.bin").write_bytes(DATA[:-1] + b"x")
        desk.call("get", f"{origin.url}/data.bin", code=2)
        (desk.folder / "data.bin").write_bytes(DATA)
        assert "verified by sha256" in desk.call("get", f"{origin.url}/data.bin")


# Interrupted


def large(served, size=8_000_000):
    data = os.urandom(size)
    (served / "large.bin").write_bytes(data)
    return data


def start_and_await_bytes(desk, origin, count, *arguments):
    process = desk.start(*arguments)
    desk.await_some(lambda: origin.sent > count or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    return process


def test_goes_on_after_a_kill(desk, served):
    data = large(served, 30_000_000)
    with Origin(served, bytes_per_s=2e6) as origin:
        arguments = ("get", f"{origin.url}/large.bin", "--sha256", hashlib.sha256(data).hexdigest())
        process = start_and_await_bytes(desk, origin, 15_000_000, *arguments)
        process.kill()
        process.communicate()
        assert not (desk.folder / "large.bin").exists()
        origin.bytes_per_s = None
        desk.call(*arguments)
        assert (desk.folder / "large.bin").read_bytes() == data
        assert left_behind(desk.folder) == ["large.bin"]
        assert origin.sent <= len(data) + CONNECTIONS * BLOCK


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_goes_on_after_an_interruption(desk, served, number):
    data = large(served)
    with Origin(served, bytes_per_s=1e6) as origin:
        process = start_and_await_bytes(desk, origin, 1_000_000, "get", f"{origin.url}/large.bin")
        process.send_signal(number)
        _, err = process.communicate(timeout=20)
        assert process.returncode == 130
        assert "the same command goes on" in err
        origin.bytes_per_s = None
        desk.call("get", f"{origin.url}/large.bin")
        assert (desk.folder / "large.bin").read_bytes() == data


# On a terminal


def test_a_live_bar_on_a_terminal(desk, served):
    data = large(served, 2_000_000)
    with Origin(served, bytes_per_s=1e6) as origin:
        shown = on_terminal(desk, "get", f"{origin.url}/large.bin")
        assert (desk.folder / "large.bin").read_bytes() == data
    assert "of 2.0 MB" in shown
    assert "B/s" in shown
    assert "left" in shown
    assert "not verified" in shown


def on_terminal(desk, *arguments):
    """What a person would see, escapes and all."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(desk.folder)
        command = [sys.executable, "-m", "packtrain", *arguments]
        os.execve(sys.executable, command, {**desk.environment, "TERM": "xterm", "COLUMNS": "120"})
    shown = b""
    with contextlib.suppress(OSError):  # how Linux tells that the other side has closed
        while part := os.read(terminal, 65536):
            shown += part
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, shown
    return shown.decode()


# Unpacking


@pytest.fixture
def archive(served):
    make_tar(served / "set.tar.gz", {"a.txt": b"a" * 1000, "deep/b.txt": b"b" * 2000})
    return served / "set.tar.gz"


def test_unpack(desk, origin, archive):
    out = desk.call("get", f"{origin.url}/set.tar.gz", "--unpack", "-o", "set")
    assert "unpacked 2 files" in out
    assert (desk.folder / "set/deep/b.txt").read_bytes() == b"b" * 2000
    assert left_behind(desk.folder) == ["set"]
    desk.call("get", f"{origin.url}/set.tar.gz", "--unpack", "-o", "set", code=2)
    assert "not an empty folder" in desk.err


@pytest.mark.parametrize("exists", [False, True])
def test_unpack_several_into_one_folder(desk, origin, served, archive, exists):
    make_tar(served / "more.tar", {"c.txt": b"c"})
    if exists:
        (desk.folder / "set").mkdir()
    urls = [f"{origin.url}/{name}" for name in ("set.tar.gz", "more.tar")]
    files = desk.json("get", *urls, "--unpack", "-o", "set")["files"]
    assert [file["unpacked"]["files"] for file in files] == [2, 1]
    assert left_behind(desk.folder / "set") == ["a.txt", "c.txt", "deep"]


def test_a_zip_is_unpacked_by_way_of_a_file(desk, origin, served):
    with zipfile.ZipFile(served / "set.zip", "w") as made:
        made.writestr("a.txt", "a")
    (file,) = desk.json("get", f"{origin.url}/set.zip", "--unpack", "-o", "set")["files"]
    assert file["unpacked"]["files"] == 1
    assert left_behind(desk.folder) == ["set"]


@pytest.mark.parametrize("outer", ["set.tar", "set.zip"])
def test_a_tar_of_tars_becomes_folders(desk, origin, served, outer):
    make_tar(served / "n01.tar", {"a.jpg": b"a", "b.jpg": b"b"})
    inner = (served / "n01.tar").read_bytes()
    if outer == "set.tar":
        make_tar(served / outer, {"train/n01.tar": inner})
    else:
        with zipfile.ZipFile(served / outer, "w") as made:
            made.writestr("train/n01.tar", inner)
    desk.call("get", f"{origin.url}/{outer}", "--unpack", "--nested", "-o", "set")
    assert left_behind(desk.folder / "set/train/n01") == ["a.jpg", "b.jpg"]
    assert left_behind(desk.folder / "set/train") == ["n01"]
    desk.call("get", f"{origin.url}/{outer}", "--unpack", "-o", "plain")
    assert left_behind(desk.folder / "plain/train") == ["n01.tar"]


def test_an_archive_is_verified_before_it_appears(desk, origin, archive):
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    url = f"{origin.url}/set.tar.gz"
    desk.call("get", url, "--unpack", "-o", "set", "--sha256", "0" * 64, "--patience", "0", code=33)
    assert left_behind(desk.folder) == []
    assert "verified by sha256" in desk.call("get", url, "--unpack", "-o", "set", "--sha256", digest)
    assert left_behind(desk.folder) == ["set"]


def test_an_archive_that_was_damaged_on_its_way_is_got_once_more(desk, origin, archive):
    origin.faults = [Fault(truncate=100)]
    assert "unpacked 2 files" in desk.call("get", f"{origin.url}/set.tar.gz", "--unpack", "-o", "set")


def test_an_archive_left_by_a_killed_call_is_used_only_if_it_is_right(desk, origin, archive):
    aside = desk.folder / ".set.packtrain-get"
    aside.mkdir()
    (aside / "set.tar.gz").write_bytes(b"other")
    (aside / "unpacked").mkdir()
    (aside / "unpacked/half").touch()
    desk.call("get", f"{origin.url}/set.tar.gz", "--unpack", "-o", "set")
    assert left_behind(desk.folder / "set") == ["a.txt", "deep"]
    assert left_behind(desk.folder) == ["set"]


def test_a_broken_archive_leaves_no_folder(desk, origin, archive):
    archive.write_bytes(archive.read_bytes()[:-20])
    desk.call("get", f"{origin.url}/set.tar.gz", "--unpack", "-o", "set", "--patience", "0", code=None)
    assert desk.code in (32, 36)
    assert not (desk.folder / "set").exists()


# Checksums


def test_checksums_are_made_and_verified(desk, served):
    path = served / "data.bin"
    made = desk.json("checksums", path, "--block", "100kB")
    assert (made["blocks"], made["sha256"]) == (3, SHA256)
    checksums = served / "data.bin.checksums.json"
    assert "all 3 blocks are right" in desk.call("checksums", path, "--verify", checksums)
    path.write_bytes(DATA[:150_000] + b"?" + DATA[150_001:])
    assert "block 1: bytes 100000 to 200000" in desk.call("checksums", path, "--verify", checksums, code=33)
    found = desk.json("checksums", path, "--verify", checksums, code=33)
    assert found["bad"] == [{"block": 1, "start": 100_000, "stop": 200_000}]
    path.write_bytes(DATA + b"more")
    assert "has 300004 bytes" in desk.call("checksums", path, "--verify", checksums, code=33)


def test_checksums_that_cannot_be(desk, served):
    desk.call("checksums", served / "nothing", code=4)
    desk.call("checksums", served / "data.bin", "--block", "0", code=2)
    desk.call("checksums", served / "data.bin", "--verify", served / "nothing", code=4)
    desk.call("checksums", served / "data.bin", "--verify", served / "data.bin", code=5)


@pytest.mark.parametrize("by_address", [False, True])
def test_get_with_checksums(desk, origin, served, by_address):
    desk.call("checksums", served / "data.bin", "--block", "64KiB")
    checksums = f"{origin.url}/data.bin.checksums.json" if by_address else served / "data.bin.checksums.json"
    out = desk.call("get", f"{origin.url}/data.bin", "--checksums", checksums)
    assert "verified by the checksums file" in out
    assert "already there" in desk.call("get", f"{origin.url}/data.bin", "--checksums", checksums)
    (desk.folder / "data.bin").write_bytes(DATA[:-1] + b"?")
    desk.call("get", f"{origin.url}/data.bin", "--checksums", checksums, code=2)
    assert "differs from the checksums file" in desk.err


def test_data_that_differs_from_its_checksums_is_refused(desk, origin, served):
    desk.call("checksums", served / "data.bin")
    (served / "data.bin").write_bytes(DATA[:-1] + b"?")
    checksums = served / "data.bin.checksums.json"
    desk.call("get", f"{origin.url}/data.bin", "--checksums", checksums, "--patience", "0", code=33)
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
    with Origin(served, token="t0ken", writable=True) as origin:
        desk.call("put", "results", f"{origin.url}/up", code=14)
        desk.environment["MY_TOKEN"] = "t0ken"
        token = ("--token-env", "MY_TOKEN")
        assert "2 files" in desk.call("put", "results", f"{origin.url}/up", *token)
        assert (served / "up/deep/log.txt").read_bytes() == b"log"
        desk.call("put", "results/model.pt", f"{origin.url}/exact.pt", *token)
        desk.call("put", "results/model.pt", f"{origin.url}/below/", *token)
        (file,) = desk.json("put", "results/model.pt", f"{origin.url}/json.pt", *token)["files"]
        desk.call("put", "results/model.pt", "results/deep", f"{origin.url}/several", *token)
    assert file == {
        "path": "results/model.pt", "url": f"{origin.url}/json.pt", "bytes": len(DATA), "verified_by": "size",
    }  # fmt: skip
    for name in ("up/model.pt", "exact.pt", "below/model.pt", "json.pt", "several/model.pt"):
        assert (served / name).read_bytes() == DATA
    assert (served / "several/deep/log.txt").exists()


def test_put_fails_with_a_reason(desk, origin, results):
    desk.call("put", "results/model.pt", f"{origin.url}/x", "--patience", "0", code=38)
    assert "405" in desk.err
    desk.call("put", "nothing", f"{origin.url}/x", code=4)
    (desk.folder / "empty").mkdir()
    desk.call("put", "empty", f"{origin.url}/x", code=2)
    desk.call("put", "results", "somewhere", code=2)


def test_put_dry_run(desk, origin, results):
    out = desk.call("put", "results", f"{origin.url}/up", "--dry-run")
    assert f"deep/log.txt (3 B) to {origin.url}/up/deep/log.txt" in out
    assert origin.seen == []


@pytest.mark.slow
def test_put_and_get_over_s3(desk, results):
    from testbed import s3

    with s3.S3() as server:
        desk.environment.update(AWS_ACCESS_KEY_ID=s3.ACCESS_KEY, AWS_SECRET_ACCESS_KEY=s3.SECRET_KEY)
        where = ("--endpoint", server.endpoint, "--region", s3.REGION)
        put = desk.json("put", "results", f"s3://{s3.BUCKET}/up", *where)
        assert {file["verified_by"] for file in put["files"]} <= {"md5", "sha256", "size"}
        desk.call("get", f"s3://{s3.BUCKET}/up/deep/log.txt", f"s3://{s3.BUCKET}/up/model.pt", "-o", "back/", *where)
        assert (desk.folder / "back/model.pt").read_bytes() == DATA
        desk.call("get", f"s3://{s3.BUCKET}/none", "--patience", "0", *where, code=30)
        desk.environment["AWS_SECRET_ACCESS_KEY"] = "wrong"
        desk.call("get", f"s3://{s3.BUCKET}/up/model.pt", "--patience", "0", *where, code=14)


@pytest.mark.slow
def test_put_and_get_over_a_federation(desk, results, tmp_path):
    from testbed.federation import RealFederation

    with RealFederation(tmp_path / "federation") as federation:
        desk.environment["SSL_CERT_FILE"] = str(federation.ca)
        assert len(desk.json("put", "results", federation.url("run"))["files"]) == 2
        (file,) = desk.json("get", federation.url("run/model.pt"), "-o", "back.pt")["files"]
        assert (desk.folder / "back.pt").read_bytes() == DATA
        assert sum(file["by_source"].values()) >= len(DATA)
        files = desk.json("get", federation.url("run") + "/", "-o", "all")["files"]
        assert {file["path"] for file in files} == {"all/model.pt", "all/deep/log.txt"}
        desk.call("get", federation.url("nothing"), "--patience", "0", code=30)
