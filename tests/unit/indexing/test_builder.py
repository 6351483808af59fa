"""Tests of building indexes: which files are samples, their classes, and errors."""

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
from packtrain.indexing import IndexRequest, build_index, get_or_build_index
from packtrain.indexing.archive_reader import ArchiveReader
from packtrain.indexing.braces import expand_braces
from packtrain.indexing.builder import BUILT, CACHED, PUBLISHED
from packtrain.indexing.listing import parse_links
from packtrain.indexing.scan_settings import ScanSettings
from packtrain.plan import Location
from packtrain.stream.index import INDEX_SUFFIX, LAYOUT_FILES, Index
from packtrain.stream.samples import StreamingSamples
from packtrain.transfer.api import ObjectInfo
from testbed.faults import Fault, FaultProxy
from testbed.http_server import HttpServer, ResponseFault
from tests.support.stream_indexes import make_archive


def write_tar(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def index_paths(*paths: Path, **options) -> Index:
    request = IndexRequest(
        [[Location(path.as_uri() + ("/" if path.is_dir() else ""))] for path in paths], str, **options
    )
    return build_index(request, paths[0].with_suffix(".index"))


def class_by_name(index: Index) -> dict[str, str]:
    return {sample.name: index.class_names[sample.label] for sample in map(index.sample, range(len(index)))}


def contents_by_name(index: Index, path: Path) -> dict[str, bytes]:
    data, samples = path.read_bytes(), map(index.sample, range(len(index)))
    return {sample.name: data[sample.offset : sample.offset + sample.size] for sample in samples}


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
def test_folder_is_the_class(tmp_path, names, classes):
    index = index_paths(write_tar(tmp_path / "a.tar", dict.fromkeys(names, b"x")))
    assert class_by_name(index) == classes
    assert index.class_names == tuple(sorted(set(classes.values())))
    assert index.n_skipped_files == len(names) - len(classes)


def test_prefix(tmp_path):
    path = write_tar(tmp_path / "a.tar", {"train/cat/1": b"", "train/dog/1": b"", "val/cat/2": b""})
    index = index_paths(path, prefix="train/")
    assert class_by_name(index) == {"train/cat/1": "cat", "train/dog/1": "dog"}


def write_shards(folder: Path, label_texts: list[list[str]]) -> list[Path]:
    """Write WebDataset shards: jpg, cls and json of each sample. `label_texts` are the labels of each shard."""
    paths = []
    for shard, labels in enumerate(label_texts):
        members = {}
        for number, label in enumerate(labels):
            key = f"sample{shard}{number}"
            members |= {f"{key}.jpg": os.urandom(700), f"{key}.cls": label.encode(), f"{key}.json": b"{}"}
        paths.append(write_tar(folder / f"shard-{shard:03}.tar", members))
    return paths


def test_webdataset_shards(tmp_path):
    paths = write_shards(tmp_path, [["3", "0"], ["7"]])
    index = index_paths(*paths)
    assert index.has_parts and index.extensions == ("cls", "jpg", "json")
    assert [index.class_names[label] for label in index.labels] == ["3", "0", "7"]
    assert index.labels.tolist() == [3, 0, 7]
    assert index.archive_ids.tolist() == [0, 0, 1]
    assert list(index.names()) == ["sample00", "sample01", "sample10"]
    for number in range(3):
        data = paths[index.archive_ids[number]].read_bytes()
        sample = data[index.offsets[number] : index.offsets[number] + index.sizes[number]]
        with tarfile.open(paths[index.archive_ids[number]]) as tar:
            for part in index.parts(number):
                extracted = tar.extractfile(f"{index.name(number)}.{part.extension}").read()
                assert data[part.offset : part.offset + part.size] == extracted
                assert extracted in sample


def test_text_labels(tmp_path):
    index = index_paths(*write_shards(tmp_path, [["dog", "cat"], ["dog"]]))
    assert (index.class_names, index.labels.tolist()) == (("cat", "dog"), [1, 0, 1])


def test_dots_in_names_are_not_extensions(tmp_path):
    members = {f"cat/img.{number:04}.png": b"x" for number in range(40)}
    assert len(index_paths(write_tar(tmp_path / "a.tar", members))) == 40
    assert len(index_paths(write_shards(tmp_path, [["1", "2"]])[0], group_files=False)) == 6


@pytest.mark.parametrize("tar_format", ["gnu", "oldgnu", "posix", "ustar", "v7"])
def test_formats_of_gnu_tar(tmp_path, tar_format):
    folder = tmp_path / "data" / "cat"
    folder.mkdir(parents=True)
    long = "" if tar_format in ("v7", "ustar") else "long" * 45
    for number, size in enumerate((0, 1, 511, 512, 513, 70_000)):
        (folder / f"{number}{long}.bin").write_bytes(os.urandom(size))
    os.link(folder / f"5{long}.bin", folder / "linked.bin")
    (folder / "symlink.bin").symlink_to("linked.bin")
    tar = tmp_path / "a.tar"
    subprocess.run(["tar", f"--format={tar_format}", "-C", tmp_path / "data", "-cf", tar, "."], check=True)
    contents = contents_by_name(index_paths(tar), tar)
    assert contents == {f"cat/{path.name}": path.read_bytes() for path in folder.iterdir() if not path.is_symlink()}


def test_sparse_files_are_rejected(tmp_path):
    with open(tmp_path / "holes.bin", "wb") as file:
        file.truncate(10 << 20)
    subprocess.run(["tar", "--sparse", "-C", tmp_path, "-cf", tmp_path / "a.tar", "holes.bin"], check=True)
    with pytest.raises(FailedError, match=r"holes\.bin.*--sparse"):
        index_paths(tmp_path / "a.tar")


COMPRESSORS = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda data: b"\x28\xb5\x2f\xfd" + data,
}


