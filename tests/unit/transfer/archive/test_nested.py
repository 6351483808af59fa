"""unpack: a tar of tars becomes folders, where somebody asked for it."""

from __future__ import annotations

import gzip

from packtrain.transfer.archive.unpack import Unpacked
from tests.support.archives import RANDOM, content, failure, member, plain_tar, run, tar_of, zip_of


def nested() -> bytes:
    inner = {
        "n01440764.tar": plain_tar({"n01440764_1.JPEG": b"one", "n01440764_2.JPEG": b"two"}),
        "n01443537.tar.gz": gzip.compress(plain_tar({"n01443537_1.JPEG": b"three"})),
        "readme.txt": b"four",
    }
    return plain_tar(inner)


def test_a_tar_of_tars_becomes_folders(place):
    done = run(place, nested(), nested=True)
    assert content(place / "into") == {
        "n01440764/n01440764_1.JPEG": b"one",
        "n01440764/n01440764_2.JPEG": b"two",
        "n01443537/n01443537_1.JPEG": b"three",
        "readme.txt": b"four",
    }
    assert done == Unpacked(4, len(b"onetwothreefour"))


def test_an_inner_tar_is_never_written_itself(place):
    big = plain_tar({"n": bytes(3 << 20)})
    inner = {f"d/{n}.tar": big for n in range(4)}
    assert run(place, plain_tar(inner), nested=True, limit_bytes=4 * (3 << 20)).files == 4
    assert (place / "into" / "d" / "3" / "n").stat().st_size == 3 << 20


def test_tars_inside_of_a_zip_become_folders_too(place):
    assert run(place, zip_of({"in.tar": plain_tar({"f": b"1"}), "g": b"2"}), nested=True) == Unpacked(2, 2)
    assert content(place / "into") == {"in/f": b"1", "g": b"2"}


def test_a_cut_inner_tar_is_truncated(place):
    inner = plain_tar({"a": RANDOM})[:200_000]
    error = failure(place, plain_tar({"inner.tar": inner, "b": b"b"}), nested=True)
    assert error.kind == "truncated"
    assert "inner.tar in data" in error.detail


def test_a_tar_of_tars_stays_one_where_nobody_asked(place):
    assert run(place, nested()).files == 3
    assert (place / "into" / "n01440764.tar").is_file()


def test_an_inner_tar_may_not_leave_its_folder_either(place):
    inner = tar_of([member("../outer.txt", b"evil")])
    error = failure(place, plain_tar({"inner.tar": inner}), nested=True)
    assert error.kind == "archive_unsafe"
    assert "inner.tar in data" in error.detail
