"""Tests of StreamingSamples: by number and in order, from files and over HTTP, with cache and memory limit."""

from __future__ import annotations

import multiprocessing
import pickle
from dataclasses import replace
from itertools import islice

import pytest

from packtrain.errors import UsageError
from packtrain.plan import Location
from packtrain.stream.cursor import Cursor
from packtrain.stream.index import Index
from packtrain.stream.samples import SKIP, StreamError, StreamingSamples, StreamSettings
from packtrain.stream.shuffle import PartitionConfig
from packtrain.transfer.integrity.block_checksums import make_checksums
from testbed.http_server import HttpServer, ResponseFault
from tests.support.stream_indexes import make_archive, random_content

SIZE = 700


@pytest.fixture
def index(tmp_path):
    return make_archive(tmp_path, 120, SIZE)


def make_order(index, **options):
    config = PartitionConfig(**{"read_bytes": 9000, "shuffle_window": 4, **options})
    return Cursor(index, config, seed=3).partition().worker_order(0, 0)


def expected(index, order):
    return [(random_content(number, SIZE + number % 7), index.labels[number]) for number in order.sample_numbers()]


def test_by_number(index):
    samples = StreamingSamples(index)
    assert len(samples) == 120
    assert samples[17] == (random_content(17, SIZE + 17 % 7), index.labels[17])
    assert samples[-1] == (random_content(119, SIZE), 19)
    assert samples.__getitems__([5, 90, 5]) == [samples[5], samples[90], samples[5]]
    with pytest.raises(IndexError, match="sample 120 of 120"):
        samples[120]


def test_samples_in_order(index, tmp_path):
    with HttpServer(tmp_path) as origin:
        samples = StreamingSamples(index, settings=StreamSettings((Location(f"{origin.url}/data.tar"),)))
        order = make_order(index)
        assert list(samples.iter_samples(order, shuffle_window=4)) == expected(index, order)
        requests = [request for request in origin.requests if "range" in request.headers]
        # One request reads a group; on a busy machine a group may be late and be requested twice.
        assert 0 <= len(requests) - len(order.groups) <= samples.stats.hedges + samples.stats.failures
        assert len({request.headers["user-agent"] for request in requests}) == 1


def test_prefetch_is_limited(index, tmp_path):
    with HttpServer(tmp_path) as origin:
        settings = StreamSettings((Location(f"{origin.url}/data.tar"),), prefetch_bytes=20_000)
        order = make_order(index, shuffle_window=1)
        items = StreamingSamples(index, settings=settings).iter_samples(order, shuffle_window=1)
        next(items)
        list(islice(items, 20))
        # The returned samples, the memory limit, and the one group that may always be read.
        assert origin.sent_bytes <= 21 * 1300 + 20_000 + 2 * 9000
        items.close()


def test_second_epoch_comes_from_the_cache(index, tmp_path):
    with HttpServer(tmp_path) as origin:
        settings = StreamSettings(
            (Location(f"{origin.url}/data.tar"),), cache_dir=tmp_path / "cache", cache_limit_bytes=1 << 20
        )
        first = StreamingSamples(index, settings=settings)
        assert list(first.iter_samples(make_order(index))) == expected(index, make_order(index))
        sent_bytes = origin.sent_bytes
        other = make_order(index, num_workers=2, batch_size=8)
        assert list(StreamingSamples(index, settings=settings).iter_samples(other)) == expected(index, other)
        assert origin.sent_bytes == sent_bytes


def test_cache_limit(index, tmp_path):
    with HttpServer(tmp_path) as origin:
        settings = StreamSettings(
            (Location(f"{origin.url}/data.tar"),), cache_dir=tmp_path / "cache", cache_limit_bytes=30_000
        )
        samples = StreamingSamples(index, settings=settings)
        assert list(samples.iter_samples(make_order(index))) == expected(index, make_order(index))
        data_file = tmp_path / "cache" / index.fingerprint / "data"
        assert 0 < data_file.stat().st_blocks * 512 <= 30_000 + 4096 * 2 * 4  # holes use no blocks
        sent_bytes = origin.sent_bytes
        again = StreamingSamples(index, settings=settings)
        assert list(again.iter_samples(make_order(index))) == expected(index, make_order(index))
        assert 0 < origin.sent_bytes - sent_bytes < sent_bytes


def test_unusable_cache_folder_is_reported(index, tmp_path):
    (tmp_path / "file").write_text("")
    messages: list[str] = []
    settings = StreamSettings(cache_dir=tmp_path / "file" / "cache", cache_limit_bytes=1000)
    assert StreamingSamples(index, settings=settings, on_message=messages.append)[3][1] == 0
    assert "samples are not cached" in messages[0]


