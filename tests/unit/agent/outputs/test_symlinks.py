"""Links among the outputs: a file, or a sentence; never silently missing, and never without end."""

from __future__ import annotations

import os

import pytest

from packtrain.agent.outputs.symlinks import resolve_links


@pytest.fixture
def box(tmp_path):
    """A sandbox with an output folder, and something beside it."""
    for folder in ("output", "work/deep"):
        (tmp_path / "box" / folder).mkdir(parents=True)
    (tmp_path / "box/work/model").write_text("weights")
    (tmp_path / "box/work/deep/more").write_text("more")
    return tmp_path / "box"


def files(folder):
    """All that is there, by name; fails if there is anything but files and folders."""
    paths = [path for path in folder.rglob("*") if not path.is_dir()]
    assert all(path.is_file() and not path.is_symlink() for path in paths)
    return {path.relative_to(folder).as_posix(): path.read_text() for path in paths}


def test_a_link_out_of_the_folder_becomes_what_it_shows(box):
    (box / "output/absolute").symlink_to(box / "work/model")
    (box / "output/relative").symlink_to("../work/model")
    (box / "output/folder").symlink_to(box / "work")
    assert resolve_links(box / "output") == []
    assert files(box / "output") == {
        **dict.fromkeys(("absolute", "relative", "folder/model"), "weights"),
        "folder/deep/more": "more",
    }
    assert (box / "output/absolute").samefile(box / "work/model"), "it costs no second copy"


def test_a_link_to_a_file_within_the_folder_stays_one(box):
    (box / "output/epoch9").write_text("weights")
    (box / "output/latest").symlink_to("epoch9")
    assert resolve_links(box / "output") == []
    assert os.readlink(box / "output/latest") == "epoch9"


def test_a_link_to_a_folder_within_the_folder_becomes_one(box):
    (box / "output/run1/logs").mkdir(parents=True)
    (box / "output/run1/logs/log").write_text("words")
    (box / "output/latest").symlink_to("run1")
    assert resolve_links(box / "output") == []
    assert files(box / "output") == {"run1/logs/log": "words", "latest/logs/log": "words"}


def test_a_file_of_somebody_else_is_copied(box, tmp_path):
    (tmp_path / "theirs").write_text("data")
    (box / "output/data").symlink_to(tmp_path / "theirs")
    assert resolve_links(box / "output") == []
    (box / "output/data").write_text("changed")
    assert (tmp_path / "theirs").read_text() == "data"


def test_a_link_to_nowhere_is_told(box):
    (box / "output/broken").symlink_to("nowhere")
    (box / "work/gone").symlink_to("/does/not/exist")
    (box / "output/folder").symlink_to(box / "work")
    assert sorted(resolve_links(box / "output")) == [
        "the output broken is left out: it is a link to nowhere, where there is no file",
        "the output folder/gone is left out: it is a link to /does/not/exist, where there is no file",
    ]
    assert files(box / "output") == {"folder/model": "weights", "folder/deep/more": "more"}


@pytest.mark.parametrize(
    ("links", "told"),
    [
        ({"output/up": ".."}, "up"),
        ({"output/self": "."}, "self"),
        ({"output/a": "b", "output/b": "a"}, "a"),
        ({"output/work": "../work", "work/again": "."}, "work/again"),
        ({"output/work": "../work", "work/deep/top": "../.."}, "work/deep/top"),
    ],
)
def test_links_in_a_circle_end(box, links, told):
    for link, to in links.items():
        (box / link).symlink_to(to)
    sentences = resolve_links(box / "output")
    assert any(told in sentence for sentence in sentences)
    files(box / "output")


def test_what_is_no_file_is_told(box):
    os.mkfifo(box / "output/pipe")
    assert resolve_links(box / "output") == ["the output pipe is left out: it is neither a file nor a folder"]
    assert files(box / "output") == {}


def test_a_folder_that_is_not_there_has_no_links(tmp_path):
    assert resolve_links(tmp_path / "none") == []
