"""Whatever an index may describe can be read: several archives, files on their own, samples of several parts."""

from __future__ import annotations

import io
import tarfile

import pytest

from packtrain.indexing import IndexRequest, build_index
from packtrain.plan import Location
from packtrain.stream.cursor import Cursor
from packtrain.stream.samples import StreamingSamples, StreamSettings
from packtrain.stream.shuffle import PartitionConfig
from testbed.http_server import HttpServer
from tests.support.stream_indexes import random_content


def _add(tar, name, data):
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


@pytest.fixture
def shards(tmp_path):
    """Four WebDataset shards of five samples each."""
    for shard in range(4):
        with tarfile.open(tmp_path / f"s-{shard}.tar", "w") as tar:
            for number in range(5 * shard, 5 * shard + 5):
                _add(tar, f"{number:03}.jpg", random_content(number, 900 + number))
                _add(tar, f"{number:03}.cls", str(number % 3).encode())
    return tmp_path


def _all(samples):
    stream = (
        Cursor(samples.index, PartitionConfig(read_bytes=4000, shuffle_window=2), seed=1).partition().worker_order(0, 0)
    )
    return list(stream.sample_numbers()), list(samples.iter_samples(stream, shuffle_window=2))


def test_several_archives_with_samples_of_several_parts(shards):
    with HttpServer(shards) as origin:
        index = build_index(
            IndexRequest([[Location(f"{origin.url}/s-{shard}.tar")] for shard in range(4)], str), shards / "index"
        )
        numbers, given = _all(StreamingSamples(index))
    assert sorted(numbers) == list(range(20))
    for at, number in enumerate(numbers):
        parts, label = given[at]
        assert parts == {"jpg": random_content(number, 900 + number), "cls": str(number % 3).encode()}
        assert label == number % 3


def test_other_places_of_several_archives_are_named_by_the_first(shards):
    index = build_index(
        IndexRequest([[Location((shards / f"s-{shard}.tar").as_uri())] for shard in range(4)], str), shards / "index"
    )
    with HttpServer(shards) as origin:
        given = _all(StreamingSamples(index, settings=StreamSettings((Location(f"{origin.url}/s-0.tar"),))))[1]
        assert len(given) == 20
        assert {seen.path for seen in origin.requests} == {f"/s-{shard}.tar" for shard in range(4)}


def test_a_folder_of_files(tmp_path):
    for number in range(12):
        file = tmp_path / f"data/class{number % 2}" / f"{number:02}.bin"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(random_content(number, 50 + number))
    index = build_index(IndexRequest([[Location((tmp_path / "data").as_uri() + "/")]], str), tmp_path / "index")
    keep = StreamSettings(cache_dir=tmp_path / "keep", cache_limit_bytes=10_000)
    for _ in range(2):
        numbers, given = _all(StreamingSamples(index, settings=keep))
        names = [index.name(number) for number in numbers]
        assert [data for data, _ in given] == [(tmp_path / "data" / name).read_bytes() for name in names]
        assert [index.class_names[label] for _, label in given] == [name.split("/")[0] for name in names]
    taken = StreamingSamples(index, settings=keep)
    (tmp_path / "data").rename(tmp_path / "gone")
    assert len(_all(taken)[1]) == 12  # all was kept
