"""Checksums that lie beside archives when they are indexed ride along in the index."""

from __future__ import annotations

from dataclasses import replace

import pytest

from packtrain.errors import FormatError, UsageError
from packtrain.indexing import Wish, build
from packtrain.plan import Ref
from packtrain.stream.index import rebound
from packtrain.stream.index_checksums import checksums_of
from packtrain.stream.samples import Samples, Settings
from packtrain.transfer.block_checksums import make_checksums, write_checksums
from testbed.http_server import Fault, Origin
from tests.support.stream_indexes import archive_of, content

NAMES = ("a.tar", "b.tar")


@pytest.fixture
def origin(tmp_path):
    (tmp_path / "www").mkdir()
    for number, name in enumerate(NAMES):
        archive_of(tmp_path / "www", 20 + number, name=name)
    with Origin(tmp_path / "www") as origin:
        yield origin


def put_beside(origin, name, block=4096):
    made = make_checksums(origin.folder / name, block)
    write_checksums(made, origin.folder / f"{name}.checksums.json")
    return made


def made(origin, target):
    return build(Wish([[Ref(f"{origin.url}/{name}")] for name in NAMES], str), target)


def test_each_archives_own(origin, tmp_path):
    sums = [put_beside(origin, "a.tar", 4096), put_beside(origin, "b.tar", 10_000)]
    index = made(origin, tmp_path / "index")
    assert checksums_of(index) == tuple(replace(one, whole=None, name="") for one in sums)
    elsewhere = rebound(index, tuple(replace(one, etag='"x"') for one in index.archives), tmp_path / "other")
    assert checksums_of(elsewhere) == checksums_of(index)
    assert [path.name for path in tmp_path.glob(".*")] == [], "what was brought is removed"


def test_a_wrong_byte_is_seen(origin, tmp_path):
    for name in NAMES:
        put_beside(origin, name)
    index = made(origin, tmp_path / "index")
    origin.faults[:] = [Fault(corrupt_at=600)]
    samples = Samples(index, settings=Settings(checksums=checksums_of(index)))
    assert samples[3][0] == content(3, 703)
    assert samples.counts.failures == 1


def test_a_position_fits_with_and_without_them(origin, tmp_path):
    without = made(origin, tmp_path / "without").mark
    for name in NAMES:
        put_beside(origin, name)
    assert made(origin, tmp_path / "with").mark == without


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
        checksums_of(index)


def test_digests_that_are_not_of_these_archives_are_refused(origin, tmp_path):
    for name in NAMES:
        put_beside(origin, name)
    index = made(origin, tmp_path / "index")
    longer = tuple(replace(one, size=one.size + 4096) for one in index.archives)
    with pytest.raises(FormatError, match="its checksums are not those of its archives"):
        checksums_of(rebound(index, longer, tmp_path / "other"))
