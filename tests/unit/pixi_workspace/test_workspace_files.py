"""Which files of a workspace jobs get, and their archive."""

import io
import os
import subprocess
import tarfile

import pytest

from packtrain.pixi_workspace import workspace_files
from packtrain.pixi_workspace.errors import PixiError
from packtrain.pixi_workspace.workspace_files import build_archive, collect_files

FILES = ("pixi.toml", "src/a.py", "src/__pycache__/a.pyc", ".pixi/envs/x", ".git-ignored", "results/model.pt", "b.txt")


@pytest.fixture
def folder(tmp_path):
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def test_files_that_are_not_hidden(folder):
    assert collect_files(folder, (), ()) == ("b.txt", "pixi.toml", "results/model.pt", "src/a.py")


def test_files_that_git_does_not_ignore(folder):
    (folder / ".gitignore").write_text("results\n")
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    subprocess.run(["git", "add", "b.txt"], cwd=folder, check=True)
    (folder / "b.txt").unlink()  # tracked, but gone
    assert collect_files(folder, (), ("results/model.pt",)) == ("pixi.toml", "results/model.pt", "src/a.py")


def test_patterns(folder):
    assert collect_files(folder, ("src", "*.txt"), ("pixi.toml", "gone.sh")) == ("b.txt", "pixi.toml", "src/a.py")
    with pytest.raises(PixiError, match=r"has no file 'data/\*'; correct `files`"):
        collect_files(folder, ("data/*",), ())


def test_files_are_too_large(folder, monkeypatch):
    monkeypatch.setattr(workspace_files, "MAX_BYTES", 30)
    with pytest.raises(PixiError) as caught:
        collect_files(folder, (), ())
    assert str(caught.value) == (
        f"the files of {folder} have 38 B, but at most 30 B go with each job; the largest are results/model.pt (16 B), "
        "pixi.toml (9 B), src/a.py (8 B); list what jobs need, for example `files: [src]`, and make data an input"
    )


def test_archive(folder):
    (folder / "src/a.py").chmod(0o755)
    names = collect_files(folder, (), ())
    first = build_archive(folder, names)
    os.utime(folder / "b.txt", (1, 1))
    assert build_archive(folder, names) == first
    with tarfile.open(fileobj=io.BytesIO(first)) as tar:
        assert {member.name: oct(member.mode) for member in tar} == {
            name: "0o755" if name == "src/a.py" else "0o644" for name in names
        }
        assert tar.extractfile("b.txt").read() == b"b.txt"
