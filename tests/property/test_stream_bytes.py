"""Property: over HTTP, each sample has its own bytes and comes once, for any sizes and settings."""

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
from packtrain.transfer.integrity.block_checksums import make_checksums
from testbed.http_server import HttpServer, ResponseFault
from tests.support.stream_indexes import random_content

pytestmark = pytest.mark.slow
FAULTS = [None, ResponseFault(close_after_bytes=100), ResponseFault(truncate_to_bytes=50), ResponseFault(status=503)]


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    with HttpServer(tmp_path_factory.mktemp("www")) as origin:
        yield origin


def write_tar(path: Path, contents: list[bytes]) -> None:
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for number, data in enumerate(contents):
            info = tarfile.TarInfo(f"{number:03}.bin")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def read_in_two_runs(samples: StreamingSamples, config: PartitionConfig, seed: int, n_first: int) -> list[bytes]:
    """Read like a worker that is killed after `n_first` samples, and another one that resumes."""
    order = Cursor(samples.index, config, seed).partition().worker_order(0, 0)
    items = samples.iter_samples(order, shuffle_window=config.shuffle_window)
    first = list(islice(items, n_first))
    items.close()
    rest = samples.iter_samples(order.skip(len(first)), shuffle_window=config.shuffle_window)
    return [data for data, _ in [*first, *rest]]


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.one_of(st.just(0), st.integers(0, 5000)), min_size=1, max_size=30).filter(any),
    read_bytes=st.sampled_from([1, 700, 4000, 1 << 20]),
    shuffle_window=st.sampled_from([1, 3, 50]),
    prefetch_bytes=st.sampled_from([1, 3000, 1 << 20]),
    block_bytes=st.sampled_from([None, 512, 3000]),
    cache_limit_bytes=st.sampled_from([0, 4000, 1 << 20]),
    seed=st.integers(0, 2**30),
    n_first=st.integers(0, 30),
    faults=st.lists(st.sampled_from(FAULTS), max_size=1),
)
def test_each_sample_has_its_own_bytes(
    origin, sizes, read_bytes, shuffle_window, prefetch_bytes, block_bytes, cache_limit_bytes, seed, n_first, faults
):
    contents = [random_content(number, size) for number, size in enumerate(sizes)]
    archive = origin.folder / "data.tar"
    write_tar(archive, contents)
    with tempfile.TemporaryDirectory() as folder:
        index_path, cache_dir = Path(folder, "index"), Path(folder, "cache")
        index = build_index(IndexRequest([[Location(f"{origin.url}/data.tar")]], str), index_path)
        checksums = (make_checksums(archive, block_bytes),) if block_bytes else ()
        samples = StreamingSamples(
            index,
            settings=StreamSettings(
                prefetch_bytes=prefetch_bytes,
                checksums=checksums,
                cache_dir=cache_dir,
                cache_limit_bytes=cache_limit_bytes,
                timeout_s=120,
            ),
        )
        origin.faults[:] = faults
        config = PartitionConfig(read_bytes=read_bytes, shuffle_window=shuffle_window)
        numbers = list(Cursor(index, config, seed).partition().worker_order(0, 0).sample_numbers())
        for _ in range(2):  # the second time partly from the cache
            assert read_in_two_runs(samples, config, seed, n_first) == [contents[number] for number in numbers]
        origin.faults.clear()
    assert sorted(numbers) == list(range(len(sizes)))