@pytest.mark.parametrize("compression", COMPRESSORS)
def test_compressed_archives_are_rejected(tmp_path, compression):
    plain = write_tar(tmp_path / "plain.tar", {"a": b"x"}).read_bytes()
    (tmp_path / "a.tar").write_bytes(COMPRESSORS[compression](plain))
    with pytest.raises(FailedError, match=r"a\.tar is compressed.*stage") as failure:
        index_paths(tmp_path / "a.tar")
    assert failure.value.kind == "unsupported"


def test_compressed_nested_tars_are_rejected(tmp_path):
    inner = gzip.compress(os.urandom(2000))
    with pytest.raises(FailedError, match=r"n01\.tar\.gz in .*a\.tar is compressed"):
        index_paths(write_tar(tmp_path / "a.tar", {"n01.tar.gz": inner}))


def test_compressed_zip_members_are_rejected(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr("cat/1.jpg", "x" * 100)
        file.writestr("cat/2.jpg", "x" * 100, zipfile.ZIP_DEFLATED)
    with pytest.raises(FailedError, match=r"'cat/2\.jpg' in .*a\.zip is compressed"):
        index_paths(tmp_path / "a.zip")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"<!DOCTYPE html><title>Log in</title>" + b" " * 600, "received an HTML page instead of a.tar"),
        (b"\xff\xd8\xff" + b"x" * 600, "neither a tar nor a zip"),
        (b"short", "neither a tar nor a zip"),
        (b"", "received an empty body instead of a.tar"),
        (bytes(10240), "has no files"),
        (b"PK\x03\x04" + b"x" * 600, "no directory at its end"),
    ],
)
def test_file_that_is_not_an_archive(tmp_path, data, message):
    (tmp_path / "a.tar").write_bytes(data)
    with pytest.raises(FailedError, match=message):
        index_paths(tmp_path / "a.tar")


@pytest.mark.parametrize(
    ("pattern", "count", "first", "last"),
    [
        ("s3://b/t-{000..146}.tar", 147, "s3://b/t-000.tar", "s3://b/t-146.tar"),
        ("{8..11}", 4, "8", "11"),
        ("{3..1}", 3, "3", "1"),
        ("a{b,c}-{0..1}", 4, "ab-0", "ac-1"),
        ("https://x/{id}.tar", 1, "https://x/{id}.tar", "https://x/{id}.tar"),
        ("{id}-{1..2}", 2, "{id}-1", "{id}-2"),
    ],
)
def test_braces(pattern, count, first, last):
    urls = expand_braces(pattern)
    assert (len(urls), urls[0], urls[-1]) == (count, first, last)


