"""`packtrain index` and `packtrain preview`, as a person calls them."""

from __future__ import annotations

import io
import json
import tarfile
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner
from PIL import Image

from packtrain.cli.commands.data import index, preview
from packtrain.cli.commands.data.index import histogram, render_bar
from packtrain.cli.ui import output
from packtrain.cli.ui.contact_sheet import Thumbnail, choose_columns, render_contact_sheet
from packtrain.errors import PacktrainError, UsageError
from packtrain.stream.index import INDEX_SUFFIX


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    output.console.cache_clear()
    yield
    output.console.cache_clear()


def called(command, *args: str) -> str:
    result = CliRunner().invoke(command, args, catch_exceptions=False, standalone_mode=False)
    output.console.cache_clear()  # it writes to where the last call wrote
    return result.output


def jpeg(colour: str, size=(60, 40)) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, colour).save(buffer, "JPEG")
    return buffer.getvalue()


def tarred(path: str, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return Path(path)


@pytest.fixture
def flags() -> Path:
    colours = {"red": 3, "green": 2, "blue": 1}
    members = {f"{name}/{number}.jpg": jpeg(name) for name, count in colours.items() for number in range(count)}
    return tarred("flags.tar", {**members, "README": b"hello"})


def test_made_once_and_kept(flags):
    first, second = called(index.command, "flags.tar"), called(index.command, flags.absolute().as_uri())
    assert "flags.tar: 6 samples of 3 classes" in first and "made in" in first
    assert "left out, for they are no samples: 1 file" in first
    assert "kept from before" in second


def test_as_json_beside_the_data(flags):
    data = json.loads(called(index.command, "flags.tar", "-o", f"flags.tar{INDEX_SUFFIX}", "--show", "--json"))
    assert (data["samples"], data["classes"], data["how"], data["left_out"]) == (6, 3, "made", 1)
    assert data["class_counts"] == {"blue": 1, "green": 2, "red": 3}
    assert sum(row["samples"] for row in data["sizes"]) == 6
    assert data["path"] == f"flags.tar{INDEX_SUFFIX}" and Path(data["path"]).stat().st_size == data["index_bytes"]


def test_shown_in_the_terminal(flags):
    shown = called(index.command, "flags.tar", "--show")
    assert [name for name in ("blue", "green", "red") if name in shown] == ["blue", "green", "red"]
    assert "█" in shown and "sizes of samples" in shown


def test_an_index_is_shown_too(flags):
    called(index.command, "flags.tar", "-o", "my.packtrain-index")
    flags.unlink()
    assert "6 samples of 3 classes" in called(index.command, "my.packtrain-index", "--show")


def test_many_classes_are_shown_by_their_extremes():
    members = {f"class{label:03}/{number}.jpg": b"x" for label in range(40) for number in range(label + 1)}
    tarred("many.tar", members)
    shown = called(index.command, "many.tar", "--show")
    assert "class039" in shown and "class000" in shown and "class020" not in shown and "… 28 more" in shown


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("nowhere.tar",), "is no address"),
        (("flags.tar", "-o", "nowhere/x"), "there is no folder nowhere"),
        (("flags.tar", "flags.tar", "--mirror", "https://x.example/flags.tar"), "--mirror belongs to one archive"),
    ],
)
def test_what_cannot_be(flags, args, said):
    with pytest.raises(PacktrainError, match=said):
        called(index.command, *args)


def test_peek_draws_samples(flags):
    said = called(preview.command, "flags.tar", "-n", "4")
    assert "flags-peek.png: 4 samples of 6" in said
    with Image.open("flags-peek.png") as image:
        assert image.format == "PNG" and image.width > 300


def test_peek_shows_the_same_for_the_same_seed(flags):
    told = [called(preview.command, "flags.tar", "-n", "3", "--seed", seed, "--json") for seed in ("1", "1", "2")]
    names = [[one["name"] for one in json.loads(text)["samples"]] for text in told]
    assert names[0] == names[1] != names[2]


def test_peek_of_a_folder_and_of_a_webdataset(tmp_path):
    (tmp_path / "data" / "red").mkdir(parents=True)
    (tmp_path / "data" / "red" / "1.jpg").write_bytes(jpeg("red"))
    assert "1 sample of 1" in called(preview.command, "data", "-o", "a.png")
    (tmp_path / "tars").mkdir()
    tarred("tars/only.tar", {"a/1.jpg": jpeg("red")})
    assert "1 sample of 1" in called(preview.command, "tars/", "-o", "c.png")
    tarred("shard.tar", {"a.cls": b"3", "a.jpg": jpeg("red"), "b.cls": b"1", "b.jpg": jpeg("blue")})
    assert "2 samples of 2" in called(preview.command, "shard.tar", "-o", "b.png")


def test_what_is_no_image_is_said(flags):
    tarred("arrays.tar", {"a/1.npy": b"\x93NUMPY\x01\x00", "a/2.bin": b"\0\1\2"})
    with pytest.raises(UsageError, match=r"nothing to see: a/1\.npy is a NumPy array, no image; peek shows images"):
        called(preview.command, "arrays.tar")
    tarred("mixed.tar", {"a/1.jpg": jpeg("red"), "a/2.bin": b"\0\1\2"})
    assert "1 sample of 2; 1 other could not be shown (a/2.bin is no image" in called(preview.command, "mixed.tar")


@pytest.mark.parametrize("sizes", [[0], [5, 5], [0, 1, 1 << 40], [105_000, 106_000, 111_999], list(range(100))])
def test_every_sample_is_in_one_bar_of_the_histogram(sizes):
    rows = histogram(sizes)
    assert [count for _, _, count in rows] == [sum(low <= size < high for size in sizes) for low, high, _ in rows]
    assert sum(count for _, _, count in rows) == len(sizes)
    assert all(one[1] == other[0] for one, other in pairwise(rows))


def test_bars():
    assert (render_bar(0), len(render_bar(1)), render_bar(0.0001)) == ("", 32, "▏")


@pytest.mark.parametrize(("count", "columns"), [(1, 1), (2, 2), (4, 2), (12, 4), (16, 4), (17, 5), (100, 10)])
def test_rows_are_full_where_they_can_be(count, columns):
    assert choose_columns(count) == columns


def test_names_that_are_too_long_or_strange_stay_in_their_place():
    pictures = [Thumbnail("x" * 400, "\x00" * 300, Image.new("RGB", (9, 400)), ""), Thumbnail("", "", None, "y" * 999)]
    assert render_contact_sheet("t" * 999, pictures).width == render_contact_sheet("t", pictures).width
