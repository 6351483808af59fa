"""Bad networks: a source that stalls, drips, closes or is away costs seconds, never the run."""

from __future__ import annotations

import threading

import pytest

from packtrain.plan import Location
from packtrain.stream.cursor import Cursor
from packtrain.stream.replicas import ArchiveReplicas
from packtrain.stream.samples import StreamingSamples, StreamSettings
from packtrain.stream.shuffle import PartitionConfig
from testbed.faults import Fault, FaultProxy
from tests.support.stream_indexes import make_archive, random_content

pytestmark = pytest.mark.slow
SIZE = 20_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("archive")


@pytest.fixture(scope="module")
def index(folder):
    return make_archive(folder, 200, SIZE)


@pytest.fixture(autouse=True, params=["here", "far"])
def where(request, monkeypatch) -> None:
    """The servers are on this machine, and are read without threads as long as they are quick; others are not."""
    if request.param == "far":
        monkeypatch.setattr(ArchiveReplicas, "are_all_local", False)


def _all(index, *proxies, tell=lambda words: None, **settings):
    refs = tuple(Location(f"{proxy.url}/data.tar") for proxy in proxies)
    samples = StreamingSamples(index, settings=StreamSettings(refs, **settings), on_message=tell)
    stream = Cursor(index, PartitionConfig(read_bytes=100_000, shuffle_window=8), seed=3).partition().worker_order(0, 0)
    given = list(samples.iter_samples(stream, shuffle_window=8))
    assert given == [(random_content(n, SIZE + n % 7), index.classes[n]) for n in stream.sample_numbers()]
    return samples.stats


@pytest.mark.parametrize(
    "fault",
    [
        Fault("stall", response_offset=30_000, max_times=None),
        Fault("drip", response_offset=10_000, max_times=None, bytes_per_s=5_000),
        Fault("close", response_offset=30_000, max_times=None),
        Fault("reset", response_offset=30_000, max_times=3),
        Fault("status", status=404, max_times=None),
        Fault("status", status=503, max_times=4),
        Fault("delay", max_times=None),
        Fault("truncate", response_offset=30_000, max_times=2),
    ],
    ids=lambda fault: f"{fault.kind}-{fault.status}" if fault.kind == "status" else fault.kind,
)
def test_with_a_second_source_the_epoch_is_whole(folder, index, fault):
    with FaultProxy(folder, [fault]) as bad, FaultProxy(folder) as good:
        counts = _all(index, bad, good)
        assert bad.injected_faults
        assert counts.failures + counts.hedges >= 1


@pytest.mark.parametrize("kind", ["stall", "close", "reset", "delay"])
def test_a_source_alone_is_asked_again(folder, index, kind):
    with FaultProxy(folder, [Fault(kind, response_offset=30_000, max_times=2)]) as proxy:
        _all(index, proxy)
        assert len(proxy.injected_faults) == 2


def test_a_network_that_is_away_is_waited_out_and_the_reason_shown(folder, index):
    """It comes back when the reason has been told, however long that takes."""
    away = Fault("status", status=503, max_times=None)
    told = []
    with FaultProxy(folder, [away]) as proxy:

        def tell(words):
            told.append(words)
            proxy.set_faults()

        _all(index, proxy, tell=tell, patience_s=600)
    assert "waiting for data" in told[0]
    assert "503" in told[0]
    assert "comes again" in told[-1]


def test_threads_end_with_the_stream(folder, index):
    with FaultProxy(folder) as proxy:
        _all(index, proxy)
        assert proxy.wait_until_disconnected()
    for thread in [one for one in threading.enumerate() if one.name == "stream"]:
        thread.join(60)
        assert not thread.is_alive()
