"""`packtrain index` and `packtrain preview`."""

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
from packtrain.data.contact_sheet import Thumbnail, choose_columns, render_contact_sheet
from packtrain.errors import PacktrainError, UsageError
from packtrain.indexing.builder import BUILT
from packtrain.stream.index import INDEX_SUFFIX


@pytest.fixture(autouse=True)
def workdir(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    output.console.cache_clear()
    yield
    output.console.cache_clear()


def invoke(command, *args: str) -> str:
    result = CliRunner().invoke(command, args, catch_exceptions=False, standalone_mode=False)
    output.console.cache_clear()  # it keeps the standard output it was created with
    return result.output


def make_jpeg(color: str, size=(60, 40)) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, color).save(buffer, "JPEG")
    return buffer.getvalue()


def write_tar(path: str, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return Path(path)


@pytest.fixture
def flags() -> Path:
    counts = {"red": 3, "green": 2, "blue": 1}
    members = {f"{name}/{number}.jpg": make_jpeg(name) for name, count in counts.items() for number in range(count)}
    return write_tar("flags.tar", {**members, "README": b"hello"})


def test_built_once(flags):
    first, second = invoke(index.command, "flags.tar"), invoke(index.command, flags.absolute().as_uri())
    assert "flags.tar: 6 samples of 3 classes" in first and "indexed in" in first
    assert "skipped 1 file outside of samples" in first
    assert "indexed before" in second


def test_json(flags):
    data = json.loads(invoke(index.command, "flags.tar", "-o", f"flags.tar{INDEX_SUFFIX}", "--show", "--json"))
    assert (data["samples"], data["classes"], data["origin"], data["n_skipped_files"]) == (6, 3, BUILT, 1)
    assert data["class_counts"] == {"blue": 1, "green": 2, "red": 3}
    assert sum(row["samples"] for row in data["sizes"]) == 6
    assert data["path"] == f"flags.tar{INDEX_SUFFIX}" and Path(data["path"]).stat().st_size == data["index_bytes"]


def test_details(flags):
    text = invoke(index.command, "flags.tar", "--show")
    assert [name for name in ("blue", "green", "red") if name in text] == ["blue", "green", "red"]
    assert "█" in text and "sample sizes" in text


def test_details_of_index_file(flags):
    invoke(index.command, "flags.tar", "-o", "my.packtrain-index")
    flags.unlink()
    assert "6 samples of 3 classes" in invoke(index.command, "my.packtrain-index", "--show")


def test_many_classes_are_abridged():
    members = {f"class{label:03}/{number}.jpg": b"x" for label in range(40) for number in range(label + 1)}
    write_tar("many.tar", members)
    text = invoke(index.command, "many.tar", "--show")
    assert "class039" in text and "class000" in text and "class020" not in text and "… 28 more" in text


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("nowhere.tar",), "is not a URL"),
        (("flags.tar", "-o", "nowhere/x"), "there is no folder nowhere"),
        (("flags.tar", "flags.tar", "--mirror", "https://x.example/flags.tar"), "--mirror applies to one archive"),
    ],
)
def test_bad_arguments(flags, args, message):
    with pytest.raises(PacktrainError, match=message):
        invoke(index.command, *args)


def test_preview(flags):
    text = invoke(preview.command, "flags.tar", "-n", "4")
    assert "flags-preview.png: 4 samples of 6" in text
    with Image.open("flags-preview.png") as image:
        assert image.format == "PNG" and image.width > 300


def test_preview_depends_on_seed(flags):
    outputs = [invoke(preview.command, "flags.tar", "-n", "3", "--seed", seed, "--json") for seed in ("1", "1", "2")]
    names = [[sample["name"] for sample in json.loads(text)["samples"]] for text in outputs]
    assert names[0] == names[1] != names[2]


def test_preview_of_folder_and_webdataset(tmp_path):
    (tmp_path / "data" / "red").mkdir(parents=True)
    (tmp_path / "data" / "red" / "1.jpg").write_bytes(make_jpeg("red"))
    assert "1 sample of 1" in invoke(preview.command, "data", "-o", "a.png")
    (tmp_path / "tars").mkdir()
    write_tar("tars/only.tar", {"a/1.jpg": make_jpeg("red")})
    assert "1 sample of 1" in invoke(preview.command, "tars/", "-o", "c.png")
    write_tar("shard.tar", {"a.cls": b"3", "a.jpg": make_jpeg("red"), "b.cls": b"1", "b.jpg": make_jpeg("blue")})
    assert "2 samples of 2" in invoke(preview.command, "shard.tar", "-o", "b.png")


def test_preview_without_images(flags):
    write_tar("arrays.tar", {"a/1.npy": b"\x93NUMPY\x01\x00", "a/2.bin": b"\0\1\2"})
    with pytest.raises(UsageError, match=r"none of the samples is an image: a/1\.npy is a NumPy array, not an image"):
        invoke(preview.command, "arrays.tar")
    write_tar("mixed.tar", {"a/1.jpg": make_jpeg("red"), "a/2.bin": b"\0\1\2"})
    assert "1 sample of 2; 1 other could not be decoded (a/2.bin is not an image" in invoke(
        preview.command, "mixed.tar"
    )


@pytest.mark.parametrize("sizes", [[0], [5, 5], [0, 1, 1 << 40], [105_000, 106_000, 111_999], list(range(100))])
def test_histogram_counts_every_sample_once(sizes):
    rows = histogram(sizes)
    assert [count for _, _, count in rows] == [sum(low <= size < high for size in sizes) for low, high, _ in rows]
    assert sum(count for _, _, count in rows) == len(sizes)
    assert all(left[1] == right[0] for left, right in pairwise(rows))


def test_render_bar():
    assert (render_bar(0), len(render_bar(1)), render_bar(0.0001)) == ("", 32, "▏")


@pytest.mark.parametrize(("count", "columns"), [(1, 1), (2, 2), (4, 2), (12, 4), (16, 4), (17, 5), (100, 10)])
def test_choose_columns(count, columns):
    assert choose_columns(count) == columns


def test_long_and_unprintable_names_fit():
    thumbnails = [
        Thumbnail("x" * 400, "\x00" * 300, Image.new("RGB", (9, 400)), ""),
        Thumbnail("", "", None, "y" * 999),
    ]
    assert render_contact_sheet("t" * 999, thumbnails).width == render_contact_sheet("t", thumbnails).width
