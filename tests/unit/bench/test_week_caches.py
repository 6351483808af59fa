"""The federation of the replayed week, asked by machines: each has an address of its own."""

from __future__ import annotations

import http.client
import json
import ssl
import time

import pytest
from harness.week import caches as federation
from harness.week.caches import Caches
from harness.week.fault_schedule import Machine, Week

from packtrain.plan import Location, RemoteFile
from packtrain.transfer.fetch import fetch

WELL = (0.0,) * 4
LONG = 1e9
DATA = bytes(range(256)) * 1024  # 256 KiB


def machine(number, *, stalls=WELL, damaged=False):
    return Machine(number, "PDX-Coeus-CE1", 0.0, 1.0, 0.001, stalls, (), reaches_outside=True, damaged=damaged)


MACHINES = (machine(0), machine(1, stalls=(LONG, 0.0, 0.0, 0.0)), machine(2, damaged=True))
WEEK = Week(30.0, MACHINES, away=((100.0, 200.0),))
ADDRESSES = {"127.77.0.1": 0, "127.77.0.2": 1, "127.77.0.3": 2}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with Caches(tmp_path_factory.mktemp("ca"), WEEK, DATA, ADDRESSES) as served:
        yield served


@pytest.fixture(autouse=True)
def first_moment(served):
    served.begin(time.time())


def asked(host, port, path, *, source, tls=None, **headers):
    kind = http.client.HTTPSConnection if tls else http.client.HTTPConnection
    more = {"context": tls} if tls else {}
    connection = kind(host, port, source_address=(source, 0), **more)
    connection.request("GET", path, headers=headers)
    return connection.getresponse()


def director(served, path, source="127.77.0.1"):
    trusted = ssl.create_default_context(cafile=served.ca)
    return asked("127.0.0.1", served.ports[0], path, source=source, tls=trusted)


def cache(served, rank, number):
    """The address of the so many nearest of a machine."""
    return served.directions(MACHINES[number])[rank].removeprefix("http://").partition(":")[0]


def test_discovery_names_the_director(served):
    answer = director(served, "/.well-known/pelican-configuration")
    assert json.loads(answer.read()) == {"director_endpoint": f"https://{served.host}"}


def test_the_director_sends_each_machine_to_its_own_cache_first(served):
    places = [director(served, federation.DATA, source).getheader("Location") for source in ADDRESSES]
    assert len(set(places)) == 3
    links = director(served, federation.DATA).getheader("Link")
    assert links.count('rel="duplicate"') == 4


def test_who_is_at_no_site_and_who_wants_no_cache_is_sent_to_the_origin(served):
    for path, source in ((federation.DATA, "127.0.0.1"), (f"{federation.DATA}?directread", "127.77.0.1")):
        assert federation.ORIGIN in director(served, path, source).getheader("Location")


def test_a_director_that_is_away_says_what_the_published_one_said(served):
    served.begin(time.time() - 150)
    answer = director(served, federation.DATA)
    assert (answer.status, answer.read(), answer.getheader("Server")) == (404, b"404 page not found\n", None)
    served.begin(time.time() - 201)
    assert director(served, federation.DATA).status == 307


def test_ranges_and_digests(served):
    answer = asked(cache(served, 0, 0), served.ports[1], federation.DATA, source="127.77.0.1", Range="bytes=10-19")
    assert (answer.status, answer.read()) == (206, DATA[10:20])
    assert answer.getheader("Content-Range") == f"bytes 10-19/{len(DATA)}"
    answer = asked(cache(served, 0, 0), served.ports[1], federation.DATA, source="127.77.0.1", **{"Want-Digest": "md5"})
    assert answer.getheader("Digest").startswith("md5=") and answer.read() == DATA


def test_a_cache_that_stalls_begins_and_goes_on_when_it_may(served):
    served.begin(time.time())
    answer = asked(cache(served, 0, 1), served.ports[1], federation.DATA, source="127.77.0.2")
    beginning = answer.read(1 << 16)
    assert beginning == DATA[: 1 << 16]
    answer.fp.raw._sock.settimeout(0.5)
    with pytest.raises(TimeoutError):
        answer.read(1)
    served.begin(time.time() - 2 * LONG)
    again = asked(cache(served, 0, 1), served.ports[1], federation.DATA, source="127.77.0.2")
    assert again.read() == DATA


def test_another_cache_does_not_stall_for_it(served):
    assert asked(cache(served, 1, 1), served.ports[1], federation.DATA, source="127.77.0.2").read() == DATA


def test_only_the_nearest_cache_has_a_damaged_copy(served):
    nearest = asked(cache(served, 0, 2), served.ports[1], federation.DATA, source="127.77.0.3").read()
    next_one = asked(cache(served, 1, 2), served.ports[1], federation.DATA, source="127.77.0.3").read()
    assert len(nearest) == len(DATA) and nearest != DATA and next_one == DATA


def test_weights_and_what_is_nowhere(served):
    port = served.ports[1]
    assert asked(federation.OUTSIDE, port, federation.WEIGHTS, source="127.77.0.1").status == 200
    assert asked(federation.ORIGIN, port, "/nothing", source="127.77.0.1").status == 404


@pytest.mark.slow
def test_a_damaged_beginning_before_all_caches_stall_is_mended_from_the_origin(tmp_path, monkeypatch):
    """Seen in the replay: the block that a damaged cache began was brought to its end by the origin, and again."""
    broken = Machine(0, "PDX-Coeus-CE1", 0.0, 1.0, 0.001, (LONG,) * 4, (), reaches_outside=True, damaged=True)
    with Caches(tmp_path / "ca", Week(30.0, (broken,), ()), DATA, {"127.0.0.1": 0}) as served:
        monkeypatch.setenv("SSL_CERT_FILE", str(served.ca))
        served.begin(time.time())
        item = RemoteFile("data.bin", (Location(served.url),))
        target, quiet = tmp_path / "data.bin", {"stop": lambda: None, "progress": lambda done, total: None}
        got = fetch(item, target, str, retry_timeout_s=60, **quiet)
    assert (tmp_path / "data.bin").read_bytes() == DATA
    assert got.verified_by == "md5"
