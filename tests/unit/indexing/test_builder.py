"""Indexes of real archives: which files are samples, their classes, what is refused and how it is said."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import subprocess
import tarfile
import threading
import zipfile
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from packtrain.errors import FailedError, UsageError
from packtrain.indexing import IndexRequest, build_index, builder, get_or_build_index, tar_scanner
from packtrain.indexing.braces import expand_braces
from packtrain.indexing.listing import parse_links
from packtrain.plan import Location
from packtrain.stream.index import INDEX_SUFFIX, LAYOUT_FILES, Index
from packtrain.transfer.api import ObjectInfo
from testbed.faults import Fault as Strike
from testbed.faults import FaultProxy
from testbed.http_server import HttpServer, ResponseFault


def tarred(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def indexed(*paths: Path, **options) -> Index:
    wish = IndexRequest([[Location(path.as_uri() + ("/" if path.is_dir() else ""))] for path in paths], str, **options)
    return build_index(wish, paths[0].with_suffix(".index"))


def labelled(index: Index) -> dict[str, str]:
    return {one.name: index.class_names[one.label] for one in map(index.sample, range(len(index)))}


@pytest.mark.parametrize(
    ("names", "classes"),
    [
        (["cat/1.jpg", "dog/1.jpg"], {"cat/1.jpg": "cat", "dog/1.jpg": "dog"}),
        (["./data/cat/1.jpg", "data/dog/1.jpg"], {"data/cat/1.jpg": "cat", "data/dog/1.jpg": "dog"}),
        (["a/train/cat/1.jpg"], {"a/train/cat/1.jpg": "cat"}),
        (["1.jpg", "2.jpg"], {"1.jpg": "", "2.jpg": ""}),
        (
            ["README", "data/labels.txt", "data/cat/1.jpg", "data/dog/1.jpg"],
            {"data/cat/1.jpg": "cat", "data/dog/1.jpg": "dog"},
        ),
        (["0.jpg", "cat/1.jpg", "dog/2.jpg"], {"0.jpg": "", "cat/1.jpg": "cat", "dog/2.jpg": "dog"}),
        (["train/cat/1.jpg", "val/cat/1.jpg"], {"train/cat/1.jpg": "train/cat", "val/cat/1.jpg": "val/cat"}),
        (["cat/1.jpg", "cat/._1.jpg", "cat/.DS_Store", "__MACOSX/cat/1.jpg"], {"cat/1.jpg": "cat"}),
    ],
)
def test_the_class_is_the_folder(tmp_path, names, classes):
    index = indexed(tarred(tmp_path / "a.tar", dict.fromkeys(names, b"x")))
    assert labelled(index) == classes
    assert index.class_names == tuple(sorted(set(classes.values())))
    assert index.n_skipped_files == len(names) - len(classes)


def test_only_what_is_below(tmp_path):
    path = tarred(tmp_path / "a.tar", {"train/cat/1": b"", "train/dog/1": b"", "val/cat/2": b""})
    index = indexed(path, prefix="train/")
    assert labelled(index) == {"train/cat/1": "cat", "train/dog/1": "dog"}


def shards(folder: Path, texts: list[list[str]]) -> list[Path]:
    """WebDataset: jpg, cls and json of each sample; `texts` are the classes of each shard."""
    paths = []
    for shard, labels in enumerate(texts):
        members = {}
        for number, label in enumerate(labels):
            key = f"sample{shard}{number}"
            members |= {f"{key}.jpg": os.urandom(700), f"{key}.cls": label.encode(), f"{key}.json": b"{}"}
        paths.append(tarred(folder / f"shard-{shard:03}.tar", members))
    return paths


def test_shards_of_a_webdataset(tmp_path):
    paths = shards(tmp_path, [["3", "0"], ["7"]])
    index = indexed(*paths)
    assert index.has_parts and index.extensions == ("cls", "jpg", "json")
    assert [index.class_names[label] for label in index.labels] == ["3", "0", "7"]
    assert index.labels.tolist() == [3, 0, 7]
    assert index.archive_ids.tolist() == [0, 0, 1]
    assert list(index.names()) == ["sample00", "sample01", "sample10"]
    for number in range(3):
        data = paths[index.archive_ids[number]].read_bytes()
        whole = data[index.offsets[number] : index.offsets[number] + index.sizes[number]]
        with tarfile.open(paths[index.archive_ids[number]]) as tar:
            for part in index.parts(number):
                extracted = tar.extractfile(f"{index.name(number)}.{part.extension}").read()
                assert data[part.offset : part.offset + part.size] == extracted
                assert extracted in whole


def test_classes_in_words(tmp_path):
    index = indexed(*shards(tmp_path, [["dog", "cat"], ["dog"]]))
    assert (index.class_names, index.labels.tolist()) == (("cat", "dog"), [1, 0, 1])


def test_dots_in_names_do_not_make_a_webdataset(tmp_path):
    members = {f"cat/img.{number:04}.png": b"x" for number in range(40)}
    assert len(indexed(tarred(tmp_path / "a.tar", members))) == 40
    assert len(indexed(shards(tmp_path, [["1", "2"]])[0], group_files=False)) == 6


@pytest.mark.parametrize("form", ["gnu", "oldgnu", "posix", "ustar", "v7"])
def test_archives_of_gnu_tar(tmp_path, form):
    folder = tmp_path / "data" / "cat"
    folder.mkdir(parents=True)
    long = "" if form in ("v7", "ustar") else "long" * 45
    for number, size in enumerate((0, 1, 511, 512, 513, 70_000)):
        (folder / f"{number}{long}.bin").write_bytes(os.urandom(size))
    os.link(folder / f"5{long}.bin", folder / "linked.bin")
    (folder / "symlink.bin").symlink_to("linked.bin")
    tar = tmp_path / "a.tar"
    subprocess.run(["tar", f"--format={form}", "-C", tmp_path / "data", "-cf", tar, "."], check=True)
    index, data = indexed(tar), tar.read_bytes()
    found = {one.name: data[one.offset : one.offset + one.size] for one in map(index.sample, range(len(index)))}
    assert found == {f"cat/{path.name}": path.read_bytes() for path in folder.iterdir() if not path.is_symlink()}


def test_sparse_files_are_refused_by_name(tmp_path):
    with open(tmp_path / "holes.bin", "wb") as file:
        file.truncate(10 << 20)
    subprocess.run(["tar", "--sparse", "-C", tmp_path, "-cf", tmp_path / "a.tar", "holes.bin"], check=True)
    with pytest.raises(FailedError, match=r"holes\.bin.*--sparse"):
        indexed(tmp_path / "a.tar")


PACKED = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": lambda data: b"\x28\xb5\x2f\xfd" + data}


@pytest.mark.parametrize("form", PACKED)
def test_compressed_archives_are_refused_whatever_their_name(tmp_path, form):
    plain = tarred(tmp_path / "plain.tar", {"a": b"x"}).read_bytes()
    (tmp_path / "a.tar").write_bytes(PACKED[form](plain))
    with pytest.raises(FailedError, match=r"a\.tar is compressed.*stage") as failure:
        indexed(tmp_path / "a.tar")
    assert failure.value.kind == "unsupported"


def test_compressed_tars_in_a_tar_are_refused_by_name(tmp_path):
    inner = gzip.compress(os.urandom(2000))
    with pytest.raises(FailedError, match=r"n01\.tar\.gz in .*a\.tar is compressed"):
        indexed(tarred(tmp_path / "a.tar", {"n01.tar.gz": inner}))


def test_compressed_members_of_a_zip_are_refused_by_name(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr("cat/1.jpg", "x" * 100)
        file.writestr("cat/2.jpg", "x" * 100, zipfile.ZIP_DEFLATED)
    with pytest.raises(FailedError, match=r"'cat/2\.jpg' in .*a\.zip is compressed"):
        indexed(tmp_path / "a.zip")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"<!DOCTYPE html><title>Log in</title>" + b" " * 600, "an HTML page came"),
        (b"\xff\xd8\xff" + b"x" * 600, "no tar and no zip"),
        (b"short", "no tar and no zip"),
        (b"", "the body is empty"),
        (bytes(10240), "has no files"),
        (b"PK\x03\x04" + b"x" * 600, "no directory at its end"),
    ],
)
def test_what_is_no_archive(tmp_path, data, said):
    (tmp_path / "a.tar").write_bytes(data)
    with pytest.raises(FailedError, match=said):
        indexed(tmp_path / "a.tar")


@pytest.mark.parametrize(
    ("given", "count", "first", "last"),
    [
        ("s3://b/t-{000..146}.tar", 147, "s3://b/t-000.tar", "s3://b/t-146.tar"),
        ("{8..11}", 4, "8", "11"),
        ("{3..1}", 3, "3", "1"),
        ("a{b,c}-{0..1}", 4, "ab-0", "ac-1"),
        ("https://x/{id}.tar", 1, "https://x/{id}.tar", "https://x/{id}.tar"),
        ("{id}-{1..2}", 2, "{id}-1", "{id}-2"),
    ],
)
def test_braces(given, count, first, last):
    found = expand_braces(given)
    assert (len(found), found[0], found[-1]) == (count, first, last)


def test_braces_without_end():
    with pytest.raises(UsageError, match="more than"):
        expand_braces("{0..999}{0..999}")


# Folders


def files_in(folder: Path) -> Path:
    for name in ("cat/1.jpg", "cat/2 ü#?.jpg", "dog/1.jpg"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode() * 9)
    return folder


def test_a_folder_of_this_machine(tmp_path):
    index = indexed(files_in(tmp_path / "data"))
    assert index.layout == LAYOUT_FILES and index.class_names == ("cat", "dog")
    assert Path(index.sample_url(2)[len("file://") :]).read_bytes() == b"dog/1.jpg" * 9
    assert index.sizes.tolist() == [81, 126, 81]


def test_a_folder_of_a_web_server_that_lists_it(tmp_path):
    handler = partial(SimpleHTTPRequestHandler, directory=str(files_in(tmp_path / "data")))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ref = Location(f"http://127.0.0.1:{server.server_address[1]}/")
        index = build_index(IndexRequest([[ref]], str), tmp_path / "index")
        server.shutdown()
    assert labelled(index) == {"cat/1.jpg": "cat", "cat/2 ü#?.jpg": "cat", "dog/1.jpg": "dog"}
    assert index.sizes.tolist() == [81, 126, 81]


def test_a_web_server_that_lists_nothing(tmp_path):
    with HttpServer(tmp_path) as origin, pytest.raises(FailedError):
        build_index(IndexRequest([[Location(f"{origin.url}/data/")]], str, retry_timeout_s=0.1), tmp_path / "index")


def test_links_that_lead_elsewhere_are_none_of_its_files():
    links = ("../", "/", "?C=M", "a/", "b%20c.jpg", "https://other.example/d/x", "/d/e.jpg", "f/g.jpg", "#top")
    page = "".join(f'<a href="{link}">' for link in links)
    assert parse_links(page, "https://data.example/d/") == ["a/", "b%20c.jpg", "e.jpg"]


def test_a_folder_of_tars_is_the_tars(tmp_path):
    folder = tmp_path / "shards"
    folder.mkdir()
    shards(folder, [["1"], ["0", "2"]])
    index = indexed(folder)
    assert index.labels.tolist() == [1, 0, 2] and len(index.archives) == 2


def test_folders_and_archives_do_not_mix(tmp_path):
    with pytest.raises(FailedError, match="not of both"):
        indexed(files_in(tmp_path / "data"), tarred(tmp_path / "a.tar", {"a": b"x"}))


# Walks that begin in the middle


def header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = size
    return info.tobuf(tarfile.USTAR_FORMAT)


@pytest.mark.parametrize("threads", [1, 2, 3, 5, 8, 13])
def test_a_header_inside_of_a_sample_misleads_nobody(tmp_path, monkeypatch, threads):
    """It claims bytes up to a true header: a walk that begins there finds true members, but not the one between."""
    monkeypatch.setattr(tar_scanner, "_MIN_REGION_BYTES", 512)
    monkeypatch.setattr(builder, "_MIN_THREADS", threads)
    monkeypatch.setattr(builder, "_MAX_THREADS", threads)
    false = bytes(512 * 60) + header("false", 512 * 5) + bytes(1024)  # those two blocks, and the next member's three
    members = {"cat/first": false, "cat/between": b"x" * 1024, "cat/3": b"y" * 700, "cat/4": b"z" * 3000}
    path = tarred(tmp_path / "a.tar", members)
    index, data = indexed(path), path.read_bytes()
    found = {one.name: data[one.offset : one.offset + one.size] for one in map(index.sample, range(len(index)))}
    assert found == members


# Over a network


@pytest.fixture
def large(tmp_path) -> Path:
    """Members so large that it pays to pass them over."""
    return tarred(tmp_path / "a.tar", {f"cat/{number}.bin": os.urandom(200_000) for number in range(40)})


def test_only_headers_are_read(tmp_path, large):
    with HttpServer(tmp_path) as origin:
        index = build_index(IndexRequest([[Location(f"{origin.url}/a.tar")]], str), tmp_path / "index")
        assert len(index) == 40
        assert origin.sent_bytes < large.stat().st_size / 10
        assert index.archives[0].etag


def test_a_server_without_ranges_is_said_to_be_one(tmp_path, large):
    with (
        HttpServer(tmp_path, faults=[ResponseFault(ignore_range=True)] * 100) as origin,
        pytest.raises(FailedError) as failure,
    ):
        build_index(IndexRequest([[Location(f"{origin.url}/a.tar")]], str), tmp_path / "index")
    assert (failure.value.kind, "whole files only" in str(failure.value)) == ("unsupported", True)


def test_faults_are_got_over(tmp_path, large, monkeypatch):
    """By several walks, one of which may get them all."""
    monkeypatch.setattr(tar_scanner, "_MIN_REGION_BYTES", 1 << 20)
    faults = [
        None,
        ResponseFault(status=503),
        None,
        ResponseFault(close_after_bytes=100),
        ResponseFault(status=404),
        None,
        ResponseFault(truncate_to_bytes=10),
    ]
    with HttpServer(tmp_path, faults=faults) as origin:
        index = build_index(IndexRequest([[Location(f"{origin.url}/a.tar")]], str), tmp_path / "index")
        assert origin.faults == []
    assert index.offsets.tolist() == indexed(large).offsets.tolist()


@pytest.mark.slow
def test_a_server_that_falls_silent_is_left_for_another(tmp_path, large):
    with (
        FaultProxy(tmp_path, [Strike("stall", response_offset=100, max_times=None)]) as silent,
        HttpServer(tmp_path) as other,
    ):
        refs = [Location(f"{silent.url}/a.tar"), Location(f"{other.url}/a.tar")]
        index = build_index(IndexRequest([refs], str), tmp_path / "index")
        assert len(index) == 40
    assert (index.archives[0].url, index.archives[0].mirrors) == (refs[0].url, (refs[1].url,))


def test_another_file_at_the_mirror_is_not_read(tmp_path, large):
    (tmp_path / "other").mkdir()
    tarred(tmp_path / "other" / "a.tar", {"x": b"y"})
    with HttpServer(tmp_path) as origin, HttpServer(tmp_path / "other") as mirror:
        index = build_index(
            IndexRequest([[Location(f"{origin.url}/a.tar"), Location(f"{mirror.url}/a.tar")]], str), tmp_path / "index"
        )
    assert len(index) == 40


def test_nothing_is_left_of_an_archive_that_is_missing(tmp_path):
    with HttpServer(tmp_path) as origin, pytest.raises(FailedError) as failure:
        build_index(IndexRequest([[Location(f"{origin.url}/none.tar")]], str, retry_timeout_s=0.2), tmp_path / "index")
    assert failure.value.kind == "object_missing"
    assert list(tmp_path.iterdir()) == []


def test_it_stops_when_told_though_the_server_is_silent(tmp_path, large):
    told = threading.Event()

    def stop() -> None:
        if told.is_set():
            raise FailedError("cancelled", "stopped by a person")

    with HttpServer(tmp_path, faults=[None] * 9 + [ResponseFault(stall_after_bytes=0)] * 99) as origin:
        threading.Thread(target=lambda: (origin.stall_started.wait(), told.set()), daemon=True).start()
        with pytest.raises(FailedError, match="stopped by a person"):
            build_index(
                IndexRequest([[Location(f"{origin.url}/a.tar")]], str, retry_timeout_s=1000),
                tmp_path / "index",
                check_cancelled=stop,
            )
    assert (tmp_path / ".index.part").exists()


def test_nothing_is_kept_of_an_archive_that_is_broken(tmp_path, large):
    with open(large, "r+b") as file:
        file.truncate(4_000_000)
    with pytest.raises(FailedError, match="it was cut"):
        indexed(large)
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar"]


# Again


def test_an_index_is_kept_until_its_archive_changes(tmp_path):
    wish, home = IndexRequest([[Location((tmp_path / "a.tar").as_uri())]], str), tmp_path / "home"
    tarred(tmp_path / "a.tar", {"cat/1": b"x"})
    assert [get_or_build_index(wish, home).origin for _ in range(2)] == ["made", "kept"]
    tarred(tmp_path / "a.tar", {"cat/1": b"x", "cat/2": b"y"})
    again = get_or_build_index(wish, home)
    assert (again.origin, len(again.index)) == ("made", 2)
    assert get_or_build_index(wish, home, rebuild=True).origin == "made"


def test_an_index_at_a_place_of_its_own_is_made_anew_when_the_archive_changed(tmp_path):
    wish, target = IndexRequest([[Location((tmp_path / "a.tar").as_uri())]], str), tmp_path / "mine"
    tarred(tmp_path / "a.tar", {"cat/1": b"x"})
    assert [get_or_build_index(wish, tmp_path, target).origin for _ in range(2)] == ["made", "kept"]
    below = replace(wish, prefix="cat/")
    assert [get_or_build_index(below, tmp_path, target).origin for _ in range(2)] == ["made", "kept"]
    assert get_or_build_index(wish, tmp_path, target).origin == "made"
    target.write_bytes(b"something else")
    assert get_or_build_index(wish, tmp_path, target).origin == "made"


def test_an_index_beside_the_data_is_used_and_bound_to_it(tmp_path):
    """Made where the data lie on a disk, used over the network."""
    www, home = tmp_path / "www", tmp_path / "home"
    www.mkdir()
    path = tarred(www / "a.tar", {f"cat/{number}": b"x" * number for number in range(20)})
    build_index(IndexRequest([[Location(path.as_uri())]], str), www / f"a.tar{INDEX_SUFFIX}")
    with HttpServer(www) as origin:
        wish = IndexRequest([[Location(f"{origin.url}/a.tar")]], str)
        first = get_or_build_index(wish, home)
        assert (first.origin, first.index.archives[0].url, len(first.index)) == ("shared", f"{origin.url}/a.tar", 20)
        assert first.index.archives[0].etag.startswith('"')
        assert get_or_build_index(wish, home).origin == "kept"
        tarred(path, {f"cat/{number}": b"y" * (20 - number) for number in range(20)})
        other = get_or_build_index(wish, home)
        assert (other.origin, sorted(other.index.sizes)) == ("made", list(range(1, 21)))


def test_what_lies_beside_the_data_and_is_no_index_is_passed_over(tmp_path):
    www, home = tmp_path / "www", tmp_path / "home"
    www.mkdir()
    tarred(www / "a.tar", {"cat/1": b"x"})
    (www / f"a.tar{INDEX_SUFFIX}").write_bytes(b"<html>not found, says a server that answers 200")
    with HttpServer(www) as origin:
        got = get_or_build_index(IndexRequest([[Location(f"{origin.url}/a.tar")]], str, retry_timeout_s=0), home)
    assert got.origin == "made"
    assert [path.name for path in home.iterdir()] == [got.index.path.name]


def test_a_changed_archive_is_noticed(tmp_path):
    archive = indexed(tarred(tmp_path / "a.tar", {"a": b"x"})).archives[0]
    same = ObjectInfo(archive.size, archive.etag)
    assert archive.describe_change(same) is None
    assert "bytes" in archive.describe_change(ObjectInfo(archive.size + 1))
    assert "ETag" in archive.describe_change(replace(same, etag="other"))
    dated = replace(archive, etag="", modified="Mon")
    assert "modified" in dated.describe_change(replace(same, last_modified="Tue"))
    assert dated.describe_change(replace(same, last_modified="Mon")) is None
