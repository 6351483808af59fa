"""Tests of block checksums that are published next to archives and stored in their index."""

from __future__ import annotations

from dataclasses import replace

import pytest

from packtrain.errors import FormatError, UsageError
from packtrain.indexing import IndexRequest, build_index
from packtrain.plan import Location
from packtrain.stream.index_checksums import checksums_from_index
from packtrain.stream.index_writer import write_relocated_index
from packtrain.stream.samples import StreamingSamples, StreamSettings
from packtrain.transfer.integrity.block_checksums import make_checksums, write_checksums
from testbed.http_server import HttpServer, ResponseFault
from tests.support.stream_indexes import make_archive, random_content

NAMES = ("a.tar", "b.tar")


@pytest.fixture
def origin(tmp_path):
    (tmp_path / "www").mkdir()
    for number, name in enumerate(NAMES):
        make_archive(tmp_path / "www", 20 + number, name=name)
    with HttpServer(tmp_path / "www") as origin:
        yield origin


def publish_checksums(origin, name, block_bytes=4096):
    checksums = make_checksums(origin.folder / name, block_bytes)
    write_checksums(checksums, origin.folder / f"{name}.checksums.json")
    return checksums


def make_index(origin, path):
    return build_index(IndexRequest([[Location(f"{origin.url}/{name}")] for name in NAMES], str), path)


def test_checksums_of_each_archive(origin, tmp_path):
    checksums = [publish_checksums(origin, "a.tar", 4096), publish_checksums(origin, "b.tar", 10_000)]
    index = make_index(origin, tmp_path / "index")
    assert checksums_from_index(index) == tuple(replace(item, file_sha256=None, name="") for item in checksums)
    archives = tuple(replace(archive, etag='"x"') for archive in index.archives)
    relocated = write_relocated_index(index, archives, tmp_path / "other")
    assert checksums_from_index(relocated) == checksums_from_index(index)
    assert [path.name for path in tmp_path.glob(".*")] == [], "temporary downloads are removed"


def test_wrong_byte_is_detected(origin, tmp_path):
    for name in NAMES:
        publish_checksums(origin, name)
    index = make_index(origin, tmp_path / "index")
    origin.faults[:] = [ResponseFault(corrupt_offset=600)]
    samples = StreamingSamples(index, settings=StreamSettings(checksums=checksums_from_index(index)))
    assert samples[3][0] == random_content(3, 703)
    assert samples.stats.failures == 1


def test_samples_fingerprint_ignores_checksums(origin, tmp_path):
    without = make_index(origin, tmp_path / "without").samples_fingerprint
    for name in NAMES:
        publish_checksums(origin, name)
    assert make_index(origin, tmp_path / "with").samples_fingerprint == without


@pytest.mark.parametrize("problem", ["missing", "other archive", "broken"])
def test_all_archives_need_checksums(origin, tmp_path, problem):
    for name in NAMES:
        publish_checksums(origin, name)
    checksums_file = origin.folder / "b.tar.checksums.json"
    if problem == "missing":
        checksums_file.unlink()
    elif problem == "broken":
        checksums_file.write_text("{")
    else:
        checksums_file.write_bytes((origin.folder / "a.tar.checksums.json").read_bytes())
        (origin.folder / "b.tar").write_bytes((origin.folder / "b.tar").read_bytes() + bytes(10240))
    index = make_index(origin, tmp_path / "index")
    assert len(index) == 41
    with pytest.raises(UsageError, match=r"has no checksums: put a file NAME.* next to each archive"):
        checksums_from_index(index)


def test_checksums_of_other_archives_are_rejected(origin, tmp_path):
    for name in NAMES:
        publish_checksums(origin, name)
    index = make_index(origin, tmp_path / "index")
    longer = tuple(replace(archive, size=archive.size + 4096) for archive in index.archives)
    with pytest.raises(FormatError, match="its checksums do not match its archives"):
        checksums_from_index(write_relocated_index(index, longer, tmp_path / "other"))
