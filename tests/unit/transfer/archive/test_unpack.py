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
from packtrain.transfer.archive.unpack import Unpacked, can_stream, kind_of, unpack_stream
from tests.support.archives import (
    ARCHIVES,
    FILES,
    RANDOM,
    Trickle,
    content,
    failure,
    member,
    plain_tar,
    run,
    tar_of,
    zip_of,
)


@pytest.mark.parametrize("kind", ARCHIVES)
@pytest.mark.parametrize("name", ["data", "wrong-name.jpg", "odd.zip.tar"])
def test_every_kind_is_known_by_its_content(place, kind, name):
    done = run(place, ARCHIVES[kind], name)
    assert kind_of(place / name) == kind
    assert content(place / "into") == FILES
    assert done == Unpacked(len(FILES), sum(map(len, FILES.values())))


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_form_of_tar(place, form):
    long = "folder/" * 12 + "n" * 90
    run(place, tar_of([member(long, b"x"), member("y", b"y")], form=form))
    assert content(place / "into") == {long: b"x", "y": b"y"}


def test_a_tar_from_before_posix_has_no_magic(place):
    header = bytearray(tar_of([member("old.txt", b"old")], form=tarfile.USTAR_FORMAT))
    header[257:265] = bytes(8)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header[:512])
    run(place, bytes(header))
    assert content(place / "into") == {"old.txt": b"old"}


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
    run(place, gnu_tar(place, files, f"--format={form}"))
    assert content(place / "into") == files


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
    error = failure(place, packed)
    assert error.kind == "archive_unsafe"
    assert "sparse" in error.detail


def test_sizes_beyond_octal_are_read(place):
    header = bytearray(tar_of([member("big", b"12345")], form=tarfile.GNU_FORMAT))
    header[124:136] = b"\x80" + (5).to_bytes(11, "big")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header[:512])
    run(place, bytes(header))
    assert content(place / "into") == {"big": b"12345"}


def test_large_and_small_files_land_side_by_side(place):
    files = {"large": RANDOM * 20, "small": b"s", "d/large": RANDOM * 15, "d/empty": b""}
    assert run(place, plain_tar(files)) == Unpacked(4, sum(map(len, files.values())))
    assert content(place / "into") == files


def test_many_small_files_under_few_names_end_as_the_last_ones(place):
    members = [member(f"d/{n % 7}", b"%d" % n) for n in range(3000)]
    run(place, tar_of(members, form=tarfile.USTAR_FORMAT))
    assert content(place / "into") == {f"d/{n % 7}": b"%d" % n for n in range(2993, 3000)}


def test_streams_of_compression_may_follow_one_another(place):
    tar = plain_tar()
    for pack in (gzip.compress, bz2.compress, lzma.compress):
        run(place, pack(tar[:5000]) + pack(tar[5000:]) + bytes(512), "x.tar")
        assert content(place / "into") == FILES
        shutil.rmtree(place / "into")


def test_an_empty_tar_is_a_tar(place):
    assert run(place, tar_of([])) == Unpacked(0, 0)
    assert run(place, gzip.compress(tar_of([]))) == Unpacked(0, 0)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_zip_and_zip64(place, method):
    run(place, zip_of(FILES, method, force_zip64=True))
    assert content(place / "into") == FILES


@pytest.mark.parametrize(("pack", "suffix"), [(gzip.compress, ".gz"), (bz2.compress, ".bz2"), (lzma.compress, ".xz")])
def test_a_single_compressed_file_loses_its_suffix(place, pack, suffix):
    data = b"idx file " * 100_000
    assert run(place, pack(data), f"train-images{suffix}") == Unpacked(1, len(data))
    assert content(place / "into") == {"train-images": data}


def test_what_is_no_archive_is_left(place):
    for name, data in {"a.tar.gz": b"hello", "b": b"", "c.tar": bytes(5000), "d.jpg": b"\xff\xd8" * 999}.items():
        (place / name).write_bytes(data)
        assert kind_of(place / name) is None


def test_data_that_happens_to_be_zipped_is_left(place):
    (place / "model.pth").write_bytes(zip_of(FILES))
    assert kind_of(place / "model.pth") is None


def test_progress_grows_and_ends_with_all(place, way):
    told = []
    run(place, plain_tar({"a": RANDOM, "b": RANDOM}), progress=lambda done, total: told.append((done, total)))
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1][0] == 2 * len(RANDOM)
    assert way == "stream" or abs(told[-1][1] - 2 * len(RANDOM)) < 20_000


class Leave(Exception):
    pass


@pytest.mark.parametrize("kind", ARCHIVES)
def test_stop_is_heard(place, kind):
    asked = []

    def stop() -> None:
        asked.append(1)
        if len(asked) > 2:
            raise Leave

    with pytest.raises(Leave):
        run(place, ARCHIVES[kind], stop=stop)


@pytest.mark.parametrize(("magic", "tool"), [(b"7z\xbc\xaf\x27\x1c", "7z"), (b"Rar!\x1a\x07", "unrar")])
def test_a_missing_tool_is_named(place, monkeypatch, magic, tool):
    monkeypatch.setenv("PATH", str(place))
    error = failure(place, magic + bytes(100), "x.7z")
    assert error.kind == "archive_broken"
    assert tool in error.detail


@pytest.mark.slow
def test_a_7z_archive_where_the_tool_is(place, monkeypatch):
    from testbed import sevenzip

    monkeypatch.setenv("PATH", f"{sevenzip.bin_folder()}:{os.environ['PATH']}")
    (place / "packed").mkdir()
    (place / "packed" / "a").write_bytes(RANDOM)
    subprocess.run(["7z", "a", "../x.7z", "a"], cwd=place / "packed", check=True, capture_output=True)
    assert run(place, (place / "x.7z").read_bytes()) == Unpacked(1, len(RANDOM))
    assert content(place / "into") == {"a": RANDOM}


@pytest.mark.parametrize(
    ("head", "can"),
    [
        (ARCHIVES["tar"], True),
        (ARCHIVES["tar.gz"], True),
        (ARCHIVES["tar.bz2"], True),
        (ARCHIVES["tar.xz"], True),
        (gzip.compress(b"one file"), True),
        (ARCHIVES["zip"], False),
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
            Trickle(ARCHIVES["zip"]),
            "data.zip",
            place / "into",
            limit_bytes=None,
            stop=lambda: None,
            progress=lambda d, t: None,
        )
    assert caught.value.kind == "archive_broken"
    assert not (place / "into").exists()
