"""Room for all of a file before its first byte."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from packtrain.errors import FailedError
from packtrain.transfer.engine import preallocate as module
from packtrain.transfer.engine.part_file import PartFile
from packtrain.transfer.engine.preallocate import preallocate
from packtrain.transfer.engine.resume_log import ObjectIdentity

SIZE = module.MIN_PREALLOCATED_BYTES


def allotted(path: Path) -> int:
    """Bytes of the disk that an empty file of some size has after it was given room."""
    with open(path, "w+b") as file:
        file.truncate(SIZE)
        preallocate(file.fileno(), SIZE)
        return os.fstat(file.fileno()).st_blocks * 512


def test_a_file_on_a_disk_has_its_room_and_size(tmp_path):
    on_a_disk = os.major(tmp_path.stat().st_dev) != 0
    assert (allotted(tmp_path / "file") >= SIZE) == on_a_disk
    assert (tmp_path / "file").read_bytes() == bytes(SIZE)


def test_small_files_are_not_worth_it(tmp_path, answers):
    with open(tmp_path / "file", "w+b") as file:
        preallocate(file.fileno(), SIZE - 1)  # nobody would answer


def test_memory_is_not_filled_with_zeros():
    path = Path(f"/dev/shm/packtrain-allot-{os.getpid()}")
    try:
        assert allotted(path) == 0
    finally:
        path.unlink()


@pytest.fixture
def answers(monkeypatch) -> list[int]:
    """What the kernel says, one after the other."""
    given: list[int] = []
    monkeypatch.setattr(module, "_fallocate", lambda file, size: given.pop(0))
    monkeypatch.setattr(module, "_is_on_local_disk", lambda file: True)
    return given


@pytest.mark.parametrize("refusal", [errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM])
def test_a_file_system_that_cannot_is_written_nevertheless(tmp_path, answers, refusal):
    answers.append(refusal)
    assert allotted(tmp_path / "file") == 0
    assert not answers


def test_a_signal_does_not_end_it(tmp_path, answers):
    answers += [errno.EINTR, errno.EINTR, 0]
    allotted(tmp_path / "file")
    assert not answers


def test_a_disk_that_is_too_small_is_told_before_anything_comes(tmp_path, answers):
    answers.append(errno.ENOSPC)
    part = PartFile(tmp_path / "data.bin")
    with pytest.raises(FailedError) as caught:
        part.begin(ObjectIdentity(SIZE, None, None))
    assert caught.value.kind == "disk_full"
    assert not list(tmp_path.iterdir()), "what was taken of the disk is kept"
    assert str(SIZE) in str(caught.value)
