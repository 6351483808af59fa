"""The sandbox goes, whatever is in it; nothing outside is touched."""

import os
import subprocess
import sys

import pytest

from packtrain.agent.cleanup import remove_tree


def test_it_counts_what_it_frees(tmp_path):
    box = tmp_path / "box"
    (box / "a" / "b").mkdir(parents=True)
    (box / "one").write_bytes(b"x" * 1000)
    (box / "a" / "b" / "two").write_bytes(b"x" * 234)
    cleaned = remove_tree(box)
    assert (cleaned.files, cleaned.bytes, cleaned.problems) == (2, 1234, [])
    assert not box.exists()


def test_links_are_removed_and_not_followed(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("keep me")
    box = tmp_path / "box"
    box.mkdir()
    (box / "folder").symlink_to(outside)
    (box / "file").symlink_to(outside / "precious")
    (box / "nowhere").symlink_to("/does/not/exist")
    assert remove_tree(box).problems == []
    assert not box.exists()
    assert (outside / "precious").read_text() == "keep me"


def test_a_sandbox_that_is_a_link_is_left_alone(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_text("x")
    (tmp_path / "box").symlink_to(tmp_path / "real")
    remove_tree(tmp_path / "box")
    assert (tmp_path / "real" / "file").exists()


def test_an_absent_sandbox_is_no_problem(tmp_path):
    assert remove_tree(tmp_path / "absent").problems == []


def test_a_file_that_has_another_name_outside_frees_nothing(tmp_path):
    (tmp_path / "box").mkdir()
    (tmp_path / "kept").write_bytes(b"x" * 100)
    os.link(tmp_path / "kept", tmp_path / "box" / "same")
    assert remove_tree(tmp_path / "box").bytes == 0


def test_paths_longer_than_the_system_allows(tmp_path):
    box = tmp_path / "box"
    box.mkdir()
    here = os.open(box, os.O_RDONLY)
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=here)
        deeper = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(here)
    assert remove_tree(box).problems == []
    assert not box.exists()


REMOVE = "import os; from pathlib import Path; from packtrain.agent.cleanup import remove_tree as r; "


def test_folders_without_permissions_go_too(tmp_path):
    """As a user that is not root, for whom permissions mean something."""
    box = tmp_path / "box"
    (box / "locked" / "inner").mkdir(parents=True)
    (box / "locked" / "inner" / "file").write_bytes(b"x" * 10)
    nobody = os.getuid() == 0
    _give_away(tmp_path, 65534 if nobody else os.getuid())
    (box / "locked" / "inner").chmod(0)
    (box / "locked").chmod(0o555)
    program = REMOVE + ("os.setuid(65534); " if nobody else "") + f"print(r(Path({str(box)!r})))"
    _reachable(tmp_path)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=_paths())
    assert "bytes=10, problems=[]" in done.stdout, done.stderr
    assert not box.exists()


def test_what_cannot_go_is_told(tmp_path):
    if os.getuid() != 0:
        pytest.skip("needs a folder of another user")
    box = tmp_path / "box"
    (box / "theirs").mkdir(parents=True)
    (box / "theirs" / "file").touch()
    _give_away(tmp_path, 65534)
    os.chown(box / "theirs", 0, 0)
    _reachable(tmp_path)
    program = REMOVE + f"os.setuid(65534); print(*r(Path({str(box)!r})).problems, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=_paths())
    assert f"{box}/theirs: " in done.stdout, done.stderr
    assert (box / "theirs" / "file").exists()


def _give_away(folder, user):
    for where, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.chown(os.path.join(where, name), user, user)
    os.chown(folder, user, user)


def _reachable(folder):
    for parent in folder.parents:
        if os.access(parent, os.W_OK) and parent.stat().st_uid == os.getuid() and "pytest" in str(parent):
            parent.chmod(0o755)


def _paths():
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