def test_corrupt_sample_is_fetched_again(index, tmp_path):
    """The first response has a wrong byte. Without checksums, only the decoder detects it."""

    def decode(data, label):
        if data not in good:
            raise ValueError("not an image")
        return data, label

    good = {random_content(number, SIZE + number % 7) for number in range(120)}
    with HttpServer(tmp_path, faults=[ResponseFault(corrupt_offset=1000)]) as origin:
        samples = StreamingSamples(index, decode, StreamSettings((Location(f"{origin.url}/data.tar"),)))
        assert list(samples.iter_samples(make_order(index))) == expected(index, make_order(index))
        assert samples.skipped == []


def test_undecodable_sample_is_raised_or_skipped(index):
    def decode(data, label):
        if data == random_content(40, SIZE + 40 % 7):
            raise ValueError("not an image")
        return data, label

    with pytest.raises(StreamError, match=r"n006/40.bin \(number 40\) cannot be decoded: ValueError\('not an image'\)"):
        list(StreamingSamples(index, decode).iter_samples(make_order(index)))
    skipping = StreamingSamples(index, decode, StreamSettings(on_error=SKIP))
    assert len(list(skipping.iter_samples(make_order(index)))) == 119
    assert [(sample.number, sample.name) for sample in skipping.skipped] == [(40, "n006/40.bin")]


def test_wrong_byte_with_checksums(index, tmp_path):
    checksums = make_checksums(tmp_path / "data.tar", 4096)
    with HttpServer(tmp_path, faults=[None, ResponseFault(corrupt_offset=600)]) as origin:
        settings = StreamSettings((Location(f"{origin.url}/data.tar"),), checksums=(checksums,))
        samples = StreamingSamples(index, settings=settings)
        assert list(samples.iter_samples(make_order(index))) == expected(index, make_order(index))
        assert samples.stats.failures + samples.stats.hedges >= 1
    with pytest.raises(UsageError, match="1 archives, but 2 checksums"):
        StreamingSamples(index, settings=StreamSettings(checksums=(checksums, checksums)))


def test_changed_archive(index, tmp_path):
    archive = tmp_path / "data.tar"
    archive.write_bytes(archive.read_bytes() + bytes(512))
    with pytest.raises(StreamError, match=r"is not the archive that was indexed: it had \d+ bytes and now has"):
        list(StreamingSamples(index).iter_samples(make_order(index)))


def test_changed_etag(index, tmp_path):
    with HttpServer(tmp_path) as origin:
        url = f"{origin.url}/data.tar"
        index.archives = (replace(index.archives[0], url=url, etag='"another"'),)
        with pytest.raises(StreamError, match='its ETag was "another" and now is'):
            list(StreamingSamples(index).iter_samples(make_order(index)))


def test_server_without_ranges(index, tmp_path):
    with HttpServer(tmp_path, faults=[ResponseFault(ignore_range=True)] * 50) as origin:
        settings = StreamSettings((Location(f"{origin.url}/data.tar"),))
        with pytest.raises(StreamError, match="stage the data instead"):
            list(StreamingSamples(index, settings=settings).iter_samples(make_order(index)))


def test_missing_archive(index, tmp_path):
    with HttpServer(tmp_path) as origin:
        settings = StreamSettings((Location(f"{origin.url}/none.tar"),), timeout_s=0.2)
        with pytest.raises(StreamError, match=r"samples cannot be read \(object_missing\): .*none\.tar"):
            list(StreamingSamples(index, settings=settings).iter_samples(make_order(index)))


def read_in_child(samples, order, results):
    results.put(list(samples.iter_samples(order)) == expected(samples.index, order))


def test_forked_processes_open_their_own_connections(index, tmp_path):
    """Like torch's workers, after the parent has read already."""
    context = multiprocessing.get_context("fork")
    with HttpServer(tmp_path) as origin:
        samples = StreamingSamples(index, settings=StreamSettings((Location(f"{origin.url}/data.tar"),)))
        order = make_order(index)
        items = samples.iter_samples(order)
        next(items)
        results = context.Queue()
        children = [context.Process(target=read_in_child, args=(samples, order, results)) for _ in range(3)]
        for child in children:
            child.start()
        assert [results.get(timeout=60) for _ in children] == [True] * 3
        for child in children:
            child.join()
        assert len(list(items)) == 119


def test_pickled_samples(index):
    samples = StreamingSamples(Index.open(index.path))
    assert samples[1] == pickle.loads(pickle.dumps(samples))[1]