def test_too_many_urls_in_braces():
    with pytest.raises(UsageError, match="more than"):
        expand_braces("{0..999}{0..999}")


# Folders


def write_files(folder: Path) -> Path:
    for name in ("cat/1.jpg", "cat/2 ü#?.jpg", "dog/1.jpg"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode() * 9)
    return folder


def test_local_folder(tmp_path):
    index = index_paths(write_files(tmp_path / "data"))
    assert index.layout == LAYOUT_FILES and index.class_names == ("cat", "dog")
    assert Path(index.sample_url(2)[len("file://") :]).read_bytes() == b"dog/1.jpg" * 9
    assert index.sizes.tolist() == [81, 126, 81]


def test_web_server_with_listing(tmp_path):
    handler = partial(SimpleHTTPRequestHandler, directory=str(write_files(tmp_path / "data")))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        location = Location(f"http://127.0.0.1:{server.server_address[1]}/")
        index = build_index(IndexRequest([[location]], str), tmp_path / "index")
        server.shutdown()
    assert class_by_name(index) == {"cat/1.jpg": "cat", "cat/2 ü#?.jpg": "cat", "dog/1.jpg": "dog"}
    assert index.sizes.tolist() == [81, 126, 81]


def test_web_server_without_listing(tmp_path):
    with HttpServer(tmp_path) as origin, pytest.raises(FailedError):
        build_index(IndexRequest([[Location(f"{origin.url}/data/")]], str, retry_timeout_s=0.1), tmp_path / "index")


def test_links_to_other_folders_are_ignored():
    links = ("../", "/", "?C=M", "a/", "b%20c.jpg", "https://other.example/d/x", "/d/e.jpg", "f/g.jpg", "#top")
    page = "".join(f'<a href="{link}">' for link in links)
    assert parse_links(page, "https://data.example/d/") == ["a/", "b%20c.jpg", "e.jpg"]


def test_folder_of_tars(tmp_path):
    folder = tmp_path / "shards"
    folder.mkdir()
    write_shards(folder, [["1"], ["0", "2"]])
    index = index_paths(folder)
    assert index.labels.tolist() == [1, 0, 2] and len(index.archives) == 2


def test_folders_and_archives_cannot_be_mixed(tmp_path):
    with pytest.raises(FailedError, match="not both"):
        index_paths(write_files(tmp_path / "data"), write_tar(tmp_path / "a.tar", {"a": b"x"}))


# Walks that start in the middle


def tar_header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = size
    return info.tobuf(tarfile.USTAR_FORMAT)


@pytest.mark.parametrize("threads", [1, 2, 3, 5, 8, 13])
def test_header_inside_a_sample(tmp_path, threads):
    """A walk that starts at the false header finds true members later, but misses the one in between."""
    scan = ScanSettings(min_region_bytes=512, min_threads=threads, max_threads=threads)
    # The false member claims its two blocks and the three blocks of the next member.
    content = bytes(512 * 60) + tar_header("false", 512 * 5) + bytes(1024)
    members = {"cat/first": content, "cat/between": b"x" * 1024, "cat/3": b"y" * 700, "cat/4": b"z" * 3000}
    path = write_tar(tmp_path / "a.tar", members)
    assert contents_by_name(index_paths(path, scan=scan), path) == members


# Over a network


@pytest.fixture
def large_tar(tmp_path) -> Path:
    """A tar with members that are large enough to be skipped."""
    return write_tar(tmp_path / "a.tar", {f"cat/{number}.bin": os.urandom(200_000) for number in range(40)})


def test_only_headers_are_read(tmp_path, large_tar):
    with HttpServer(tmp_path) as origin:
        index = build_index(IndexRequest([[Location(f"{origin.url}/a.tar")]], str), tmp_path / "index")
        assert len(index) == 40
        assert origin.sent_bytes < large_tar.stat().st_size / 10
        assert index.archives[0].etag


