"""unpack: nothing unsafe, nothing outside of the folder, nothing broken, no full disk."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import shutil
import stat
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from packtrain.errors import FailedError
from packtrain.transfer.archive import space_budget
from packtrain.transfer.archive.unpack import unpack
from tests.support.archives import (
    RANDOM_DATA,
    SAMPLE_ARCHIVES,
    make_member,
    make_plain_tar,
    make_tar,
    make_zip,
    read_folder,
    unpack_data,
    unpack_error,
)

UNSAFE = {
    "up": [make_member("../x", b"evil")],
    "far up": [make_member("../../x", b"evil")],
    "up inside": [make_member("a/../../x", b"evil")],
    "absolute": [make_member("/tmp/packtrain-evil", b"evil")],
    "link out": [make_member("l", kind=tarfile.SYMTYPE, link="../witness")],
    "absolute link": [make_member("l", kind=tarfile.SYMTYPE, link="/etc/passwd")],
    "link up and down": [make_member("d/l", kind=tarfile.SYMTYPE, link="../../into-evil/x")],
    "through a link": [make_member("l", kind=tarfile.SYMTYPE, link="."), make_member("l/x", b"evil")],
    "dots behind a name": [
        make_member("d1/d2/s", kind=tarfile.SYMTYPE, link="../.."),
        make_member("out", kind=tarfile.SYMTYPE, link="d1/d2/s/../witness"),
    ],
    "hard link out": [make_member("h", kind=tarfile.LNKTYPE, link="../witness")],
    "absolute hard link": [make_member("h", kind=tarfile.LNKTYPE, link="/etc/passwd")],
    "hard link through a link": [
        make_member("d", kind=tarfile.DIRTYPE),
        make_member("l", kind=tarfile.SYMTYPE, link="d"),
        make_member("h", kind=tarfile.LNKTYPE, link="l/x"),
    ],
    "device": [make_member("dev", kind=tarfile.CHRTYPE)],
    "block device": [make_member("dev", kind=tarfile.BLKTYPE)],
    "pipe": [make_member("pipe", kind=tarfile.FIFOTYPE)],
}


@pytest.mark.parametrize("members", UNSAFE.values(), ids=UNSAFE)
def test_what_would_leave_the_folder_is_refused(place, members):
    error = unpack_error(place, make_tar([make_member("good.txt", b"good"), *members]))
    assert error.kind == "archive_unsafe"
    assert repr(members[-1][0].name) in error.detail or repr(members[0][0].name) in error.detail
    assert not Path("/tmp/packtrain-evil").exists()


def test_a_link_of_an_earlier_archive_is_not_gone_through(place):
    unpack_data(place, make_tar([make_member("l", kind=tarfile.SYMTYPE, link="sub/none")]))
    assert unpack_error(place, make_plain_tar({"l/x": b"evil"})).kind == "archive_unsafe"


def zip_member(name: str, mode: int, data: bytes) -> bytes:
    made = io.BytesIO()
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(info, data)
    return made.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        zip_member("../x", 0o100644, b"evil"),
        zip_member("/tmp/packtrain-evil", 0o100644, b"evil"),
        zip_member("l", stat.S_IFLNK | 0o777, b"/etc/passwd"),
        zip_member("l", stat.S_IFLNK | 0o777, b"../witness"),
        zip_member("p", stat.S_IFIFO | 0o644, b""),
    ],
)
def test_a_zip_is_held_to_the_same(place, data):
    assert unpack_error(place, data).kind == "archive_unsafe"


def test_links_that_stay_are_made(place):
    members = [
        make_member("d/file", b"data"),
        make_member("d/near", kind=tarfile.SYMTYPE, link="file"),
        make_member("up", kind=tarfile.SYMTYPE, link="./d/file"),
        make_member("d/e/back", kind=tarfile.SYMTYPE, link="../../d/file"),
        make_member("hard", kind=tarfile.LNKTYPE, link="d/file"),
    ]
    assert unpack_data(place, make_tar(members)).files == 2
    into = place / "into"
    assert {name: (into / name).read_bytes() for name in ("d/near", "up", "d/e/back", "hard")} == dict.fromkeys(
        ("d/near", "up", "d/e/back", "hard"), b"data"
    )
    unpack_data(place, zip_member("zlink", stat.S_IFLNK | 0o777, b"d/file"))
    assert os.readlink(into / "zlink") == "d/file"


def test_a_later_member_replaces_an_earlier_one_and_does_not_write_through(place):
    members = [
        make_member("f", b"one"),
        make_member("h", kind=tarfile.LNKTYPE, link="f"),
        make_member("l", kind=tarfile.SYMTYPE, link="f"),
        make_member("h", b"two"),
        make_member("l", b"three"),
    ]
    unpack_data(place, make_tar(members))
    assert read_folder(place / "into") == {"f": b"one", "h": b"two", "l": b"three"}


def test_the_x_bit_stays_and_setuid_goes(place):
    unpack_data(place, make_tar([make_member("run.sh", b"#!", mode=0o4755), make_member("data", b"", mode=0o6644)]))
    modes = {name: (place / "into" / name).stat().st_mode & 0o7777 for name in ("run.sh", "data")}
    assert modes["run.sh"] & 0o100
    assert not modes["data"] & 0o111
    assert not (modes["run.sh"] | modes["data"]) & 0o7000


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("part", [0.1, 0.5, 0.9, 0.97])
def test_a_cut_tar_is_truncated(place, pack, part):
    whole = pack(make_plain_tar({"a": RANDOM_DATA, "b": RANDOM_DATA[:1000]}))
    assert unpack_error(place, whole[: int(len(whole) * part)], "x.tar").kind == "truncated"


def test_a_tar_that_is_cut_between_members_is_truncated(place):
    whole = make_tar([make_member("a", bytes(512)), make_member("b", bytes(512))], form=tarfile.USTAR_FORMAT)
    assert unpack_error(place, whole[:1024]).kind == "truncated"


def test_a_cut_zip_is_truncated(place):
    whole = make_zip({"a": RANDOM_DATA})
    assert unpack_error(place, whole[: len(whole) // 2]).kind == "truncated"


@pytest.mark.parametrize("kind", ["tar.gz", "tar.bz2", "tar.xz", "zip"])
def test_a_corrupt_archive_is_broken(place, kind):
    data = bytearray(
        {
            **SAMPLE_ARCHIVES,
            "tar.gz": gzip.compress(make_plain_tar({"r": RANDOM_DATA})),
            "zip": make_zip({"r": RANDOM_DATA}),
        }[kind]
    )
    middle = len(data) // 2
    data[middle : middle + 64] = bytes(byte ^ 0x55 for byte in data[middle : middle + 64])
    assert unpack_error(place, bytes(data)).kind == "archive_broken"


def test_a_damaged_header_is_broken_not_the_end(place):
    data = bytearray(make_tar([make_member("a", b"1"), make_member("b", b"2")], form=tarfile.USTAR_FORMAT))
    data[1024 + 5] ^= 0xFF
    error = unpack_error(place, bytes(data))
    assert error.kind == "archive_broken"
    assert "byte 1024" in error.detail


def test_a_file_in_the_way_of_a_folder_is_broken(place):
    assert unpack_error(place, make_tar([make_member("a", b"1"), make_member("a/b", b"2")])).kind == "archive_broken"
    shutil.rmtree(place / "into")
    assert unpack_error(place, make_tar([make_member("a/b", b"2"), make_member("a", b"1")])).kind == "archive_broken"


def test_an_encrypted_zip_is_told(place):
    data = bytearray(make_zip({"a": b"x"}))
    data[data.index(b"PK\x01\x02") + 8] |= 1
    error = unpack_error(place, bytes(data))
    assert error.kind == "archive_broken"
    assert "encrypted" in error.detail


def tar_bomb(size: int) -> bytes:
    return gzip.compress(make_plain_tar({"z": bytes(size)}))


def zip_bomb(size: int) -> bytes:
    return make_zip({"z": bytes(size)})


@pytest.mark.parametrize("pack", [tar_bomb, zip_bomb])
def test_a_bomb_stops_at_the_limit(place, pack):
    error = unpack_error(place, pack(64 << 20), max_bytes=5 << 20)
    assert error.kind == "archive_too_large"
    assert str(5 << 20) in error.detail
    assert sum(p.stat().st_size for p in (place / "into").rglob("*")) <= 5 << 20


def test_exactly_the_limit_is_allowed(place):
    assert unpack_data(place, make_plain_tar({"z": bytes(4096)}), max_bytes=4096).bytes == 4096


def test_a_bomb_of_empty_files_stops_where_no_more_of_them_were_promised(place, monkeypatch):
    """They have no bytes, but each takes room on the disk."""
    monkeypatch.setattr(space_budget, "_MIN_FILE_LIMIT", 100)
    many = make_plain_tar({f"{n}": b"" for n in range(1000)})
    error = unpack_error(place, many, max_bytes=200 * 4096)
    assert error.kind == "archive_too_large"
    assert "200 files" in error.detail
    assert len(list((place / "into").rglob("*"))) <= 200
    assert unpack_data(place, make_plain_tar({f"{n}": b"" for n in range(200)}), max_bytes=200 * 4096).files == 200
    assert unpack_data(place, make_plain_tar({f"{n}": b"" for n in range(100)}), max_bytes=0).files == 100, (
        "few are no bomb"
    )


@pytest.fixture(params=["size=8m"])
def small_disk(tmp_path: Path, request: pytest.FixtureRequest):
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", request.param, "tmpfs", str(folder)], capture_output=True)
    if made.returncode != 0:
        pytest.skip("mounting is not allowed here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("size", [64 << 20, 9 << 20])
def test_a_bomb_stops_before_it_fills_the_disk(place, small_disk, size):
    path = place / "bomb"
    path.write_bytes(gzip.compress(make_plain_tar({"z": bytes(size)})))
    with pytest.raises(FailedError) as caught:
        unpack(path, small_disk / "into", max_bytes=None, check_cancelled=lambda: None, on_progress=lambda d, t: None)
    assert caught.value.kind == "archive_too_large"
    disk = os.statvfs(small_disk)
    assert disk.f_bavail * disk.f_frsize > 0
    assert "free" in caught.value.detail


@pytest.mark.parametrize("small_disk", ["nr_inodes=3000"], indirect=True)
def test_a_bomb_of_files_stops_before_the_disk_can_number_no_more(place, small_disk):
    path = place / "bomb"
    path.write_bytes(make_plain_tar({f"{n}": b"" for n in range(10_000)}))
    with pytest.raises(FailedError) as caught:
        unpack(path, small_disk / "into", max_bytes=None, check_cancelled=lambda: None, on_progress=lambda d, t: None)
    assert caught.value.kind == "archive_too_large"
    assert "files free" in caught.value.detail
    assert os.statvfs(small_disk).f_favail > 0
