"""`packtrain get --unpack`: the folder appears when all is right, or not at all."""

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


def test_unpack(desk, origin, archive):
    out = desk.run("get", f"{origin.url}/set.tar.gz", "--unpack", "-o", "set")
    assert "unpacked 2 files" in out
    assert (desk.folder / "set/deep/b.txt").read_bytes() == b"b" * 2000
    assert list_names(desk.folder) == ["set"]
    desk.run("get", f"{origin.url}/set.tar.gz", "--unpack", "-o", "set", code=2)
    assert "not an empty folder" in desk.stderr


@pytest.mark.parametrize("exists", [False, True])
def test_unpack_several_into_one_folder(desk, origin, served, archive, exists):
    make_tar(served / "more.tar", {"c.txt": b"c"})
    if exists:
        (desk.folder / "set").mkdir()
    urls = [f"{origin.url}/{name}" for name in ("set.tar.gz", "more.tar")]
    files = desk.run_json("get", *urls, "--unpack", "-o", "set")["files"]
    assert [file["unpacked"]["files"] for file in files] == [2, 1]
    assert list_names(desk.folder / "set") == ["a.txt", "c.txt", "deep"]


def test_a_zip_is_unpacked_by_way_of_a_file(desk, origin, served):
    with zipfile.ZipFile(served / "set.zip", "w") as made:
        made.writestr("a.txt", "a")
    (file,) = desk.run_json("get", f"{origin.url}/set.zip", "--unpack", "-o", "set")["files"]
    assert file["unpacked"]["files"] == 1
    assert list_names(desk.folder) == ["set"]


@pytest.mark.parametrize("outer", ["set.tar", "set.zip"])
def test_a_tar_of_tars_becomes_folders(desk, origin, served, outer):
    make_tar(served / "n01.tar", {"a.jpg": b"a", "b.jpg": b"b"})
    inner = (served / "n01.tar").read_bytes()
    if outer == "set.tar":
        make_tar(served / outer, {"train/n01.tar": inner})
    else:
        with zipfile.ZipFile(served / outer, "w") as made:
            made.writestr("train/n01.tar", inner)
    desk.run("get", f"{origin.url}/{outer}", "--unpack", "--nested", "-o", "set")
    assert list_names(desk.folder / "set/train/n01") == ["a.jpg", "b.jpg"]
    assert list_names(desk.folder / "set/train") == ["n01"]
    desk.run("get", f"{origin.url}/{outer}", "--unpack", "-o", "plain")
    assert list_names(desk.folder / "plain/train") == ["n01.tar"]


def test_an_archive_is_verified_before_it_appears(desk, origin, archive):
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    url = f"{origin.url}/set.tar.gz"
    desk.run("get", url, "--unpack", "-o", "set", "--sha256", "0" * 64, "--retry-timeout", "0", code=33)
    assert list_names(desk.folder) == []
    assert "verified by sha256" in desk.run("get", url, "--unpack", "-o", "set", "--sha256", digest)
    assert list_names(desk.folder) == ["set"]


def test_an_archive_that_was_damaged_on_its_way_is_got_once_more(desk, origin, archive):
    origin.faults = [ResponseFault(truncate_to_bytes=100)]
    assert "unpacked 2 files" in desk.run("get", f"{origin.url}/set.tar.gz", "--unpack", "-o", "set")


def test_an_archive_that_is_replaced_while_it_is_unpacked_is_got_once_more(desk, origin, served):
    noise = random.Random(1).randbytes(8_000_000)
    make_tar(served / "set.tar", {"a.bin": noise, "version": b"1"})
    make_tar(served / "newer", {"a.bin": noise, "b.bin": b"b", "version": b"2"})
    origin.faults = [ResponseFault(stall_after_bytes=1_000_000)]

    def replace() -> None:
        assert origin.stall_started.wait(30)
        (served / "newer").rename(served / "set.tar")

    replacing = threading.Thread(target=replace)
    replacing.start()
    out = desk.run("get", f"{origin.url}/set.tar", "--unpack", "-o", "set")
    replacing.join()
    assert "unpacked 3 files" in out and (desk.folder / "set/version").read_bytes() == b"2"
    assert list_names(desk.folder) == ["set"]


def test_an_archive_left_by_a_killed_call_is_used_only_if_it_is_right(desk, origin, archive):
    aside = desk.folder / ".set.packtrain-get"
    aside.mkdir()
    (aside / "set.tar.gz").write_bytes(b"other")
    (aside / "unpacked").mkdir()
    (aside / "unpacked/half").touch()
    desk.run("get", f"{origin.url}/set.tar.gz", "--unpack", "-o", "set")
    assert list_names(desk.folder / "set") == ["a.txt", "deep"]
    assert list_names(desk.folder) == ["set"]


def test_a_broken_archive_leaves_no_folder(desk, origin, archive):
    archive.write_bytes(archive.read_bytes()[:-20])
    desk.run("get", f"{origin.url}/set.tar.gz", "--unpack", "-o", "set", "--retry-timeout", "0", code=None)
    assert desk.exit_code in (32, 36)
    assert not (desk.folder / "set").exists()
