"""Samples by number and as a stream: from files and over http, bad ones, kept ones, within a limit of memory."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace
from itertools import islice

import pytest

from packtrain.errors import UsageError
from packtrain.plan import Location
from packtrain.stream.cursor import Cursor
from packtrain.stream.index import Index
from packtrain.stream.samples import SKIP, StreamError, StreamingSamples, StreamSettings
from packtrain.stream.shuffle import PartitionConfig
from packtrain.transfer.block_checksums import make_checksums
from testbed.http_server import HttpServer, ResponseFault
from tests.support.stream_indexes import make_archive, random_content

SIZE = 700


@pytest.fixture
def index(tmp_path):
    return make_archive(tmp_path, 120, SIZE)


def _stream(index, **split):
    return (
        Cursor(index, PartitionConfig(**{"read_bytes": 9000, "shuffle_window": 4, **split}), seed=3)
        .partition()
        .worker_order(0, 0)
    )


def _expected(index, stream):
    return [(random_content(number, SIZE + number % 7), index.classes[number]) for number in stream.numbers()]


def test_by_number(index):
    samples = StreamingSamples(index)
    assert len(samples) == 120
    assert samples[17] == (random_content(17, SIZE + 17 % 7), index.labels[17])
    assert samples[-1] == (random_content(119, SIZE), 19)
    assert samples.__getitems__([5, 90, 5]) == [samples[5], samples[90], samples[5]]
    with pytest.raises(IndexError, match="sample 120 of 120"):
        samples[120]


def test_a_stream_has_the_right_bytes_in_the_right_order(index, tmp_path):
    with HttpServer(tmp_path) as origin:
        samples = StreamingSamples(index, settings=StreamSettings((Location(f"{origin.url}/data.tar"),)))
        stream = _stream(index)
        assert list(samples.iter_samples(stream, shuffle_window=4)) == _expected(index, stream)
        asked = [seen for seen in origin.requests if "range" in seen.headers]
        # Neighbours are read together; on a busy machine a piece may be late, and asked for twice.
        assert 0 <= len(asked) - len(stream.groups) <= samples.stats.hedges + samples.stats.failures
        assert len({seen.headers["user-agent"] for seen in asked}) == 1


def test_only_so_much_is_read_ahead(index, tmp_path):
    with HttpServer(tmp_path) as origin:
        settings = StreamSettings((Location(f"{origin.url}/data.tar"),), prefetch_bytes=20_000)
        given = StreamingSamples(index, settings=settings).iter_samples(_stream(index, pool=1), shuffle_window=1)
        next(given)
        list(islice(given, 20))
        # What was given, what may be held, and the one piece that may always be read.
        assert origin.sent_bytes <= 21 * 1300 + 20_000 + 2 * 9000
        given.close()


def test_what_was_read_is_kept_and_the_next_epoch_costs_no_network(index, tmp_path):
    with HttpServer(tmp_path) as origin:
        settings = StreamSettings(
            (Location(f"{origin.url}/data.tar"),), cache_dir=tmp_path / "keep", cache_limit_bytes=1 << 20
        )
        first = StreamingSamples(index, settings=settings)
        assert list(first.iter_samples(_stream(index))) == _expected(index, _stream(index))
        sent = origin.sent_bytes
        other = _stream(index, workers=2, batch=8)
        assert list(StreamingSamples(index, settings=settings).iter_samples(other)) == _expected(index, other)
        assert origin.sent_bytes == sent


def test_no_more_is_kept_than_allowed(index, tmp_path):
    with HttpServer(tmp_path) as origin:
        settings = StreamSettings(
            (Location(f"{origin.url}/data.tar"),), cache_dir=tmp_path / "keep", cache_limit_bytes=30_000
        )
        samples = StreamingSamples(index, settings=settings)
        assert list(samples.iter_samples(_stream(index))) == _expected(index, _stream(index))
        kept = tmp_path / "keep" / index.stamp / "data"
        assert 0 < kept.stat().st_blocks * 512 <= 30_000 + 4096 * 2 * 4  # holes take none, but blocks are whole
        before = origin.sent_bytes
        assert list(StreamingSamples(index, settings=settings).iter_samples(_stream(index))) == _expected(
            index, _stream(index)
        )
        assert 0 < origin.sent_bytes - before < before


def test_a_folder_that_keeps_nothing_is_told_and_no_reason_to_fail(index, tmp_path):
    (tmp_path / "file").write_text("")
    told: list[str] = []
    settings = StreamSettings(cache_dir=tmp_path / "file" / "keep", cache_limit_bytes=1000)
    assert StreamingSamples(index, settings=settings, on_message=told.append)[3][1] == 0
    assert "nothing that is read can be kept" in told[0]


def test_a_corrupt_sample_is_fetched_once_more(index, tmp_path):
    """The first answer is wrong by a byte, and nobody states checksums: only `decode` sees it."""

    def decode(data, label):
        if data not in good:
            raise ValueError("not an image")
        return data, label

    good = {random_content(number, SIZE + number % 7) for number in range(120)}
    with HttpServer(tmp_path, faults=[ResponseFault(corrupt_offset=1000)]) as origin:
        samples = StreamingSamples(index, decode, StreamSettings((Location(f"{origin.url}/data.tar"),)))
        assert list(samples.iter_samples(_stream(index))) == _expected(index, _stream(index))
        assert samples.skipped == []


def test_a_sample_that_is_bad_everywhere_is_raised_or_skipped_as_the_user_chose(index):
    def decode(data, label):
        if data == random_content(40, SIZE + 40 % 7):
            raise ValueError("not an image")
        return data, label

    with pytest.raises(StreamError, match=r"n006/40.bin \(number 40\) cannot be used: ValueError\('not an image'\)"):
        list(StreamingSamples(index, decode).iter_samples(_stream(index)))
    skipping = StreamingSamples(index, decode, StreamSettings(on_error=SKIP))
    assert len(list(skipping.iter_samples(_stream(index)))) == 119
    assert [(bad.number, bad.name) for bad in skipping.skipped] == [(40, "n006/40.bin")]


def test_with_checksums_a_wrong_byte_is_seen_and_fetched_again(index, tmp_path):
    sums = make_checksums(tmp_path / "data.tar", 4096)
    with HttpServer(tmp_path, faults=[None, ResponseFault(corrupt_offset=600)]) as origin:
        settings = StreamSettings((Location(f"{origin.url}/data.tar"),), checksums=(sums,))
        samples = StreamingSamples(index, settings=settings)
        assert list(samples.iter_samples(_stream(index))) == _expected(index, _stream(index))
        assert samples.stats.failures + samples.stats.hedges >= 1
    with pytest.raises(UsageError, match="1 archives, but 2 checksums"):
        StreamingSamples(index, settings=StreamSettings(checksums=(sums, sums)))


def test_an_archive_that_changed_since_it_was_indexed_is_told(index, tmp_path):
    archive = tmp_path / "data.tar"
    archive.write_bytes(archive.read_bytes() + bytes(512))
    with pytest.raises(StreamError, match=r"is not the archive that was indexed: it had \d+ bytes and now has"):
        list(StreamingSamples(index).iter_samples(_stream(index)))


def test_an_etag_that_changed_is_told(index, tmp_path):
    with HttpServer(tmp_path) as origin:
        url = f"{origin.url}/data.tar"
        about = replace(index.archives[0], url=url, etag='"another"')
        index.archives = (about,)
        with pytest.raises(StreamError, match='its ETag was "another" and now is'):
            list(StreamingSamples(index).iter_samples(_stream(index)))


def test_a_server_without_ranges_is_refused_with_the_remedy(index, tmp_path):
    with HttpServer(tmp_path, faults=[ResponseFault(ignore_range=True)] * 50) as origin:
        settings = StreamSettings((Location(f"{origin.url}/data.tar"),))
        with pytest.raises(StreamError, match="stage the data instead"):
            list(StreamingSamples(index, settings=settings).iter_samples(_stream(index)))


def test_what_is_missing_is_waited_for_and_then_told(index, tmp_path):
    with HttpServer(tmp_path) as origin:
        settings = StreamSettings((Location(f"{origin.url}/none.tar"),), timeout_s=0.2)
        with pytest.raises(StreamError, match=r"samples cannot be read \(object_missing\): .*none\.tar"):
            list(StreamingSamples(index, settings=settings).iter_samples(_stream(index)))


def _read_all(samples, stream, results):
    results.put(list(samples.stream(stream)) == _expected(samples.index, stream))


def test_forked_processes_have_connections_of_their_own(index, tmp_path):
    """As torch's workers do, after the parent has read already."""
    context = multiprocessing.get_context("fork")
    with HttpServer(tmp_path) as origin:
        samples, stream = (
            StreamingSamples(index, settings=StreamSettings((Location(f"{origin.url}/data.tar"),))),
            _stream(index),
        )
        begun = samples.iter_samples(stream)
        next(begun)
        results = context.Queue()
        children = [context.Process(target=_read_all, args=(samples, stream, results)) for _ in range(3)]
        for child in children:
            child.start()
        assert [results.get(timeout=60) for _ in children] == [True] * 3
        for child in children:
            child.join()
        assert len(list(begun)) == 119


def test_it_can_be_sent_to_a_process_that_was_not_forked(index):
    import pickle

    samples = StreamingSamples(Index.open(index.path))
    assert samples[1] == pickle.loads(pickle.dumps(samples))[1]
