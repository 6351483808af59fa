"""Detection of saved checkpoints: notices, stable files, and the staging folder."""

import json
import os
import threading
import time

import pytest

from packtrain.agent.checkpoints import detection
from packtrain.agent.checkpoints.detection import (
    SaveNotice,
    SaveNoticeReader,
    StableFiles,
    StagingDir,
    parse_save_notice,
)
from packtrain.errors import FailedError


@pytest.fixture
def output(tmp_path):
    folder = tmp_path / "output"
    folder.mkdir()
    return folder


@pytest.fixture
def staging(tmp_path, output):
    (tmp_path / "staging").mkdir()
    return StagingDir(output, tmp_path / "staging")


# Notices


INVALID_NOTICES = (
    "", "x", "[]", '{"path": "f"}', '{"step": 1}', '{"path": "", "step": 1}', '{"path": "f", "step": 1.5}',
    '{"path": "f", "step": true}', '{"path": "f", "step": -1}', '{"path": 3, "step": 1}',
    '{"path": "f", "step": 1, "epoch": "x"}', "[" * 100000,
)  # fmt: skip


@pytest.mark.parametrize("line", INVALID_NOTICES, ids=range(len(INVALID_NOTICES)))
def test_invalid_notice(line):
    assert parse_save_notice(line.encode()) is None


def test_reader_returns_complete_lines(tmp_path):
    path = tmp_path / "checkpoints.jsonl"
    reader = SaveNoticeReader(path)
    assert reader.read() == []
    with open(path, "ab", buffering=0) as file:
        file.write(b'{"path": "a", "step": 1}\nnonsense\n{"path": "b", "st')
        assert reader.read() == [SaveNotice(path="a", step=1, epoch=None)]
        file.write(b'ep": 2, "epoch": 1, "more": 0}\n')
        assert reader.read() == [SaveNotice(path="b", step=2, epoch=1)]
    assert reader.n_ignored == 1


def test_many_writers(tmp_path):
    """Each line is appended with one write."""
    path = tmp_path / "checkpoints.jsonl"
    for step in range(50):
        with open(path, "ab", buffering=0) as file:
            file.write(json.dumps({"path": "f" * 100, "step": step}).encode() + b"\n")
    assert [notice.step for notice in SaveNoticeReader(path).read()] == list(range(50))
    assert os.path.getsize(path) > 5000


# Staging


def test_noticed_file_is_linked(output, staging):
    """The link still has the old content after the program replaced the file."""
    (output / "c").write_text("first")
    snapshot = staging.stage_noticed(SaveNotice(str(output / "c"), step=7, epoch=2))
    assert (snapshot.names, snapshot.path, snapshot.step, snapshot.epoch) == (("c",), "c", 7, 2)
    assert (snapshot.folder / "c").stat().st_ino == (output / "c").stat().st_ino
    (output / "new").write_text("second")
    (output / "new").replace(output / "c")
    assert (snapshot.folder / "c").read_text() == "first"
    staging.remove(snapshot)
    assert not snapshot.folder.exists()


def test_file_replaced_all_the_time(output, staging):
    (output / "c").write_bytes(b"0")
    stop = threading.Event()

    def replace() -> None:
        while not stop.is_set():
            (output / ".c.tmp").write_bytes(b"1")
            (output / ".c.tmp").replace(output / "c")

    replacing = threading.Thread(target=replace)
    replacing.start()
    try:
        for _ in range(500):
            snapshot = staging.stage_noticed(SaveNotice("c", step=1, epoch=None))
            assert snapshot is not None
            staging.remove(snapshot)
    finally:
        stop.set()
        replacing.join()


def test_noticed_folder_is_staged_completely(output, staging):
    (output / "ckpt" / "deep").mkdir(parents=True)
    for name in ("ckpt/a", "ckpt/deep/b", "ckpt/.c.tmp-12"):
        (output / name).write_text(name)
    snapshot = staging.stage_noticed(SaveNotice("ckpt", step=1, epoch=None))
    assert (snapshot.names, snapshot.path) == (("ckpt/a", "ckpt/deep/b"), "ckpt")
    assert (snapshot.folder / "ckpt" / "deep" / "b").read_text() == "ckpt/deep/b"


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "nothing", ".", ""])
def test_missing_or_outside_path_is_not_staged(output, staging, tmp_path, path):
    (tmp_path / "secret").write_text("x")
    assert staging.stage_noticed(SaveNotice(path, step=1, epoch=None)) is None


