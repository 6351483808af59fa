"""unpack rejects archives that are unsafe, damaged or too large."""

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
from packtrain.transfer.archive.space_budget import SpaceBudget
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
    "dots after a name": [
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
def test_unsafe_tar_members(folder, members):
    error = unpack_error(folder, make_tar([make_member("good.txt", b"good"), *members]))
    assert error.kind == "archive_unsafe"
    assert repr(members[-1][0].name) in error.detail or repr(members[0][0].name) in error.detail
    assert not Path("/tmp/packtrain-evil").exists()


def test_existing_link_is_not_followed(folder):
    unpack_data(folder, make_tar([make_member("l", kind=tarfile.SYMTYPE, link="sub/none")]))
    assert unpack_error(folder, make_plain_tar({"l/x": b"evil"})).kind == "archive_unsafe"


def zip_member(name: str, mode: int, data: bytes) -> bytes:
    buffer = io.BytesIO()
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(info, data)
    return buffer.getvalue()


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
def test_unsafe_zip_members(folder, data):
    assert unpack_error(folder, data).kind == "archive_unsafe"


def test_safe_links(folder):
    members = [
        make_member("d/file", b"data"),
        make_member("d/near", kind=tarfile.SYMTYPE, link="file"),
        make_member("up", kind=tarfile.SYMTYPE, link="./d/file"),
        make_member("d/e/back", kind=tarfile.SYMTYPE, link="../../d/file"),
        make_member("hard", kind=tarfile.LNKTYPE, link="d/file"),
    ]
    assert unpack_data(folder, make_tar(members)).files == 2
    into = folder / "into"
    assert {name: (into / name).read_bytes() for name in ("d/near", "up", "d/e/back", "hard")} == dict.fromkeys(
        ("d/near", "up", "d/e/back", "hard"), b"data"
    )
    unpack_data(folder, zip_member("zlink", stat.S_IFLNK | 0o777, b"d/file"))
    assert os.readlink(into / "zlink") == "d/file"


def test_later_member_replaces_link(folder):
    members = [
        make_member("f", b"one"),
        make_member("h", kind=tarfile.LNKTYPE, link="f"),
        make_member("l", kind=tarfile.SYMTYPE, link="f"),
        make_member("h", b"two"),
        make_member("l", b"three"),
    ]
    unpack_data(folder, make_tar(members))
    assert read_folder(folder / "into") == {"f": b"one", "h": b"two", "l": b"three"}


def test_file_modes(folder):
    unpack_data(folder, make_tar([make_member("run.sh", b"#!", mode=0o4755), make_member("data", b"", mode=0o6644)]))
    modes = {name: (folder / "into" / name).stat().st_mode & 0o7777 for name in ("run.sh", "data")}
    assert modes["run.sh"] & 0o100
    assert not modes["data"] & 0o111
    assert not (modes["run.sh"] | modes["data"]) & 0o7000


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("part", [0.1, 0.5, 0.9, 0.97])
def test_truncated_tar(folder, pack, part):
    archive = pack(make_plain_tar({"a": RANDOM_DATA, "b": RANDOM_DATA[:1000]}))
    assert unpack_error(folder, archive[: int(len(archive) * part)], "x.tar").kind == "truncated"


def test_tar_truncated_between_members(folder):
    archive = make_tar([make_member("a", bytes(512)), make_member("b", bytes(512))], tar_format=tarfile.USTAR_FORMAT)
    assert unpack_error(folder, archive[:1024]).kind == "truncated"


def test_truncated_zip(folder):
    archive = make_zip({"a": RANDOM_DATA})
    assert unpack_error(folder, archive[: len(archive) // 2]).kind == "truncated"


@pytest.mark.parametrize("kind", ["tar.gz", "tar.bz2", "tar.xz", "zip"])
def test_corrupt_archive(folder, kind):
    data = bytearray(
        {
            **SAMPLE_ARCHIVES,
            "tar.gz": gzip.compress(make_plain_tar({"r": RANDOM_DATA})),
            "zip": make_zip({"r": RANDOM_DATA}),
        }[kind]
    )
    middle = len(data) // 2
    data[middle : middle + 64] = bytes(byte ^ 0x55 for byte in data[middle : middle + 64])
    assert unpack_error(folder, bytes(data)).kind == "archive_broken"


def test_damaged_header(folder):
    data = bytearray(make_tar([make_member("a", b"1"), make_member("b", b"2")], tar_format=tarfile.USTAR_FORMAT))
    data[1024 + 5] ^= 0xFF
    error = unpack_error(folder, bytes(data))
    assert error.kind == "archive_broken"
    assert "byte 1024" in error.detail


def test_file_and_folder_of_one_name(folder):
    assert unpack_error(folder, make_tar([make_member("a", b"1"), make_member("a/b", b"2")])).kind == "archive_broken"
    shutil.rmtree(folder / "into")
    assert unpack_error(folder, make_tar([make_member("a/b", b"2"), make_member("a", b"1")])).kind == "archive_broken"


def test_encrypted_zip(folder):
    data = bytearray(make_zip({"a": b"x"}))
    data[data.index(b"PK\x01\x02") + 8] |= 1
    error = unpack_error(folder, bytes(data))
    assert error.kind == "archive_broken"
    assert "encrypted" in error.detail


def tar_bomb(size: int) -> bytes:
    return gzip.compress(make_plain_tar({"z": bytes(size)}))


def zip_bomb(size: int) -> bytes:
    return make_zip({"z": bytes(size)})


@pytest.mark.parametrize("pack", [tar_bomb, zip_bomb])
def test_bomb_stops_at_limit(folder, pack):
    error = unpack_error(folder, pack(64 << 20), max_bytes=5 << 20)
    assert error.kind == "archive_too_large"
    assert str(5 << 20) in error.detail
    assert sum(p.stat().st_size for p in (folder / "into").rglob("*")) <= 5 << 20


def test_exact_limit_is_allowed(folder):
    assert unpack_data(folder, make_plain_tar({"z": bytes(4096)}), max_bytes=4096).bytes == 4096


def test_empty_files_count_against_the_limit(folder):
    """Empty files have no bytes, but each takes disk space."""
    budget = SpaceBudget(folder, 200 * 4096, "bomb.tar", min_file_limit=100)
    for _ in range(200):
        budget.reserve(0, 1)
    with pytest.raises(FailedError, match="200 files") as failure:
        budget.reserve(0, 1)
    assert failure.value.kind == "archive_too_large"


def test_small_number_of_files_is_always_allowed(folder):
    budget = SpaceBudget(folder, 0, "small.tar", min_file_limit=100)
    for _ in range(100):
        budget.reserve(0, 1)
    with pytest.raises(FailedError, match="100 files"):
        budget.reserve(0, 1)


def test_unpacking_counts_empty_files(folder):
    many = make_plain_tar({f"{n}": b"" for n in range(50)})
    assert unpack_data(folder, many, max_bytes=0).files == 50


@pytest.fixture(params=["size=8m"])
def small_disk(tmp_path: Path, request: pytest.FixtureRequest):
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", request.param, "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("mounting is not allowed here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("size", [64 << 20, 9 << 20])
def test_bomb_stops_before_disk_is_full(folder, small_disk, size):
    path = folder / "bomb"
    path.write_bytes(gzip.compress(make_plain_tar({"z": bytes(size)})))
    with pytest.raises(FailedError) as caught:
        unpack(path, small_disk / "into", max_bytes=None, check_cancelled=lambda: None, on_progress=lambda d, t: None)
    assert caught.value.kind == "archive_too_large"
    disk = os.statvfs(small_disk)
    assert disk.f_bavail * disk.f_frsize > 0
    assert "free" in caught.value.detail


@pytest.mark.parametrize("small_disk", ["nr_inodes=3000"], indirect=True)
def test_bomb_of_files_stops_before_inodes_run_out(folder, small_disk):
    path = folder / "bomb"
    path.write_bytes(make_plain_tar({f"{n}": b"" for n in range(10_000)}))
    with pytest.raises(FailedError) as caught:
        unpack(path, small_disk / "into", max_bytes=None, check_cancelled=lambda: None, on_progress=lambda d, t: None)
    assert caught.value.kind == "archive_too_large"
    assert "files free" in caught.value.detail
    assert os.statvfs(small_disk).f_favail > 0
