"""Noticing what a program saved: announcements, files that rest, and setting them aside."""

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
    is_temporary_name,
    parse_save_notice,
)
from packtrain.errors import FailedError


@pytest.fixture
def output(tmp_path):
    folder = tmp_path / "output"
    folder.mkdir()
    return folder


@pytest.fixture
def aside(tmp_path, output):
    (tmp_path / "aside").mkdir()
    return StagingDir(output, tmp_path / "aside")


# Announcements


NONE = (
    "", "x", "[]", '{"path": "f"}', '{"step": 1}', '{"path": "", "step": 1}', '{"path": "f", "step": 1.5}',
    '{"path": "f", "step": true}', '{"path": "f", "step": -1}', '{"path": 3, "step": 1}',
    '{"path": "f", "step": 1, "epoch": "x"}', "[" * 100000,
)  # fmt: skip


@pytest.mark.parametrize("line", NONE, ids=range(len(NONE)))
def test_what_is_no_announcement(line):
    assert parse_save_notice(line.encode()) is None


def test_announcements_are_read_line_by_line(tmp_path):
    path = tmp_path / "said"
    reader = SaveNoticeReader(path)
    assert reader.read() == []
    with open(path, "ab", buffering=0) as file:
        file.write(b'{"path": "a", "step": 1}\nnonsense\n{"path": "b", "st')
        assert reader.read() == [SaveNotice("a", 1, None)]
        file.write(b'ep": 2, "epoch": 1, "more": 0}\n')
        assert reader.read() == [SaveNotice("b", 2, 1)]
    assert reader.n_ignored == 1


# Set aside


def test_an_announced_file_is_linked_and_survives_its_replacement(output, aside):
    (output / "c").write_text("first")
    save = aside.stage_noticed(SaveNotice(str(output / "c"), 7, 2))
    assert (save.names, save.path, save.step, save.epoch) == (("c",), "c", 7, 2)
    assert (save.folder / "c").stat().st_ino == (output / "c").stat().st_ino
    (output / "new").write_text("second")
    (output / "new").replace(output / "c")
    assert (save.folder / "c").read_text() == "first"
    aside.remove(save)
    assert not save.folder.exists()


def test_a_file_that_is_replaced_all_the_time_is_always_there(output, aside):
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
            save = aside.stage_noticed(SaveNotice("c", 1, None))
            assert save is not None
            aside.remove(save)
    finally:
        stop.set()
        replacing.join()


def test_an_announced_folder_is_taken_as_a_whole(output, aside):
    (output / "ckpt" / "deep").mkdir(parents=True)
    for name in ("ckpt/a", "ckpt/deep/b", "ckpt/.c.tmp-12"):
        (output / name).write_text(name)
    save = aside.stage_noticed(SaveNotice("ckpt", 1, None))
    assert (save.names, save.path) == (("ckpt/a", "ckpt/deep/b"), "ckpt")
    assert (save.folder / "ckpt" / "deep" / "b").read_text() == "ckpt/deep/b"


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "nothing", ".", ""])
def test_what_is_not_there_or_not_below_the_output_is_not_taken(output, aside, tmp_path, path):
    (tmp_path / "secret").write_text("x")
    assert aside.stage_noticed(SaveNotice(path, 1, None)) is None


def test_where_links_are_impossible_it_is_copied(output, aside, monkeypatch):
    def refuse(*args):
        raise PermissionError(1, "no links here")

    monkeypatch.setattr(detection.os, "link", refuse)
    (output / "c").write_text("first")
    save = aside.stage_noticed(SaveNotice("c", 1, None))
    assert (save.folder / "c").read_text() == "first"
    assert (save.folder / "c").stat().st_ino != (output / "c").stat().st_ino


def test_a_full_disk_leaves_nothing_half(output, aside, tmp_path, monkeypatch):
    def full(*args):
        raise FailedError("disk_full", "c cannot be copied")

    monkeypatch.setattr(detection, "clone_file", full)
    (output / "c").write_text("first")
    with pytest.raises(FailedError, match="cannot be copied"):
        aside.stage_stable({"c": detection.file_version(output / "c")}, 1)
    assert list((tmp_path / "aside").iterdir()) == []