def test_copy_without_hard_links(output, staging, monkeypatch):
    def refuse(*args):
        raise PermissionError(1, "no links here")

    monkeypatch.setattr(detection.os, "link", refuse)
    (output / "c").write_text("first")
    snapshot = staging.stage_noticed(SaveNotice("c", step=1, epoch=None))
    assert (snapshot.folder / "c").read_text() == "first"
    assert (snapshot.folder / "c").stat().st_ino != (output / "c").stat().st_ino


def test_full_disk_leaves_no_partial_copy(output, staging, tmp_path, monkeypatch):
    def fail(*args):
        raise FailedError("disk_full", "c cannot be copied")

    monkeypatch.setattr(detection, "clone_file", fail)
    (output / "c").write_text("first")
    with pytest.raises(FailedError, match="cannot be copied"):
        staging.stage_stable({"c": detection.file_version(output / "c")}, 1)
    assert list((tmp_path / "staging").iterdir()) == []


def test_stable_file_is_copied_and_compared(output, staging):
    (output / "c").write_text("first")
    version = detection.file_version(output / "c")
    snapshot = staging.stage_stable({"c": version}, 5)
    assert (snapshot.folder / "c").stat().st_ino != (output / "c").stat().st_ino
    (output / "c").write_text("another")
    assert staging.stage_stable({"c": version}, 6) is None, "the file changed since the scan"


# Stable files


def poll_names(stable_files):
    return sorted(stable_files.poll())


def test_files_are_new_after_two_equal_polls(output):
    stable_files = StableFiles(["ckpt-*.pt"], output, {})
    assert poll_names(stable_files) == []
    (output / "ckpt-1.pt").write_text("1")
    (output / "other.pt").write_text("1")
    (output / ".ckpt-2.pt.tmp-1").write_text("1")
    (output / "ckpt-0.pt").touch()
    assert poll_names(stable_files) == []
    versions = stable_files.poll()
    assert sorted(versions) == ["ckpt-1.pt"], "no other names, no empty files, no temporary files"
    stable_files.mark_taken(versions)
    assert poll_names(stable_files) == []
    (output / "ckpt-1.pt").write_text("again")
    assert poll_names(stable_files) == []
    (output / "ckpt-2.pt").write_text("2")
    assert poll_names(stable_files) == [], "one file still changes"
    assert poll_names(stable_files) == ["ckpt-1.pt", "ckpt-2.pt"]


def test_final_poll_skips_recent_files(output):
    stable_files = StableFiles(["*.pt"], output, {})
    for name in ("a.pt", "b.pt"):
        (output / name).write_text("1")
    os.utime(output / "a.pt", (time.time() - 100, time.time() - 100))
    assert sorted(stable_files.final_poll(50.0)) == ["a.pt"], "a killed program may have been writing b.pt"
    assert sorted(stable_files.final_poll(0.0)) == ["a.pt", "b.pt"]


@pytest.mark.parametrize("pattern", ["ckpt", "ckpt/", "ck*"])
def test_changed_folder_is_new_completely(output, pattern):
    """A generation with only the changed files could not be resumed from."""
    stable_files = StableFiles([pattern], output, {})
    for folder in ("ckpt", "ckpt-old"):
        (output / folder).mkdir()
        (output / folder / "config").write_text("once")
    stable_files.mark_taken(stable_files.final_poll(0.0))
    (output / "ckpt" / "model").write_text("1")
    assert poll_names(stable_files) == []
    assert poll_names(stable_files) == ["ckpt/config", "ckpt/model"], "and no files of the other folder"


def test_final_poll_skips_folder_with_recent_file(output):
    stable_files = StableFiles(["ckpt"], output, {})
    (output / "ckpt").mkdir()
    for name in ("config", "model"):
        (output / "ckpt" / name).write_text("1")
    os.utime(output / "ckpt" / "config", (time.time() - 100, time.time() - 100))
    assert stable_files.final_poll(50.0) == {}
    assert sorted(stable_files.final_poll(0.0)) == ["ckpt/config", "ckpt/model"]


def test_restored_files_are_not_new(output):
    (output / "a.pt").write_text("1")
    stable_files = StableFiles(["*.pt"], output, {"a.pt": detection.file_version(output / "a.pt")})
    assert poll_names(stable_files) == poll_names(stable_files) == []
    (output / "a.pt").write_text("22")
    assert poll_names(stable_files) == []
    assert poll_names(stable_files) == ["a.pt"]
