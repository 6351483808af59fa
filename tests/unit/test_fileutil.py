"""fileutil: atomic writes."""

import contextlib
import errno
import os
import stat

import pytest

from packtrain import fileutil
from packtrain.fileutil import atomic_write, atomic_writer, is_temporary_name, temporary_path


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("content", ["Zürich\n", b"\x00\xff"])
def test_replaces_the_file_and_leaves_nothing_else(tmp_path, content, durable):
    path = tmp_path / "record.json"
    path.write_text("old")
    atomic_write(path, content, durable=durable)
    assert path.read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert os.listdir(tmp_path) == ["record.json"]


def test_error_keeps_the_old_file(tmp_path):
    path = tmp_path / "record.json"
    path.write_text("old")
    with pytest.raises(RuntimeError), atomic_writer(path) as file:
        file.write(b"half of the new")
        raise RuntimeError
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["record.json"]


def test_failed_rename_leaves_no_temporary_file(tmp_path):
    (tmp_path / "target").mkdir()
    with pytest.raises(OSError, match="directory"):
        atomic_write(tmp_path / "target", "text")
    assert os.listdir(tmp_path) == ["target"]


def test_mode(tmp_path):
    atomic_write(tmp_path / "token", "secret", mode=0o600)
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600


def test_durable_write_syncs_content_before_the_name(tmp_path, monkeypatch):
    calls = []
    path = tmp_path / "record.json"
    monkeypatch.setattr(fileutil.os, "fsync", lambda fd: calls.append(path.exists()))
    atomic_write(path, "text", durable=True)
    assert calls == [False, True], "first the file under its temporary name, then the folder"


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EIO])
def test_file_system_that_cannot_sync_folders(tmp_path, monkeypatch, code):
    def fsync(fd):
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(code, "fsync")

    monkeypatch.setattr(fileutil.os, "fsync", fsync)
    with contextlib.nullcontext() if code == errno.EINVAL else pytest.raises(OSError):
        atomic_write(tmp_path / "record.json", "text", durable=True)
    assert (tmp_path / "record.json").read_text() == "text"


def test_long_names(tmp_path):
    path = tmp_path / ("x" * 255)
    atomic_write(path, "text")
    assert path.read_text() == "text"


@pytest.mark.parametrize(
    ("name", "temporary"), [(".a.tmp-1", True), ("x/.a.tmp-1", True), ("a.tmp-1", False), (".a", False)]
)
def test_temporary_names(name, temporary):
    assert is_temporary_name(name) is temporary


def test_temporary_path_is_recognized(tmp_path):
    assert is_temporary_name(str(temporary_path(tmp_path / "model.pt")))
    assert temporary_path(tmp_path / "model.pt") != temporary_path(tmp_path / "model.pt")
