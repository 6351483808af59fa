"""preallocate: disk space for a file before its first byte."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from packtrain.errors import FailedError
from packtrain.transfer.engine import preallocate as preallocate_module
from packtrain.transfer.engine.part_file import PartFile
from packtrain.transfer.engine.preallocate import preallocate
from packtrain.transfer.engine.resume_log import ObjectIdentity

SIZE = preallocate_module.MIN_PREALLOCATED_BYTES


def allocated_bytes(path: Path) -> int:
    """The disk space of an empty file after preallocation."""
    with open(path, "w+b") as file:
        file.truncate(SIZE)
        preallocate(file.fileno(), SIZE)
        return os.fstat(file.fileno()).st_blocks * 512


def test_file_on_disk_is_allocated(tmp_path):
    is_on_disk = os.major(tmp_path.stat().st_dev) != 0
    assert (allocated_bytes(tmp_path / "file") >= SIZE) == is_on_disk
    assert (tmp_path / "file").read_bytes() == bytes(SIZE)


def test_small_files_are_not_allocated(tmp_path, results):
    with open(tmp_path / "file", "w+b") as file:
        preallocate(file.fileno(), SIZE - 1)  # `results` is empty, so a call would fail


def test_tmpfs_is_not_allocated():
    path = Path(f"/dev/shm/packtrain-preallocate-{os.getpid()}")
    try:
        assert allocated_bytes(path) == 0
    finally:
        path.unlink()


@pytest.fixture
def results(monkeypatch) -> list[int]:
    """The results of the system call, in order."""
    results: list[int] = []
    monkeypatch.setattr(preallocate_module, "_fallocate", lambda fd, size: results.pop(0))
    monkeypatch.setattr(preallocate_module, "_is_on_local_disk", lambda fd: True)
    return results


@pytest.mark.parametrize("error_number", [errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM])
def test_unsupported_file_system(tmp_path, results, error_number):
    results.append(error_number)
    assert allocated_bytes(tmp_path / "file") == 0
    assert not results


def test_interrupted_call_is_repeated(tmp_path, results):
    results += [errno.EINTR, errno.EINTR, 0]
    allocated_bytes(tmp_path / "file")
    assert not results


def test_disk_too_small(tmp_path, results):
    results.append(errno.ENOSPC)
    part = PartFile(tmp_path / "data.bin")
    with pytest.raises(FailedError) as caught:
        part.begin(ObjectIdentity(SIZE, None, None))
    assert caught.value.kind == "disk_full"
    assert not list(tmp_path.iterdir()), "the allocated space is released"
    assert str(SIZE) in str(caught.value)
