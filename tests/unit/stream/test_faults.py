"""Tests of streaming with faulty servers: they cost seconds, but never fail the run."""

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


@pytest.fixture(autouse=True, params=["local", "remote"])
def server_location(request, monkeypatch) -> None:
    """Fast local servers are read without threads, remote ones with threads."""
    if request.param == "remote":
        monkeypatch.setattr(ArchiveReplicas, "are_all_local", False)


def read_epoch(index, *proxies, on_message=lambda message: None, **settings):
    locations = tuple(Location(f"{proxy.url}/data.tar") for proxy in proxies)
    samples = StreamingSamples(index, settings=StreamSettings(locations, **settings), on_message=on_message)
    order = Cursor(index, PartitionConfig(read_bytes=100_000, shuffle_window=8), seed=3).partition().worker_order(0, 0)
    items = list(samples.iter_samples(order, shuffle_window=8))
    assert items == [(random_content(n, SIZE + n % 7), index.labels[n]) for n in order.sample_numbers()]
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
def test_second_source_completes_the_epoch(folder, index, fault):
    with FaultProxy(folder, [fault]) as bad, FaultProxy(folder) as good:
        stats = read_epoch(index, bad, good)
        assert bad.injected_faults
        assert stats.failures + stats.hedges >= 1


@pytest.mark.parametrize("kind", ["stall", "close", "reset", "delay"])
def test_only_source_is_retried(folder, index, kind):
    with FaultProxy(folder, [Fault(kind, response_offset=30_000, max_times=2)]) as proxy:
        read_epoch(index, proxy)
        assert len(proxy.injected_faults) == 2


def test_outage_is_reported_and_waited_for(folder, index):
    """The server works again as soon as the reason was reported."""
    outage = Fault("status", status=503, max_times=None)
    messages = []
    with FaultProxy(folder, [outage]) as proxy:

        def on_message(message):
            messages.append(message)
            proxy.set_faults()

        read_epoch(index, proxy, on_message=on_message, timeout_s=600)
    assert "waiting for data" in messages[0]
    assert "503" in messages[0]
    assert "data arrives again" in messages[-1]


def test_threads_end_with_the_iterator(folder, index):
    with FaultProxy(folder) as proxy:
        read_epoch(index, proxy)
        assert proxy.wait_until_disconnected()
    for thread in [thread for thread in threading.enumerate() if thread.name == "stream"]:
        thread.join(60)
        assert not thread.is_alive()
