"""unpack: every archive format, detected by content, from a file or while it downloads."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from packtrain.errors import FailedError
from packtrain.transfer.archive.unpack import UnpackResult, can_stream, detect_format, unpack_stream
from tests.support.archives import (
    RANDOM_DATA,
    SAMPLE_ARCHIVES,
    SAMPLE_FILES,
    ChunkedReader,
    make_member,
    make_plain_tar,
    make_tar,
    make_zip,
    read_folder,
    unpack_data,
    unpack_error,
)


@pytest.mark.parametrize("archive_format", SAMPLE_ARCHIVES)
@pytest.mark.parametrize("name", ["data", "wrong-name.jpg", "odd.zip.tar"])
def test_format_is_detected_by_content(folder, archive_format, name):
    result = unpack_data(folder, SAMPLE_ARCHIVES[archive_format], name)
    assert detect_format(folder / name) == archive_format
    assert read_folder(folder / "into") == SAMPLE_FILES
    assert result == UnpackResult(len(SAMPLE_FILES), sum(map(len, SAMPLE_FILES.values())))


@pytest.mark.parametrize("tar_format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_tar_formats(folder, tar_format):
    long = "folder/" * 12 + "n" * 90
    unpack_data(folder, make_tar([make_member(long, b"x"), make_member("y", b"y")], tar_format=tar_format))
    assert read_folder(folder / "into") == {long: b"x", "y": b"y"}


def test_v7_tar_without_magic(folder):
    header = bytearray(make_tar([make_member("old.txt", b"old")], tar_format=tarfile.USTAR_FORMAT))
    header[257:265] = bytes(8)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header[:512])
    unpack_data(folder, bytes(header))
    assert read_folder(folder / "into") == {"old.txt": b"old"}


def gnu_tar(folder: Path, files: dict, *options: str) -> bytes:
    contents = folder / "contents"
    for name, data in files.items():
        (contents / name).parent.mkdir(parents=True, exist_ok=True)
        (contents / name).write_bytes(data)
    command = ["tar", "-cf", "-", *options, "-C", contents, "."]
    archive = subprocess.run(command, capture_output=True, check=True).stdout
    shutil.rmtree(contents)
    return archive


@pytest.mark.parametrize("tar_format", ["v7", "oldgnu", "gnu", "ustar", "posix"])
def test_gnu_tar_formats(folder, tar_format):
    long = {} if tar_format == "v7" else {"folder/" * 14 + "n" * 60: b"long"}
    longer = {"deep/" * 60 + "n" * 200: b"longer"} if tar_format in ("gnu", "posix") else {}
    files = {"a": b"1", "d/b": bytes(5000), **long, **longer}
    unpack_data(folder, gnu_tar(folder, files, f"--format={tar_format}"))
    assert read_folder(folder / "into") == files


@pytest.mark.parametrize("tar_format", ["gnu", "posix"])
def test_sparse_file_is_rejected(folder, tar_format):
    (folder / "hole").mkdir()
    with open(folder / "hole" / "holes.bin", "wb") as file:
        file.truncate(10 << 20)
        file.seek(5 << 20)
        file.write(b"data")
    command = ["tar", "-cf", "-", "--sparse", f"--format={tar_format}", "-C", folder / "hole", "holes.bin"]
    archive = subprocess.run(command, capture_output=True, check=True).stdout
    shutil.rmtree(folder / "hole")
    error = unpack_error(folder, archive)
    assert error.kind == "archive_unsafe"
    assert "sparse" in error.detail


def test_binary_size_field(folder):
    header = bytearray(make_tar([make_member("big", b"12345")], tar_format=tarfile.GNU_FORMAT))
    header[124:136] = b"\x80" + (5).to_bytes(11, "big")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header[:512])
    unpack_data(folder, bytes(header))
    assert read_folder(folder / "into") == {"big": b"12345"}


def test_large_and_small_files(folder):
    files = {"large": RANDOM_DATA * 20, "small": b"s", "d/large": RANDOM_DATA * 15, "d/empty": b""}
    assert unpack_data(folder, make_plain_tar(files)) == UnpackResult(4, sum(map(len, files.values())))
    assert read_folder(folder / "into") == files


def test_last_member_of_a_name_wins(folder):
    members = [make_member(f"d/{n % 7}", b"%d" % n) for n in range(300)]
    unpack_data(folder, make_tar(members, tar_format=tarfile.USTAR_FORMAT))
    assert read_folder(folder / "into") == {f"d/{n % 7}": b"%d" % n for n in range(293, 300)}


def test_concatenated_compressed_streams(folder):
    tar = make_plain_tar()
    for compress in (gzip.compress, bz2.compress, lzma.compress):
        unpack_data(folder, compress(tar[:5000]) + compress(tar[5000:]) + bytes(512), "x.tar")
        assert read_folder(folder / "into") == SAMPLE_FILES
        shutil.rmtree(folder / "into")


def test_empty_tar(folder):
    assert unpack_data(folder, make_tar([])) == UnpackResult(0, 0)
    assert unpack_data(folder, gzip.compress(make_tar([]))) == UnpackResult(0, 0)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_zip_and_zip64(folder, method):
    unpack_data(folder, make_zip(SAMPLE_FILES, method, force_zip64=True))
    assert read_folder(folder / "into") == SAMPLE_FILES


@pytest.mark.parametrize(
    ("compress", "suffix"), [(gzip.compress, ".gz"), (bz2.compress, ".bz2"), (lzma.compress, ".xz")]
)
def test_single_compressed_file(folder, compress, suffix):
    data = b"idx file " * 100_000
    assert unpack_data(folder, compress(data), f"train-images{suffix}") == UnpackResult(1, len(data))
    assert read_folder(folder / "into") == {"train-images": data}


def test_other_files_are_not_archives(folder):
    for name, data in {"a.tar.gz": b"hello", "b": b"", "c.tar": bytes(5000), "d.jpg": b"\xff\xd8" * 999}.items():
        (folder / name).write_bytes(data)
        assert detect_format(folder / name) is None


def test_zipped_data_formats_are_not_unpacked(folder):
    (folder / "model.pth").write_bytes(make_zip(SAMPLE_FILES))
    assert detect_format(folder / "model.pth") is None


def test_progress(folder, unpack_method):
    reports = []
    unpack_data(
        folder,
        make_plain_tar({"a": RANDOM_DATA, "b": RANDOM_DATA}),
        on_progress=lambda done, total: reports.append((done, total)),
    )
    assert [done for done, _ in reports] == sorted(done for done, _ in reports)
    assert reports[-1][0] == 2 * len(RANDOM_DATA)
    assert unpack_method == "stream" or abs(reports[-1][1] - 2 * len(RANDOM_DATA)) < 20_000


class Cancelled(Exception):
    pass


@pytest.mark.parametrize("archive_format", SAMPLE_ARCHIVES)
def test_cancellation(folder, archive_format):
    calls = []

    def check_cancelled() -> None:
        calls.append(1)
        if len(calls) > 2:
            raise Cancelled

    with pytest.raises(Cancelled):
        unpack_data(folder, SAMPLE_ARCHIVES[archive_format], check_cancelled=check_cancelled)


@pytest.mark.parametrize(("magic", "tool"), [(b"7z\xbc\xaf\x27\x1c", "7z"), (b"Rar!\x1a\x07", "unrar")])
def test_missing_tool(folder, monkeypatch, magic, tool):
    monkeypatch.setenv("PATH", str(folder))
    error = unpack_error(folder, magic + bytes(100), "x.7z")
    assert error.kind == "archive_broken"
    assert tool in error.detail


@pytest.mark.slow
def test_7z_with_tool(folder, monkeypatch):
    from testbed import sevenzip

    monkeypatch.setenv("PATH", f"{sevenzip.bin_dir()}:{os.environ['PATH']}")
    (folder / "packed").mkdir()
    (folder / "packed" / "a").write_bytes(RANDOM_DATA)
    subprocess.run(["7z", "a", "../x.7z", "a"], cwd=folder / "packed", check=True, capture_output=True)
    assert unpack_data(folder, (folder / "x.7z").read_bytes()) == UnpackResult(1, len(RANDOM_DATA))
    assert read_folder(folder / "into") == {"a": RANDOM_DATA}


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (SAMPLE_ARCHIVES["tar"], True),
        (SAMPLE_ARCHIVES["tar.gz"], True),
        (SAMPLE_ARCHIVES["tar.bz2"], True),
        (SAMPLE_ARCHIVES["tar.xz"], True),
        (gzip.compress(b"one file"), True),
        (SAMPLE_ARCHIVES["zip"], False),
        (b"7z\xbc\xaf\x27\x1c" + bytes(600), False),
        (b"<!DOCTYPE html><html></html>", False),
        (b"", False),
        (bytes(512), False),
    ],
    ids=["tar", "tar.gz", "tar.bz2", "tar.xz", "gz", "zip", "7z", "html", "nothing", "zeros"],
)
def test_can_stream(head, expected):
    assert can_stream(head[:512]) is expected


def test_unpack_stream_rejects_zip(folder):
    with pytest.raises(FailedError) as caught:
        unpack_stream(
            ChunkedReader(SAMPLE_ARCHIVES["zip"]),
            "data.zip",
            folder / "into",
            max_bytes=None,
            check_cancelled=lambda: None,
            on_progress=lambda d, t: None,
        )
    assert caught.value.kind == "archive_broken"
    assert not (folder / "into").exists()
