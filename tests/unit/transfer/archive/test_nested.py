"""unpack with `nested`: each tar inside of an archive becomes a folder."""

from __future__ import annotations

import gzip

from packtrain.transfer.archive.unpack import UnpackResult
from tests.support.archives import (
    RANDOM_DATA,
    make_member,
    make_plain_tar,
    make_tar,
    make_zip,
    read_folder,
    unpack_data,
    unpack_error,
)


def make_nested_tar() -> bytes:
    inner = {
        "n01440764.tar": make_plain_tar({"n01440764_1.JPEG": b"one", "n01440764_2.JPEG": b"two"}),
        "n01443537.tar.gz": gzip.compress(make_plain_tar({"n01443537_1.JPEG": b"three"})),
        "readme.txt": b"four",
    }
    return make_plain_tar(inner)


def test_nested_tars_become_folders(folder):
    result = unpack_data(folder, make_nested_tar(), nested=True)
    assert read_folder(folder / "into") == {
        "n01440764/n01440764_1.JPEG": b"one",
        "n01440764/n01440764_2.JPEG": b"two",
        "n01443537/n01443537_1.JPEG": b"three",
        "readme.txt": b"four",
    }
    assert result == UnpackResult(4, len(b"onetwothreefour"))


def test_nested_tars_are_not_written(folder):
    big = make_plain_tar({"n": bytes(3 << 20)})
    inner = {f"d/{n}.tar": big for n in range(4)}
    assert unpack_data(folder, make_plain_tar(inner), nested=True, max_bytes=4 * (3 << 20)).files == 4
    assert (folder / "into" / "d" / "3" / "n").stat().st_size == 3 << 20


def test_nested_tars_in_zip(folder):
    assert unpack_data(
        folder, make_zip({"in.tar": make_plain_tar({"f": b"1"}), "g": b"2"}), nested=True
    ) == UnpackResult(2, 2)
    assert read_folder(folder / "into") == {"in/f": b"1", "g": b"2"}


def test_truncated_nested_tar(folder):
    inner = make_plain_tar({"a": RANDOM_DATA})[:200_000]
    error = unpack_error(folder, make_plain_tar({"inner.tar": inner, "b": b"b"}), nested=True)
    assert error.kind == "truncated"
    assert "inner.tar in data" in error.detail


def test_nested_tars_are_kept_by_default(folder):
    assert unpack_data(folder, make_nested_tar()).files == 3
    assert (folder / "into" / "n01440764.tar").is_file()


def test_nested_tar_cannot_leave_its_folder(folder):
    inner = make_tar([make_member("../outer.txt", b"evil")])
    error = unpack_error(folder, make_plain_tar({"inner.tar": inner}), nested=True)
    assert error.kind == "archive_unsafe"
    assert "inner.tar in data" in error.detail
