"""unpack: every kind, by content, from the disk or on its way."""

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


@pytest.mark.parametrize("kind", SAMPLE_ARCHIVES)
@pytest.mark.parametrize("name", ["data", "wrong-name.jpg", "odd.zip.tar"])
def test_every_kind_is_known_by_its_content(place, kind, name):
    done = unpack_data(place, SAMPLE_ARCHIVES[kind], name)
    assert detect_format(place / name) == kind
    assert read_folder(place / "into") == SAMPLE_FILES
    assert done == UnpackResult(len(SAMPLE_FILES), sum(map(len, SAMPLE_FILES.values())))


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_form_of_tar(place, form):
    long = "folder/" * 12 + "n" * 90
    unpack_data(place, make_tar([make_member(long, b"x"), make_member("y", b"y")], form=form))
    assert read_folder(place / "into") == {long: b"x", "y": b"y"}


def test_a_tar_from_before_posix_has_no_magic(place):
    header = bytearray(make_tar([make_member("old.txt", b"old")], form=tarfile.USTAR_FORMAT))
    header[257:265] = bytes(8)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header[:512])
    unpack_data(place, bytes(header))
    assert read_folder(place / "into") == {"old.txt": b"old"}


def gnu_tar(place: Path, files: dict, *options: str) -> bytes:
    made = place / "made"
    for name, data in files.items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_bytes(data)
    packed = subprocess.run(["tar", "-cf", "-", *options, "-C", made, "."], capture_output=True, check=True).stdout
    shutil.rmtree(made)
    return packed


@pytest.mark.parametrize("form", ["v7", "oldgnu", "gnu", "ustar", "posix"])
def test_every_form_that_gnu_tar_writes(place, form):
    long = {} if form == "v7" else {"folder/" * 14 + "n" * 60: b"long"}
    longer = {"deep/" * 60 + "n" * 200: b"longer"} if form in ("gnu", "posix") else {}
    files = {"a": b"1", "d/b": bytes(5000), **long, **longer}
    unpack_data(place, gnu_tar(place, files, f"--format={form}"))
    assert read_folder(place / "into") == files


@pytest.mark.parametrize("form", ["gnu", "posix"])
def test_a_sparse_file_is_refused_clearly(place, form):
    (place / "hole").mkdir()
    with open(place / "hole" / "holes.bin", "wb") as file:
        file.truncate(10 << 20)
        file.seek(5 << 20)
        file.write(b"data")
    command = ["tar", "-cf", "-", "--sparse", f"--format={form}", "-C", place / "hole", "holes.bin"]
    packed = subprocess.run(command, capture_output=True, check=True).stdout
    shutil.rmtree(place / "hole")
    error = unpack_error(place, packed)
    assert error.kind == "archive_unsafe"
    assert "sparse" in error.detail


def test_sizes_beyond_octal_are_read(place):
    header = bytearray(make_tar([make_member("big", b"12345")], form=tarfile.GNU_FORMAT))
    header[124:136] = b"\x80" + (5).to_bytes(11, "big")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header[:512])
    unpack_data(place, bytes(header))
    assert read_folder(place / "into") == {"big": b"12345"}


def test_large_and_small_files_land_side_by_side(place):
    files = {"large": RANDOM_DATA * 20, "small": b"s", "d/large": RANDOM_DATA * 15, "d/empty": b""}
    assert unpack_data(place, make_plain_tar(files)) == UnpackResult(4, sum(map(len, files.values())))
    assert read_folder(place / "into") == files


def test_many_small_files_under_few_names_end_as_the_last_ones(place):
    members = [make_member(f"d/{n % 7}", b"%d" % n) for n in range(3000)]
    unpack_data(place, make_tar(members, form=tarfile.USTAR_FORMAT))
    assert read_folder(place / "into") == {f"d/{n % 7}": b"%d" % n for n in range(2993, 3000)}


def test_streams_of_compression_may_follow_one_another(place):
    tar = make_plain_tar()
    for pack in (gzip.compress, bz2.compress, lzma.compress):
        unpack_data(place, pack(tar[:5000]) + pack(tar[5000:]) + bytes(512), "x.tar")
        assert read_folder(place / "into") == SAMPLE_FILES
        shutil.rmtree(place / "into")


