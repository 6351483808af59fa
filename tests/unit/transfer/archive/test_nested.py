"""unpack: a tar of tars becomes folders, where somebody asked for it."""

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


def nested() -> bytes:
    inner = {
        "n01440764.tar": make_plain_tar({"n01440764_1.JPEG": b"one", "n01440764_2.JPEG": b"two"}),
        "n01443537.tar.gz": gzip.compress(make_plain_tar({"n01443537_1.JPEG": b"three"})),
        "readme.txt": b"four",
    }
    return make_plain_tar(inner)


def test_a_tar_of_tars_becomes_folders(place):
    done = unpack_data(place, nested(), nested=True)
    assert read_folder(place / "into") == {
        "n01440764/n01440764_1.JPEG": b"one",
        "n01440764/n01440764_2.JPEG": b"two",
        "n01443537/n01443537_1.JPEG": b"three",
        "readme.txt": b"four",
    }
    assert done == UnpackResult(4, len(b"onetwothreefour"))


def test_an_inner_tar_is_never_written_itself(place):
    big = make_plain_tar({"n": bytes(3 << 20)})
    inner = {f"d/{n}.tar": big for n in range(4)}
    assert unpack_data(place, make_plain_tar(inner), nested=True, max_bytes=4 * (3 << 20)).files == 4
    assert (place / "into" / "d" / "3" / "n").stat().st_size == 3 << 20


def test_tars_inside_of_a_zip_become_folders_too(place):
    assert unpack_data(
        place, make_zip({"in.tar": make_plain_tar({"f": b"1"}), "g": b"2"}), nested=True
    ) == UnpackResult(2, 2)
    assert read_folder(place / "into") == {"in/f": b"1", "g": b"2"}


def test_a_cut_inner_tar_is_truncated(place):
    inner = make_plain_tar({"a": RANDOM_DATA})[:200_000]
    error = unpack_error(place, make_plain_tar({"inner.tar": inner, "b": b"b"}), nested=True)
    assert error.kind == "truncated"
    assert "inner.tar in data" in error.detail


def test_a_tar_of_tars_stays_one_where_nobody_asked(place):
    assert unpack_data(place, nested()).files == 3
    assert (place / "into" / "n01440764.tar").is_file()


def test_an_inner_tar_may_not_leave_its_folder_either(place):
    inner = make_tar([make_member("../outer.txt", b"evil")])
    error = unpack_error(place, make_plain_tar({"inner.tar": inner}), nested=True)
    assert error.kind == "archive_unsafe"
    assert "inner.tar in data" in error.detail
