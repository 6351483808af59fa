"""Links among the outputs become files or are reported; cycles end."""

from __future__ import annotations

import os

import pytest

from packtrain.agent.outputs.symlinks import resolve_links


@pytest.fixture
def sandbox(tmp_path):
    """A sandbox with an output folder and a working folder."""
    for folder in ("output", "work/deep"):
        (tmp_path / "sandbox" / folder).mkdir(parents=True)
    (tmp_path / "sandbox/work/model").write_text("weights")
    (tmp_path / "sandbox/work/deep/more").write_text("more")
    return tmp_path / "sandbox"


def read_files(folder):
    """Return all files with their contents; fails if there is anything but files and folders."""
    paths = [path for path in folder.rglob("*") if not path.is_dir()]
    assert all(path.is_file() and not path.is_symlink() for path in paths)
    return {path.relative_to(folder).as_posix(): path.read_text() for path in paths}


def test_external_link_becomes_its_target(sandbox):
    (sandbox / "output/absolute").symlink_to(sandbox / "work/model")
    (sandbox / "output/relative").symlink_to("../work/model")
    (sandbox / "output/folder").symlink_to(sandbox / "work")
    assert resolve_links(sandbox / "output") == []
    assert read_files(sandbox / "output") == {
        **dict.fromkeys(("absolute", "relative", "folder/model"), "weights"),
        "folder/deep/more": "more",
    }
    assert (sandbox / "output/absolute").samefile(sandbox / "work/model"), "a hard link, not a copy"


def test_internal_file_link_is_kept(sandbox):
    (sandbox / "output/epoch9").write_text("weights")
    (sandbox / "output/latest").symlink_to("epoch9")
    assert resolve_links(sandbox / "output") == []
    assert os.readlink(sandbox / "output/latest") == "epoch9"


def test_internal_folder_link_becomes_folder(sandbox):
    (sandbox / "output/run1/logs").mkdir(parents=True)
    (sandbox / "output/run1/logs/log").write_text("text")
    (sandbox / "output/latest").symlink_to("run1")
    assert resolve_links(sandbox / "output") == []
    assert read_files(sandbox / "output") == {"run1/logs/log": "text", "latest/logs/log": "text"}


def test_file_outside_the_sandbox_is_copied(sandbox, tmp_path):
    (tmp_path / "external").write_text("data")
    (sandbox / "output/data").symlink_to(tmp_path / "external")
    assert resolve_links(sandbox / "output") == []
    (sandbox / "output/data").write_text("changed")
    assert (tmp_path / "external").read_text() == "data"


def test_dangling_links_are_reported(sandbox):
    (sandbox / "output/broken").symlink_to("nowhere")
    (sandbox / "work/gone").symlink_to("/does/not/exist")
    (sandbox / "output/folder").symlink_to(sandbox / "work")
    assert sorted(resolve_links(sandbox / "output")) == [
        "the output broken is left out: it is a link to nowhere, which does not exist",
        "the output folder/gone is left out: it is a link to /does/not/exist, which does not exist",
    ]
    assert read_files(sandbox / "output") == {"folder/model": "weights", "folder/deep/more": "more"}


@pytest.mark.parametrize(
    ("links", "reported"),
    [
        ({"output/up": ".."}, "up"),
        ({"output/self": "."}, "self"),
        ({"output/a": "b", "output/b": "a"}, "a"),
        ({"output/work": "../work", "work/again": "."}, "work/again"),
        ({"output/work": "../work", "work/deep/top": "../.."}, "work/deep/top"),
    ],
)
def test_link_cycles(sandbox, links, reported):
    for link, target in links.items():
        (sandbox / link).symlink_to(target)
    messages = resolve_links(sandbox / "output")
    assert any(reported in message for message in messages)
    read_files(sandbox / "output")


def test_special_file_is_reported(sandbox):
    os.mkfifo(sandbox / "output/pipe")
    assert resolve_links(sandbox / "output") == ["the output pipe is left out: it is neither a file nor a folder"]
    assert read_files(sandbox / "output") == {}


def test_missing_folder(tmp_path):
    assert resolve_links(tmp_path / "none") == []
