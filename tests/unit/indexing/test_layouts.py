"""Tests of reading all layouts of an index: several archives, folders of files, samples with several parts."""

from __future__ import annotations

import tarfile

import pytest

from packtrain.indexing import IndexRequest, build_index
from packtrain.plan import Location
from packtrain.stream.cursor import Cursor
from packtrain.stream.samples import StreamingSamples, StreamSettings
from packtrain.stream.shuffle import PartitionConfig
from testbed.http_server import HttpServer
from tests.support.nested_archives import add_member
from tests.support.stream_indexes import random_content


@pytest.fixture
def shards(tmp_path):
    """Four WebDataset shards with five samples each."""
    for shard in range(4):
        with tarfile.open(tmp_path / f"s-{shard}.tar", "w") as tar:
            for number in range(5 * shard, 5 * shard + 5):
                add_member(tar, f"{number:03}.jpg", random_content(number, 900 + number))
                add_member(tar, f"{number:03}.cls", str(number % 3).encode())
    return tmp_path


def read_epoch(samples):
    """Return the numbers of all samples and the samples, in order."""
    config = PartitionConfig(read_bytes=4000, shuffle_window=2)
    order = Cursor(samples.index, config, seed=1).partition().worker_order(0, 0)
    return list(order.sample_numbers()), list(samples.iter_samples(order, shuffle_window=2))


def test_several_archives_with_parts(shards):
    with HttpServer(shards) as origin:
        index = build_index(
            IndexRequest([[Location(f"{origin.url}/s-{shard}.tar")] for shard in range(4)], str), shards / "index"
        )
        numbers, items = read_epoch(StreamingSamples(index))
    assert sorted(numbers) == list(range(20))
    for number, (parts, label) in zip(numbers, items, strict=True):
        assert parts == {"jpg": random_content(number, 900 + number), "cls": str(number % 3).encode()}
        assert label == number % 3


def test_one_source_for_several_archives(shards):
    """The other archives are expected in the same folder."""
    index = build_index(
        IndexRequest([[Location((shards / f"s-{shard}.tar").as_uri())] for shard in range(4)], str), shards / "index"
    )
    with HttpServer(shards) as origin:
        settings = StreamSettings((Location(f"{origin.url}/s-0.tar"),))
        assert len(read_epoch(StreamingSamples(index, settings=settings))[1]) == 20
        assert {request.path for request in origin.requests} == {f"/s-{shard}.tar" for shard in range(4)}


def test_folder_of_files(tmp_path):
    for number in range(12):
        file = tmp_path / f"data/class{number % 2}" / f"{number:02}.bin"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(random_content(number, 50 + number))
    index = build_index(IndexRequest([[Location((tmp_path / "data").as_uri() + "/")]], str), tmp_path / "index")
    settings = StreamSettings(cache_dir=tmp_path / "cache", cache_limit_bytes=10_000)
    for _ in range(2):
        numbers, items = read_epoch(StreamingSamples(index, settings=settings))
        names = [index.name(number) for number in numbers]
        assert [data for data, _ in items] == [(tmp_path / "data" / name).read_bytes() for name in names]
        assert [index.class_names[label] for _, label in items] == [name.split("/")[0] for name in names]
    cached = StreamingSamples(index, settings=settings)
    (tmp_path / "data").rename(tmp_path / "gone")
    assert len(read_epoch(cached)[1]) == 12, "all samples are cached"
