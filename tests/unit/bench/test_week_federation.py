"""The federation of the replayed week, queried by nodes with addresses of their own."""

from __future__ import annotations

import http.client
import json
import ssl
import time

import pytest
from harness.week import replay_federation
from harness.week.fault_schedule import ReplayNode, ReplayWeek
from harness.week.replay_federation import ReplayFederation

from packtrain.plan import Location, RemoteFile
from packtrain.transfer.fetch import fetch

NO_STALLS = (0.0,) * 4
FOREVER_S = 1e9
DATA = bytes(range(256)) * 1024  # 256 KiB


def make_node(number, *, stalls=NO_STALLS, damaged=False):
    return ReplayNode(
        number=number,
        site="PDX-Coeus-CE1",
        opens_at=0.0,
        compute_s=1.0,
        transfer_s=0.001,
        cache_stalls_until=stalls,
        evicted_periods=(),
        has_outbound_network=True,
        has_damaged_cache=damaged,
    )


NODES = (make_node(0), make_node(1, stalls=(FOREVER_S, 0.0, 0.0, 0.0)), make_node(2, damaged=True))
WEEK = ReplayWeek(30.0, NODES, director_outages=((100.0, 200.0),))
ADDRESSES = {"127.77.0.1": 0, "127.77.0.2": 1, "127.77.0.3": 2}


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    with ReplayFederation(tmp_path_factory.mktemp("ca"), WEEK, DATA, ADDRESSES) as federation:
        yield federation


@pytest.fixture(autouse=True)
def week_start(federation):
    federation.start_week(time.time())


def request(host, port, path, *, source, tls=None, **headers):
    connection_class = http.client.HTTPSConnection if tls else http.client.HTTPConnection
    options = {"context": tls} if tls else {}
    connection = connection_class(host, port, source_address=(source, 0), **options)
    connection.request("GET", path, headers=headers)
    return connection.getresponse()


def ask_director(federation, path, source="127.77.0.1"):
    context = ssl.create_default_context(cafile=federation.ca_file)
    return request("127.0.0.1", federation.ports[0], path, source=source, tls=context)


def cache_address(federation, rank, number):
    """Return the address of a node's cache; rank 0 is the nearest."""
    return federation.cache_urls(NODES[number])[rank].removeprefix("http://").partition(":")[0]


def test_discovery(federation):
    response = ask_director(federation, "/.well-known/pelican-configuration")
    assert json.loads(response.read()) == {"director_endpoint": f"https://{federation.host}"}


def test_director_lists_nearest_cache_first(federation):
    locations = [
        ask_director(federation, replay_federation.DATASET_PATH, source).getheader("Location") for source in ADDRESSES
    ]
    assert len(set(locations)) == 3
    links = ask_director(federation, replay_federation.DATASET_PATH).getheader("Link")
    assert links.count('rel="duplicate"') == 4


def test_director_redirects_to_origin(federation):
    for path, source in (
        (replay_federation.DATASET_PATH, "127.0.0.1"),
        (f"{replay_federation.DATASET_PATH}?directread", "127.77.0.1"),
    ):
        assert replay_federation.ORIGIN_ADDRESS in ask_director(federation, path, source).getheader("Location")


def test_director_outage(federation):
    federation.start_week(time.time() - 150)
    response = ask_director(federation, replay_federation.DATASET_PATH)
    assert (response.status, response.read(), response.getheader("Server")) == (404, b"404 page not found\n", None)
    federation.start_week(time.time() - 201)
    assert ask_director(federation, replay_federation.DATASET_PATH).status == 307


def test_ranges_and_digests(federation):
    response = request(
        cache_address(federation, 0, 0),
        federation.ports[1],
        replay_federation.DATASET_PATH,
        source="127.77.0.1",
        Range="bytes=10-19",
    )
    assert (response.status, response.read()) == (206, DATA[10:20])
    assert response.getheader("Content-Range") == f"bytes 10-19/{len(DATA)}"
    response = request(
        cache_address(federation, 0, 0),
        federation.ports[1],
        replay_federation.DATASET_PATH,
        source="127.77.0.1",
        **{"Want-Digest": "md5"},
    )
    assert response.getheader("Digest").startswith("md5=") and response.read() == DATA


def test_stalled_cache(federation):
    federation.start_week(time.time())
    response = request(
        cache_address(federation, 0, 1), federation.ports[1], replay_federation.DATASET_PATH, source="127.77.0.2"
    )
    assert response.read(1 << 16) == DATA[: 1 << 16]
    response.fp.raw._sock.settimeout(0.5)
    with pytest.raises(TimeoutError):
        response.read(1)
    federation.start_week(time.time() - 2 * FOREVER_S)
    response = request(
        cache_address(federation, 0, 1), federation.ports[1], replay_federation.DATASET_PATH, source="127.77.0.2"
    )
    assert response.read() == DATA


def test_other_cache_does_not_stall(federation):
    assert (
        request(
            cache_address(federation, 1, 1), federation.ports[1], replay_federation.DATASET_PATH, source="127.77.0.2"
        ).read()
        == DATA
    )


def test_damaged_cache(federation):
    nearest = request(
        cache_address(federation, 0, 2), federation.ports[1], replay_federation.DATASET_PATH, source="127.77.0.3"
    ).read()
    second = request(
        cache_address(federation, 1, 2), federation.ports[1], replay_federation.DATASET_PATH, source="127.77.0.3"
    ).read()
    assert len(nearest) == len(DATA) and nearest != DATA and second == DATA


def test_weights_and_unknown_path(federation):
    port = federation.ports[1]
    assert (
        request(replay_federation.OUTSIDE_ADDRESS, port, replay_federation.WEIGHTS_PATH, source="127.77.0.1").status
        == 200
    )
    assert request(replay_federation.ORIGIN_ADDRESS, port, "/nothing", source="127.77.0.1").status == 404


@pytest.mark.slow
def test_damaged_block_is_repaired_from_origin(tmp_path, monkeypatch):
    """The nearest cache sends damaged data, then all caches stall; the origin completes and replaces the block."""
    node = make_node(0, stalls=(FOREVER_S,) * 4, damaged=True)
    week = ReplayWeek(30.0, (node,), ())
    with ReplayFederation(tmp_path / "ca", week, DATA, {"127.0.0.1": 0}) as federation:
        monkeypatch.setenv("SSL_CERT_FILE", str(federation.ca_file))
        federation.start_week(time.time())
        result = fetch(
            RemoteFile("data.bin", (Location(federation.dataset_url),)),
            tmp_path / "data.bin",
            str,
            retry_timeout_s=60,
            check_cancelled=lambda: None,
            on_progress=lambda done, total: None,
        )
    assert (tmp_path / "data.bin").read_bytes() == DATA
    assert result.verified_by == "md5"
