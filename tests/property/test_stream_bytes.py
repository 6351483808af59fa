"""Whatever the sizes of samples and however they are read, over http each has its own bytes, and each comes once."""

from __future__ import annotations

import io
import tarfile
import tempfile
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packtrain.indexing import IndexRequest, build_index
from packtrain.plan import Location
from packtrain.stream.cursor import Cursor
from packtrain.stream.samples import StreamingSamples, StreamSettings
from packtrain.stream.shuffle import PartitionConfig
from packtrain.transfer.block_checksums import make_checksums
from testbed.http_server import HttpServer, ResponseFault
from tests.support.stream_indexes import random_content

pytestmark = pytest.mark.slow
FAULTS = [None, ResponseFault(close_after_bytes=100), ResponseFault(truncate_to_bytes=50), ResponseFault(status=503)]


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    with HttpServer(tmp_path_factory.mktemp("www")) as origin:
        yield origin


def tarred(path: Path, contents: list[bytes]) -> None:
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for number, data in enumerate(contents):
            info = tarfile.TarInfo(f"{number:03}.bin")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def in_two_goes(samples: StreamingSamples, split: PartitionConfig, seed: int, first: int) -> list[bytes]:
    """As a worker that is killed after so many samples, and the one that goes on."""
    stream = Cursor(samples.index, split, seed).partition().worker_order(0, 0)
    begun = samples.iter_samples(stream, shuffle_window=split.shuffle_window)
    found = list(islice(begun, first))
    begun.close()
    return [
        data
        for data, _ in [*found, *samples.iter_samples(stream.skip(len(found)), shuffle_window=split.shuffle_window)]
    ]


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.one_of(st.just(0), st.integers(0, 5000)), min_size=1, max_size=30).filter(any),
    span=st.sampled_from([1, 700, 4000, 1 << 20]),
    pool=st.sampled_from([1, 3, 50]),
    memory=st.sampled_from([1, 3000, 1 << 20]),
    block=st.sampled_from([None, 512, 3000]),
    keep=st.sampled_from([0, 4000, 1 << 20]),
    seed=st.integers(0, 2**30),
    first=st.integers(0, 30),
    faults=st.lists(st.sampled_from(FAULTS), max_size=1),
)
def test_each_sample_has_its_own_bytes(origin, sizes, span, pool, memory, block, keep, seed, first, faults):
    contents = [random_content(number, size) for number, size in enumerate(sizes)]
    archive = origin.folder / "data.tar"
    tarred(archive, contents)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        index = build_index(IndexRequest([[Location(f"{origin.url}/data.tar")]], str), home / "index")
        sums = (make_checksums(archive, block),) if block else ()
        samples = StreamingSamples(
            index,
            settings=StreamSettings(
                prefetch_bytes=memory, checksums=sums, cache_dir=home / "keep", cache_limit_bytes=keep, timeout_s=120
            ),
        )
        origin.faults[:] = faults
        split = PartitionConfig(read_bytes=span, shuffle_window=pool)
        order = list(Cursor(index, split, seed).partition().worker_order(0, 0).sample_numbers())
        for _ in range(2):  # the second time partly from the disk
            assert in_two_goes(samples, split, seed, first) == [contents[number] for number in order]
        origin.faults.clear()
    assert sorted(order) == list(range(len(sizes)))