def test_an_empty_tar_is_a_tar(place):
    assert unpack_data(place, make_tar([])) == UnpackResult(0, 0)
    assert unpack_data(place, gzip.compress(make_tar([]))) == UnpackResult(0, 0)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_zip_and_zip64(place, method):
    unpack_data(place, make_zip(SAMPLE_FILES, method, force_zip64=True))
    assert read_folder(place / "into") == SAMPLE_FILES


@pytest.mark.parametrize(("pack", "suffix"), [(gzip.compress, ".gz"), (bz2.compress, ".bz2"), (lzma.compress, ".xz")])
def test_a_single_compressed_file_loses_its_suffix(place, pack, suffix):
    data = b"idx file " * 100_000
    assert unpack_data(place, pack(data), f"train-images{suffix}") == UnpackResult(1, len(data))
    assert read_folder(place / "into") == {"train-images": data}


def test_what_is_no_archive_is_left(place):
    for name, data in {"a.tar.gz": b"hello", "b": b"", "c.tar": bytes(5000), "d.jpg": b"\xff\xd8" * 999}.items():
        (place / name).write_bytes(data)
        assert detect_format(place / name) is None


def test_data_that_happens_to_be_zipped_is_left(place):
    (place / "model.pth").write_bytes(make_zip(SAMPLE_FILES))
    assert detect_format(place / "model.pth") is None


def test_progress_grows_and_ends_with_all(place, way):
    told = []
    unpack_data(
        place,
        make_plain_tar({"a": RANDOM_DATA, "b": RANDOM_DATA}),
        on_progress=lambda done, total: told.append((done, total)),
    )
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1][0] == 2 * len(RANDOM_DATA)
    assert way == "stream" or abs(told[-1][1] - 2 * len(RANDOM_DATA)) < 20_000


class Leave(Exception):
    pass


@pytest.mark.parametrize("kind", SAMPLE_ARCHIVES)
def test_stop_is_heard(place, kind):
    asked = []

    def stop() -> None:
        asked.append(1)
        if len(asked) > 2:
            raise Leave

    with pytest.raises(Leave):
        unpack_data(place, SAMPLE_ARCHIVES[kind], check_cancelled=stop)


@pytest.mark.parametrize(("magic", "tool"), [(b"7z\xbc\xaf\x27\x1c", "7z"), (b"Rar!\x1a\x07", "unrar")])
def test_a_missing_tool_is_named(place, monkeypatch, magic, tool):
    monkeypatch.setenv("PATH", str(place))
    error = unpack_error(place, magic + bytes(100), "x.7z")
    assert error.kind == "archive_broken"
    assert tool in error.detail


@pytest.mark.slow
def test_a_7z_archive_where_the_tool_is(place, monkeypatch):
    from testbed import sevenzip

    monkeypatch.setenv("PATH", f"{sevenzip.bin_dir()}:{os.environ['PATH']}")
    (place / "packed").mkdir()
    (place / "packed" / "a").write_bytes(RANDOM_DATA)
    subprocess.run(["7z", "a", "../x.7z", "a"], cwd=place / "packed", check=True, capture_output=True)
    assert unpack_data(place, (place / "x.7z").read_bytes()) == UnpackResult(1, len(RANDOM_DATA))
    assert read_folder(place / "into") == {"a": RANDOM_DATA}


@pytest.mark.parametrize(
    ("head", "can"),
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
def test_what_can_be_unpacked_on_its_way(head, can):
    assert can_stream(head[:512]) is can


def test_what_cannot_be_unpacked_on_its_way_leaves_nothing(place):
    with pytest.raises(FailedError) as caught:
        unpack_stream(
            ChunkedReader(SAMPLE_ARCHIVES["zip"]),
            "data.zip",
            place / "into",
            max_bytes=None,
            check_cancelled=lambda: None,
            on_progress=lambda d, t: None,
        )
    assert caught.value.kind == "archive_broken"
    assert not (place / "into").exists()
