"""Tests of the removal of a folder: everything in it goes, nothing outside is touched."""

import os
import subprocess
import sys

import pytest

from packtrain.agent.cleanup import remove_tree


def test_counts_freed_bytes(tmp_path):
    root = tmp_path / "root"
    (root / "a" / "b").mkdir(parents=True)
    (root / "one").write_bytes(b"x" * 1000)
    (root / "a" / "b" / "two").write_bytes(b"x" * 234)
    result = remove_tree(root)
    assert (result.files, result.bytes, result.problems) == (2, 1234, [])
    assert not root.exists()


def test_symlinks_are_not_followed(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("keep me")
    root = tmp_path / "root"
    root.mkdir()
    (root / "folder").symlink_to(outside)
    (root / "file").symlink_to(outside / "precious")
    (root / "nowhere").symlink_to("/does/not/exist")
    assert remove_tree(root).problems == []
    assert not root.exists()
    assert (outside / "precious").read_text() == "keep me"


def test_root_symlink_is_not_removed(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_text("x")
    (tmp_path / "root").symlink_to(tmp_path / "real")
    remove_tree(tmp_path / "root")
    assert (tmp_path / "real" / "file").exists()


def test_missing_root_is_not_a_problem(tmp_path):
    assert remove_tree(tmp_path / "absent").problems == []


def test_hard_link_frees_nothing(tmp_path):
    (tmp_path / "root").mkdir()
    (tmp_path / "outside").write_bytes(b"x" * 100)
    os.link(tmp_path / "outside", tmp_path / "root" / "same")
    assert remove_tree(tmp_path / "root").bytes == 0


def test_very_long_paths(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    folder_fd = os.open(root, os.O_RDONLY)
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=folder_fd)
        child_fd = os.open("d" * 200, os.O_RDONLY, dir_fd=folder_fd)
        os.close(folder_fd)
        folder_fd = child_fd
    os.close(folder_fd)
    assert remove_tree(root).problems == []
    assert not root.exists()


REMOVE = "import os; from pathlib import Path; from packtrain.agent.cleanup import remove_tree as r; "


def test_folders_without_permissions(tmp_path):
    """Runs as a user that is not root, because permissions do not apply to root."""
    root = tmp_path / "root"
    (root / "locked" / "inner").mkdir(parents=True)
    (root / "locked" / "inner" / "file").write_bytes(b"x" * 10)
    is_root = os.getuid() == 0
    _chown_tree(tmp_path, 65534 if is_root else os.getuid())
    (root / "locked" / "inner").chmod(0)
    (root / "locked").chmod(0o555)
    program = REMOVE + ("os.setuid(65534); " if is_root else "") + f"print(r(Path({str(root)!r})))"
    _make_accessible(tmp_path)
    process = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=_environ_with_sys_path()
    )
    assert "bytes=10, problems=[]" in process.stdout, process.stderr
    assert not root.exists()


def test_problems_are_returned(tmp_path):
    if os.getuid() != 0:
        pytest.skip("needs a folder of another user")
    root = tmp_path / "root"
    (root / "theirs").mkdir(parents=True)
    (root / "theirs" / "file").touch()
    _chown_tree(tmp_path, 65534)
    os.chown(root / "theirs", 0, 0)
    _make_accessible(tmp_path)
    program = REMOVE + f"os.setuid(65534); print(*r(Path({str(root)!r})).problems, sep='\\n')"
    process = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=_environ_with_sys_path()
    )
    assert f"{root}/theirs: " in process.stdout, process.stderr
    assert (root / "theirs" / "file").exists()


def _chown_tree(folder, user):
    for where, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.chown(os.path.join(where, name), user, user)
    os.chown(folder, user, user)


def _make_accessible(folder):
    for parent in folder.parents:
        if os.access(parent, os.W_OK) and parent.stat().st_uid == os.getuid() and "pytest" in str(parent):
            parent.chmod(0o755)


def _environ_with_sys_path():
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
