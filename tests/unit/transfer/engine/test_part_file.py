"""PartFile: the partial file of a download."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from packtrain.transfer.engine import part_file, resume_log
from packtrain.transfer.engine.part_file import PartFile
from packtrain.transfer.engine.resume_log import ObjectIdentity

IDENTITY = ObjectIdentity(5_000_000, None, None, 1 << 20)


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
    monkeypatch.setattr(resume_log, "_boot_id", lambda: "first" if boot_id else "")
    part = PartFile(tmp_path / "data")
    part.begin(IDENTITY)
    part.write_at(1 << 20, memoryview(b"\1" * (1 << 20)))
    part.record_block(1)
    part.record_block(2)
    part.close()
    monkeypatch.setattr(resume_log, "_boot_id", lambda: boot_id)
    resumed = PartFile(tmp_path / "data")
    assert resumed.resume(1 << 20, None) == valid
    resumed.close()
