"""`packtrain get --unpack`: the folder appears only when everything is right."""

from __future__ import annotations

import hashlib
import random
import threading
import zipfile

import pytest

from testbed.http_server import ResponseFault
from tests.support.agent_runs import make_tar
from tests.support.transfer_commands import list_names


@pytest.fixture
def archive(served):
    make_tar(served / "set.tar.gz", {"a.txt": b"a" * 1000, "deep/b.txt": b"b" * 2000})
    return served / "set.tar.gz"


def test_unpack(workspace, server, archive):
    out = workspace.run("get", f"{server.url}/set.tar.gz", "--unpack", "-o", "set")
    assert "unpacked 2 files" in out
    assert (workspace.folder / "set/deep/b.txt").read_bytes() == b"b" * 2000
    assert list_names(workspace.folder) == ["set"]
    workspace.run("get", f"{server.url}/set.tar.gz", "--unpack", "-o", "set", exit_code=2)
    assert "not an empty folder" in workspace.stderr


@pytest.mark.parametrize("exists", [False, True])
def test_unpack_several_into_one_folder(workspace, server, served, archive, exists):
    make_tar(served / "more.tar", {"c.txt": b"c"})
    if exists:
        (workspace.folder / "set").mkdir()
    urls = [f"{server.url}/{name}" for name in ("set.tar.gz", "more.tar")]
    files = workspace.run_json("get", *urls, "--unpack", "-o", "set")["files"]
    assert [file["unpacked"]["files"] for file in files] == [2, 1]
    assert list_names(workspace.folder / "set") == ["a.txt", "c.txt", "deep"]


def test_unpack_zip(workspace, server, served):
    with zipfile.ZipFile(served / "set.zip", "w") as archive_file:
        archive_file.writestr("a.txt", "a")
    (file,) = workspace.run_json("get", f"{server.url}/set.zip", "--unpack", "-o", "set")["files"]
    assert file["unpacked"]["files"] == 1
    assert list_names(workspace.folder) == ["set"]


@pytest.mark.parametrize("outer", ["set.tar", "set.zip"])
def test_unpack_nested(workspace, server, served, outer):
    make_tar(served / "n01.tar", {"a.jpg": b"a", "b.jpg": b"b"})
    inner = (served / "n01.tar").read_bytes()
    if outer == "set.tar":
        make_tar(served / outer, {"train/n01.tar": inner})
    else:
        with zipfile.ZipFile(served / outer, "w") as archive_file:
            archive_file.writestr("train/n01.tar", inner)
    workspace.run("get", f"{server.url}/{outer}", "--unpack", "--nested", "-o", "set")
    assert list_names(workspace.folder / "set/train/n01") == ["a.jpg", "b.jpg"]
    assert list_names(workspace.folder / "set/train") == ["n01"]
    workspace.run("get", f"{server.url}/{outer}", "--unpack", "-o", "plain")
    assert list_names(workspace.folder / "plain/train") == ["n01.tar"]


def test_archive_is_verified(workspace, server, archive):
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    url = f"{server.url}/set.tar.gz"
    workspace.run("get", url, "--unpack", "-o", "set", "--sha256", "0" * 64, "--retry-timeout", "0", exit_code=33)
    assert list_names(workspace.folder) == []
    assert "verified by sha256" in workspace.run("get", url, "--unpack", "-o", "set", "--sha256", digest)
    assert list_names(workspace.folder) == ["set"]


def test_damaged_archive_is_downloaded_again(workspace, server, archive):
    server.faults = [ResponseFault(truncate_to_bytes=100)]
    assert "unpacked 2 files" in workspace.run("get", f"{server.url}/set.tar.gz", "--unpack", "-o", "set")


def test_replaced_archive_is_downloaded_again(workspace, server, served):
    random_bytes = random.Random(1).randbytes(8_000_000)
    make_tar(served / "set.tar", {"a.bin": random_bytes, "version": b"1"})
    make_tar(served / "newer", {"a.bin": random_bytes, "b.bin": b"b", "version": b"2"})
    server.faults = [ResponseFault(stall_after_bytes=1_000_000)]

    def replace() -> None:
        assert server.stall_started.wait(30)
        (served / "newer").rename(served / "set.tar")

    thread = threading.Thread(target=replace)
    thread.start()
    out = workspace.run("get", f"{server.url}/set.tar", "--unpack", "-o", "set")
    thread.join()
    assert "unpacked 3 files" in out and (workspace.folder / "set/version").read_bytes() == b"2"
    assert list_names(workspace.folder) == ["set"]


def test_archive_of_killed_command_is_verified(workspace, server, archive):
    staging = workspace.folder / ".set.packtrain-get"
    staging.mkdir()
    (staging / "set.tar.gz").write_bytes(b"other")
    (staging / "unpacked").mkdir()
    (staging / "unpacked/half").touch()
    workspace.run("get", f"{server.url}/set.tar.gz", "--unpack", "-o", "set")
    assert list_names(workspace.folder / "set") == ["a.txt", "deep"]
    assert list_names(workspace.folder) == ["set"]


def test_broken_archive_leaves_no_folder(workspace, server, archive):
    archive.write_bytes(archive.read_bytes()[:-20])
    workspace.run("get", f"{server.url}/set.tar.gz", "--unpack", "-o", "set", "--retry-timeout", "0", exit_code=None)
    assert workspace.exit_code in (32, 36)
    assert not (workspace.folder / "set").exists()
