"""Bad networks: a source that stalls, drips, closes or is away costs seconds, never the run."""

from __future__ import annotations

import threading

import pytest

from packtrain.plan import Ref
from packtrain.stream.cursor import Cursor
from packtrain.stream.replicas import Hosts
from packtrain.stream.samples import Samples, Settings
from packtrain.stream.shuffle import Split
from testbed.faults import Fault, FaultProxy
from tests.support.stream_indexes import archive_of, content

pytestmark = pytest.mark.slow
SIZE = 20_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("archive")


@pytest.fixture(scope="module")
def index(folder):
    return archive_of(folder, 200, SIZE)


@pytest.fixture(autouse=True, params=["here", "far"])
def where(request, monkeypatch) -> None:
    """The servers are on this machine, and are read without threads as long as they are quick; others are not."""
    if request.param == "far":
        monkeypatch.setattr(Hosts, "are_here", False)


def _all(index, *proxies, tell=lambda words: None, **settings):
    refs = tuple(Ref(f"{proxy.url}/data.tar") for proxy in proxies)
    samples = Samples(index, settings=Settings(refs, **settings), tell=tell)
    stream = Cursor(index, Split(span=100_000, pool=8), seed=3).dealt().stream(0, 0)
    given = list(samples.stream(stream, pool=8))
    assert given == [(content(n, SIZE + n % 7), index.classes[n]) for n in stream.numbers()]
    return samples.counts


@pytest.mark.parametrize(
    "fault",
    [
        Fault("stall", at=30_000, times=None),
        Fault("drip", at=10_000, times=None, rate=5_000),
        Fault("close", at=30_000, times=None),
        Fault("reset", at=30_000, times=3),
        Fault("status", status=404, times=None),
        Fault("status", status=503, times=4),
        Fault("late", times=None),
        Fault("truncate", at=30_000, times=2),
    ],
    ids=lambda fault: f"{fault.kind}-{fault.status}" if fault.kind == "status" else fault.kind,
)
def test_with_a_second_source_the_epoch_is_whole(folder, index, fault):
    with FaultProxy(folder, [fault]) as bad, FaultProxy(folder) as good:
        counts = _all(index, bad, good)
        assert bad.strikes
        assert counts.failures + counts.hedges >= 1


@pytest.mark.parametrize("kind", ["stall", "close", "reset", "late"])
def test_a_source_alone_is_asked_again(folder, index, kind):
    with FaultProxy(folder, [Fault(kind, at=30_000, times=2)]) as proxy:
        _all(index, proxy)
        assert len(proxy.strikes) == 2


def test_a_network_that_is_away_is_waited_out_and_the_reason_shown(folder, index):
    """It comes back when the reason has been told, however long that takes."""
    away = Fault("status", status=503, times=None)
    told = []
    with FaultProxy(folder, [away]) as proxy:

        def tell(words):
            told.append(words)
            proxy.arm()

        _all(index, proxy, tell=tell, patience_s=600)
    assert "waiting for data" in told[0]
    assert "503" in told[0]
    assert "comes again" in told[-1]


def test_threads_end_with_the_stream(folder, index):
    with FaultProxy(folder) as proxy:
        _all(index, proxy)
        assert proxy.wait_until_left()
    for thread in [one for one in threading.enumerate() if one.name == "stream"]:
        thread.join(60)
        assert not thread.is_alive()
