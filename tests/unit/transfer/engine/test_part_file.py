"""The file of a fetch that has not ended."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from packtrain.transfer.engine import part_file, resume_log
from packtrain.transfer.engine.part_file import PartFile
from packtrain.transfer.engine.resume_log import ObjectIdentity

KNOWN = ObjectIdentity(5_000_000, None, None, 1 << 20)


def test_a_new_part_is_not_cut_to_nothing(tmp_path: Path, monkeypatch):
    """When such a file is closed, ext4 first writes all of it to the disk: half a second for 2 GB."""
    sizes: list[int] = []
    monkeypatch.setattr(part_file.os, "ftruncate", lambda file, size: sizes.append(size))
    for part in (PartFile(tmp_path / "sized"), PartFile(tmp_path / "unsized")):
        part.begin(KNOWN) if part.target.name == "sized" else part.begin_unsized()
        part.close()
    assert sizes == [KNOWN.size]


def test_what_another_object_left_is_gone(tmp_path: Path):
    (tmp_path / "data.part").write_bytes(b"old" * 1000)
    part = PartFile(tmp_path / "data")
    part.begin_unsized()
    part.write_at(0, memoryview(b"new"))
    part.finish()
    assert (tmp_path / "data").read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["data"]


@pytest.mark.parametrize(("now", "right"), [("this", {1, 2}), ("another", {1}), ("", {1})])
def test_blocks_that_nobody_looked_at_are_believed_until_the_machine_starts_anew(tmp_path, monkeypatch, now, right):
    """Block 2 was noted, and is lost: it reads as zeros. Where a machine does not tell its boots, none is believed."""
    monkeypatch.setattr(resume_log, "_boot_id", lambda: "this" if now else "")
    part = PartFile(tmp_path / "data")
    part.begin(KNOWN)
    part.write_at(1 << 20, memoryview(b"\1" * (1 << 20)))
    part.record_block(1)
    part.record_block(2)
    part.close()
    monkeypatch.setattr(resume_log, "_boot_id", lambda: now)
    again = PartFile(tmp_path / "data")
    assert again.resume(1 << 20, None) == right
    again.close()