def test_what_nobody_announced_is_copied_and_compared(output, aside):
    (output / "c").write_text("first")
    version = detection.file_version(output / "c")
    save = aside.stage_stable({"c": version}, 5)
    assert (save.folder / "c").stat().st_ino != (output / "c").stat().st_ino
    (output / "c").write_text("another")
    assert aside.stage_stable({"c": version}, 6) is None, "it is not what was seen"


# Quiet


def look(quiet):
    return sorted(quiet.poll())


def test_files_are_new_when_nothing_changed_between_two_looks(output):
    quiet = StableFiles("ckpt-*.pt", output, {})
    assert look(quiet) == []
    (output / "ckpt-1.pt").write_text("1")
    (output / "other.pt").write_text("1")
    (output / ".ckpt-2.pt.tmp-1").write_text("1")
    (output / "ckpt-0.pt").touch()
    assert look(quiet) == []
    fresh = quiet.poll()
    assert sorted(fresh) == ["ckpt-1.pt"], "no other names, nothing empty, nothing that is being written"
    quiet.mark_taken(fresh)
    assert look(quiet) == []
    (output / "ckpt-1.pt").write_text("again")
    assert look(quiet) == []
    (output / "ckpt-2.pt").write_text("2")
    assert look(quiet) == [], "one of them still changes"
    assert look(quiet) == ["ckpt-1.pt", "ckpt-2.pt"]


def test_the_last_look_takes_what_was_not_touched_for_a_while(output):
    quiet = StableFiles("*.pt", output, {})
    for name in ("a.pt", "b.pt"):
        (output / name).write_text("1")
    os.utime(output / "a.pt", (time.time() - 100, time.time() - 100))
    assert sorted(quiet.final_poll(50.0)) == ["a.pt"], "the other may be half written: its program was killed"
    assert sorted(quiet.final_poll(0.0)) == ["a.pt", "b.pt"], "its program left in good order"


@pytest.mark.parametrize("pattern", ["ckpt", "ckpt/", "ck*"])
def test_of_a_folder_all_is_new_once_a_part_of_it_is(output, pattern):
    """Else a generation would hold the files that changed, and nobody could go on from it."""
    quiet = StableFiles(pattern, output, {})
    for folder in ("ckpt", "ckpt-old"):
        (output / folder).mkdir()
        (output / folder / "config").write_text("once")
    quiet.mark_taken(quiet.final_poll(0.0))
    (output / "ckpt" / "model").write_text("1")
    assert look(quiet) == []
    assert look(quiet) == ["ckpt/config", "ckpt/model"], "and no other folder's"


def test_of_a_folder_in_which_a_killed_program_was_writing_nothing_is_taken(output):
    quiet = StableFiles("ckpt", output, {})
    (output / "ckpt").mkdir()
    for name in ("config", "model"):
        (output / "ckpt" / name).write_text("1")
    os.utime(output / "ckpt" / "config", (time.time() - 100, time.time() - 100))
    assert quiet.final_poll(50.0) == {}
    assert sorted(quiet.final_poll(0.0)) == ["ckpt/config", "ckpt/model"]


def test_what_was_restored_is_not_new(output):
    (output / "a.pt").write_text("1")
    quiet = StableFiles("*.pt", output, {"a.pt": detection.file_version(output / "a.pt")})
    assert look(quiet) == look(quiet) == []
    (output / "a.pt").write_text("22")
    assert look(quiet) == []
    assert look(quiet) == ["a.pt"]


@pytest.mark.parametrize(
    ("name", "temporary"), [(".a.tmp-1", True), ("x/.a.tmp-1", True), ("a.tmp-1", False), (".a", False)]
)
def test_temporary_names(name, temporary):
    assert is_temporary_name(name) is temporary


def test_lines_of_many_writers_stay_whole(tmp_path):
    """O_APPEND, one write a line."""
    path = tmp_path / "said"
    for step in range(50):
        with open(path, "ab", buffering=0) as file:
            file.write(json.dumps({"path": "f" * 100, "step": step}).encode() + b"\n")
    assert [one.step for one in SaveNoticeReader(path).read()] == list(range(50))
    assert os.path.getsize(path) > 5000
