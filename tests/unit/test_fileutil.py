"""fileutil: atomic and durable writes. tests/e2e/test_power_cut.py cuts the power."""

import contextlib
import errno
import os
import stat
import tempfile
from pathlib import Path

import pytest

from packtrain import fileutil
from packtrain.fileutil import (
    atomic_write,
    atomic_writer,
    durable_mkdir,
    durable_move,
    is_temporary_name,
    sync_tree,
    temporary_path,
)


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


def record_syncs(monkeypatch) -> list[str]:
    """The names of the files and folders that are synced from now on."""
    synced = []
    monkeypatch.setattr(
        fileutil.os, "fsync", lambda fd: synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))
    )
    return synced


def test_new_folders_are_synced_in_their_parents(tmp_path, monkeypatch):
    synced = record_syncs(monkeypatch)
    durable_mkdir(tmp_path / "a/b")
    durable_mkdir(tmp_path / "a/b")
    assert synced == [tmp_path.name, "a"]


def test_tree_is_synced_files_first(tmp_path, monkeypatch):
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/file").touch()
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "a/up").symlink_to("..")
    os.mkfifo(tmp_path / "pipe")
    synced = record_syncs(monkeypatch)
    sync_tree(tmp_path)
    assert (synced[:2], sorted(synced[2:])) == (["file", "file"], sorted(["a", "b", tmp_path.name]))


def test_file_that_is_removed_meanwhile(tmp_path, monkeypatch):
    """A program that runs in the background removes its temporary file."""
    for name in ("kept", "temporary"):
        (tmp_path / name).touch()
    real_open = os.open

    def open_and_remove(path, *args):
        (tmp_path / "temporary").unlink(missing_ok=True)
        return real_open(path, *args)

    monkeypatch.setattr(fileutil.os, "open", open_and_remove)
    sync_tree(tmp_path)
    with pytest.raises(FileNotFoundError):
        sync_tree(tmp_path / "missing")


@pytest.fixture(params=["same disk", "other disk"])
def target(tmp_path, request):
    with tempfile.TemporaryDirectory(dir=tmp_path if request.param == "same disk" else "/dev/shm") as folder:
        yield Path(folder)


def make_sources(folder: Path) -> dict[str, Path]:
    (folder / "source/logs").mkdir(parents=True)
    (folder / "source/model.pt").write_text("weights")
    (folder / "source/logs/run.sh").write_text("#!")
    (folder / "source/logs/run.sh").chmod(0o755)
    (folder / "source/latest").symlink_to("model.pt")
    return {name: folder / "source" / name for name in ("model.pt", "logs/run.sh", "latest")}


def test_move(tmp_path, target):
    sources = make_sources(tmp_path)
    (target / "new").mkdir()
    (target / "new/model.pt").write_text("old")
    for _ in range(2):
        durable_move({path: target / "new" / name for name, path in sources.items() if path.exists()})
    assert sorted(path.relative_to(target).as_posix() for path in target.rglob("*")) == [
        "new",
        "new/latest",
        "new/logs",
        "new/logs/run.sh",
        "new/model.pt",
    ]
    assert (target / "new/latest").read_text() == "weights"
    assert os.access(target / "new/logs/run.sh", os.X_OK)
    assert os.readlink(target / "new/latest") == "model.pt"
    assert not any(map(os.path.lexists, sources.values()))


def test_interrupted_move_is_repeated(tmp_path, target, monkeypatch):
    """A process was killed before it removed the sources."""
    sources = make_sources(tmp_path)
    targets = {path: target / name for name, path in sources.items()}
    with monkeypatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr(fileutil.Path, "unlink", lambda path, **options: (_ for _ in ()).throw(RuntimeError))
        durable_move(targets)
    durable_move(targets)
    assert sorted(os.listdir(target)) == ["latest", "logs", "model.pt"], "and no temporary files"


def test_failed_move_keeps_the_sources(tmp_path, target):
    sources = make_sources(tmp_path)
    (target / "latest").mkdir()
    with pytest.raises(OSError, match="directory"):
        durable_move({path: target / name for name, path in sources.items()})
    assert all(map(os.path.lexists, sources.values()))
    assert not [path for path in target.rglob("*") if is_temporary_name(path.name)]


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