def test_server_without_ranges(tmp_path, large_tar):
    with (
        HttpServer(tmp_path, faults=[ResponseFault(ignore_range=True)] * 100) as origin,
        pytest.raises(FailedError) as failure,
    ):
        build_index(IndexRequest([[Location(f"{origin.url}/a.tar")]], str), tmp_path / "index")
    assert (failure.value.kind, "only sends whole files" in str(failure.value)) == ("unsupported", True)


def test_faults_are_retried(tmp_path, large_tar):
    """Several walks run, and one of them may get all faults."""
    scan = ScanSettings(min_region_bytes=1 << 20)
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
        index = build_index(IndexRequest([[Location(f"{origin.url}/a.tar")]], str, scan=scan), tmp_path / "index")
        assert origin.faults == []
    assert index.offsets.tolist() == index_paths(large_tar).offsets.tolist()


@pytest.mark.slow
def test_stalled_server_is_replaced(tmp_path, large_tar):
    with (
        FaultProxy(tmp_path, [Fault("stall", response_offset=100, max_times=None)]) as stalled,
        HttpServer(tmp_path) as other,
    ):
        locations = [Location(f"{stalled.url}/a.tar"), Location(f"{other.url}/a.tar")]
        index = build_index(IndexRequest([locations], str), tmp_path / "index")
        assert len(index) == 40
    assert (index.archives[0].url, index.archives[0].mirrors) == (locations[0].url, (locations[1].url,))


def test_mirror_with_another_file_is_not_read(tmp_path, large_tar):
    (tmp_path / "other").mkdir()
    write_tar(tmp_path / "other" / "a.tar", {"x": b"y"})
    with HttpServer(tmp_path) as origin, HttpServer(tmp_path / "other") as mirror:
        index = build_index(
            IndexRequest([[Location(f"{origin.url}/a.tar"), Location(f"{mirror.url}/a.tar")]], str), tmp_path / "index"
        )
    assert len(index) == 40


def test_etag_of_a_mirror_is_not_stored(tmp_path):
    """The first URL fails while the index is built, and works during the training."""
    for name in ("first", "mirror"):
        (tmp_path / name).mkdir()
        make_archive(tmp_path / name, 20)
    with HttpServer(tmp_path / "first", headers={"ETag": '"one"'}) as first, HttpServer(tmp_path / "mirror") as mirror:
        first.faults[:] = [ResponseFault(status=503)] * 1000
        locations = [Location(f"{origin.url}/data.tar") for origin in (first, mirror)]
        index = build_index(IndexRequest([locations], str), tmp_path / "index")
        first.faults.clear()
        assert len(StreamingSamples(index).__getitems__(range(20))) == 20
        assert [request for request in first.requests if request.headers.get("range")]
    assert index.archives[0].etag == ""
    assert index.archives[0].mirrors == (f"{mirror.url}/data.tar",)


def test_empty_range_needs_no_server():
    assert ArchiveReader([Location("http://127.0.0.1:1/none.tar")], str, 1.0, lambda: None).read(5, 5) == b""


def test_missing_archive_leaves_no_files(tmp_path):
    with HttpServer(tmp_path) as origin, pytest.raises(FailedError) as failure:
        build_index(IndexRequest([[Location(f"{origin.url}/none.tar")]], str, retry_timeout_s=0.2), tmp_path / "index")
    assert failure.value.kind == "object_missing"
    assert list(tmp_path.iterdir()) == []


def test_cancel_while_the_server_stalls(tmp_path, large_tar):
    cancelled = threading.Event()

    def check_cancelled() -> None:
        if cancelled.is_set():
            raise FailedError("cancelled", "stopped by the user")

    with HttpServer(tmp_path, faults=[None] * 9 + [ResponseFault(stall_after_bytes=0)] * 99) as origin:
        threading.Thread(target=lambda: (origin.stall_started.wait(), cancelled.set()), daemon=True).start()
        with pytest.raises(FailedError, match="stopped by the user"):
            build_index(
                IndexRequest([[Location(f"{origin.url}/a.tar")]], str, retry_timeout_s=1000),
                tmp_path / "index",
                check_cancelled=check_cancelled,
            )
    assert (tmp_path / ".index.scan").exists()


