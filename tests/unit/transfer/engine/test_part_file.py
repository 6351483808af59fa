"""PartFile: the partial file of a download."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import pytest

from packtrain.errors import FailedError
from packtrain.transfer.engine import part_file, resume_log
from packtrain.transfer.engine.part_file import PartFile
from packtrain.transfer.engine.resume_log import ObjectIdentity

IDENTITY = ObjectIdentity(5_000_000, None, None, 1 << 20)
LARGE = ObjectIdentity(64 << 20, None, None, 1 << 20)


def allocated_bytes(folder: Path) -> int:
    """The disk space of a partial file before its first byte."""
    part = PartFile(folder / "data")
    part.begin(LARGE)
    try:
        return part.path.stat().st_blocks * 512
    finally:
        part.discard()


def test_large_file_on_disk_is_allocated(tmp_path):
    is_on_disk = os.major(tmp_path.stat().st_dev) != 0
    assert (allocated_bytes(tmp_path) >= LARGE.size) == is_on_disk


def test_tmpfs_is_not_allocated():
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        assert allocated_bytes(Path(folder)) == 0


@pytest.mark.parametrize(
    ("error_number", "kind"), [(errno.ENOSPC, "disk_full"), (errno.EOPNOTSUPP, None), (errno.EPERM, None)]
)
def test_failed_allocation(tmp_path, monkeypatch, error_number, kind):
    def fail(fd, offset, size):
        raise OSError(error_number, os.strerror(error_number))

    monkeypatch.setattr(part_file.os, "posix_fallocate", fail)
    monkeypatch.setattr(part_file.os, "major", lambda device: 8)
    part = PartFile(tmp_path / "data")
    if kind is None:
        part.begin(LARGE)
        assert part.path.stat().st_size == LARGE.size
        part.discard()
        return
    with pytest.raises(FailedError) as caught:
        part.begin(LARGE)
    assert caught.value.kind == kind
    assert str(LARGE.size) in str(caught.value)
    assert not list(tmp_path.iterdir()), "the allocated space is released"


def test_new_file_is_not_truncated(tmp_path: Path, monkeypatch):
    """When a truncated file is closed, ext4 writes all of it to disk, which takes half a second for 2 GB."""
    sizes: list[int] = []
    monkeypatch.setattr(part_file.os, "ftruncate", lambda fd, size: sizes.append(size))
    sized, unsized = PartFile(tmp_path / "sized"), PartFile(tmp_path / "unsized")
    sized.begin(IDENTITY)
    sized.close()
    unsized.begin_unsized()
    unsized.close()
    assert sizes == [IDENTITY.size]


def test_old_content_is_discarded(tmp_path: Path):
    (tmp_path / "data.part").write_bytes(b"old" * 1000)
    part = PartFile(tmp_path / "data")
    part.begin_unsized()
    part.write_at(0, memoryview(b"new"))
    part.finish()
    assert (tmp_path / "data").read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["data"]


@pytest.mark.parametrize(("boot_id", "valid"), [("first", {1, 2}), ("second", {1}), ("", {1})])
def test_unchecked_blocks_are_trusted_until_reboot(tmp_path, monkeypatch, boot_id, valid):
    """Block 2 was recorded but lost, and reads as zeros. Without a boot id it is not trusted either."""
    monkeypatch.setattr(resume_log, "boot_id", lambda: "first" if boot_id else "")
    part = PartFile(tmp_path / "data")
    part.begin(IDENTITY)
    part.write_at(1 << 20, memoryview(b"\1" * (1 << 20)))
    part.record_block(1)
    part.record_block(2)
    part.close()
    monkeypatch.setattr(resume_log, "boot_id", lambda: boot_id)
    resumed = PartFile(tmp_path / "data")
    assert resumed.resume(1 << 20, None) == valid
    resumed.close()
