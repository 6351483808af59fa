"""Checksums that lie beside archives when they are indexed ride along in the index."""

from __future__ import annotations

from dataclasses import replace

import pytest

from packtrain.errors import FormatError, UsageError
from packtrain.indexing import IndexRequest, build_index
from packtrain.plan import Location
from packtrain.stream.index import write_relocated_index
from packtrain.stream.index_checksums import checksums_from_index
from packtrain.stream.samples import StreamingSamples, StreamSettings
from packtrain.transfer.block_checksums import make_checksums, write_checksums
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


def put_beside(origin, name, block=4096):
    made = make_checksums(origin.folder / name, block)
    write_checksums(made, origin.folder / f"{name}.checksums.json")
    return made


def made(origin, target):
    return build_index(IndexRequest([[Location(f"{origin.url}/{name}")] for name in NAMES], str), target)


def test_each_archives_own(origin, tmp_path):
    sums = [put_beside(origin, "a.tar", 4096), put_beside(origin, "b.tar", 10_000)]
    index = made(origin, tmp_path / "index")
    assert checksums_from_index(index) == tuple(replace(one, file_sha256=None, name="") for one in sums)
    elsewhere = write_relocated_index(
        index, tuple(replace(one, etag='"x"') for one in index.archives), tmp_path / "other"
    )
    assert checksums_from_index(elsewhere) == checksums_from_index(index)
    assert [path.name for path in tmp_path.glob(".*")] == [], "what was brought is removed"


def test_a_wrong_byte_is_seen(origin, tmp_path):
    for name in NAMES:
        put_beside(origin, name)
    index = made(origin, tmp_path / "index")
    origin.faults[:] = [ResponseFault(corrupt_offset=600)]
    samples = StreamingSamples(index, settings=StreamSettings(checksums=checksums_from_index(index)))
    assert samples[3][0] == random_content(3, 703)
    assert samples.stats.failures == 1


def test_a_position_fits_with_and_without_them(origin, tmp_path):
    without = made(origin, tmp_path / "without").samples_fingerprint
    for name in NAMES:
        put_beside(origin, name)
    assert made(origin, tmp_path / "with").samples_fingerprint == without


@pytest.mark.parametrize("wrong", ["missing", "of another", "broken"])
def test_without_those_of_one_archive_there_are_none(origin, tmp_path, wrong):
    for name in NAMES:
        put_beside(origin, name)
    beside = origin.folder / "b.tar.checksums.json"
    if wrong == "missing":
        beside.unlink()
    elif wrong == "broken":
        beside.write_text("{")
    else:
        beside.write_bytes((origin.folder / "a.tar.checksums.json").read_bytes())
        (origin.folder / "b.tar").write_bytes((origin.folder / "b.tar").read_bytes() + bytes(10240))
    index = made(origin, tmp_path / "index")
    assert len(index) == 41
    with pytest.raises(UsageError, match="has no checksums: put those of each archive beside it"):
        checksums_from_index(index)


def test_digests_that_are_not_of_these_archives_are_refused(origin, tmp_path):
    for name in NAMES:
        put_beside(origin, name)
    index = made(origin, tmp_path / "index")
    longer = tuple(replace(one, size=one.size + 4096) for one in index.archives)
    with pytest.raises(FormatError, match="its checksums are not those of its archives"):
        checksums_from_index(write_relocated_index(index, longer, tmp_path / "other"))