def test_truncated_archive_leaves_no_files(tmp_path, large_tar):
    with open(large_tar, "r+b") as file:
        file.truncate(4_000_000)
    with pytest.raises(FailedError, match="is truncated"):
        index_paths(large_tar)
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar"]


# Existing indexes


def test_index_is_cached_until_the_archive_changes(tmp_path):
    request, cache_dir = IndexRequest([[Location((tmp_path / "a.tar").as_uri())]], str), tmp_path / "cache"
    write_tar(tmp_path / "a.tar", {"cat/1": b"x"})
    assert [get_or_build_index(request, cache_dir).origin for _ in range(2)] == [BUILT, CACHED]
    write_tar(tmp_path / "a.tar", {"cat/1": b"x", "cat/2": b"y"})
    changed = get_or_build_index(request, cache_dir)
    assert (changed.origin, len(changed.index)) == (BUILT, 2)
    assert get_or_build_index(request, cache_dir, rebuild=True).origin == BUILT


def test_index_at_a_path_is_rebuilt_when_the_request_changes(tmp_path):
    request, path = IndexRequest([[Location((tmp_path / "a.tar").as_uri())]], str), tmp_path / "mine"
    write_tar(tmp_path / "a.tar", {"cat/1": b"x"})
    assert [get_or_build_index(request, tmp_path, path).origin for _ in range(2)] == [BUILT, CACHED]
    with_prefix = replace(request, prefix="cat/")
    assert [get_or_build_index(with_prefix, tmp_path, path).origin for _ in range(2)] == [BUILT, CACHED]
    assert get_or_build_index(request, tmp_path, path).origin == BUILT
    path.write_bytes(b"something else")
    assert get_or_build_index(request, tmp_path, path).origin == BUILT


def test_published_index_is_used(tmp_path):
    """An index that was built on the server's disk is used over the network."""
    www, cache_dir = tmp_path / "www", tmp_path / "cache"
    www.mkdir()
    path = write_tar(www / "a.tar", {f"cat/{number}": b"x" * number for number in range(20)})
    build_index(IndexRequest([[Location(path.as_uri())]], str), www / f"a.tar{INDEX_SUFFIX}")
    with HttpServer(www) as origin:
        request = IndexRequest([[Location(f"{origin.url}/a.tar")]], str)
        first = get_or_build_index(request, cache_dir)
        assert (first.origin, first.index.archives[0].url, len(first.index)) == (PUBLISHED, f"{origin.url}/a.tar", 20)
        assert first.index.archives[0].etag.startswith('"')
        assert get_or_build_index(request, cache_dir).origin == CACHED
        write_tar(path, {f"cat/{number}": b"y" * (20 - number) for number in range(20)})
        other = get_or_build_index(request, cache_dir)
        assert (other.origin, sorted(other.index.sizes)) == (BUILT, list(range(1, 21)))


def test_invalid_published_index_is_ignored(tmp_path):
    www, cache_dir = tmp_path / "www", tmp_path / "cache"
    www.mkdir()
    write_tar(www / "a.tar", {"cat/1": b"x"})
    (www / f"a.tar{INDEX_SUFFIX}").write_bytes(b"<html>not found (a server that returns 200)")
    with HttpServer(www) as origin:
        request = IndexRequest([[Location(f"{origin.url}/a.tar")]], str, retry_timeout_s=0)
        result = get_or_build_index(request, cache_dir)
    assert result.origin == BUILT
    assert [path.name for path in cache_dir.iterdir()] == [result.index.path.name]


def test_changed_archive_is_described(tmp_path):
    archive = index_paths(write_tar(tmp_path / "a.tar", {"a": b"x"})).archives[0]
    same = ObjectInfo(archive.size, archive.etag)
    assert archive.describe_change(same) is None
    assert "bytes" in archive.describe_change(ObjectInfo(archive.size + 1))
    assert "ETag" in archive.describe_change(replace(same, etag="other"))
    dated = replace(archive, etag="", modified="Mon")
    assert "modified" in dated.describe_change(replace(same, last_modified="Tue"))
    assert dated.describe_change(replace(same, last_modified="Mon")) is None
