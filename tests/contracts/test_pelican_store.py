"""What only a federation has: discovery, a director, ranked caches before an origin, tokens, and names for ever."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import time
import uuid
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from packtrain.errors import FailedError, TransferError
from packtrain.plan import Digest, Location, Output, RemoteFile, Secret
from packtrain.transfer import crc32c
from packtrain.transfer.backends.pelican import director
from packtrain.transfer.backends.pelican import server as federated
from packtrain.transfer.backends.pelican.backend import PelicanBackend, with_credentials
from packtrain.transfer.engine import digest_lookup
from packtrain.transfer.fetch import fetch
from packtrain.transfer.ordered_download import OrderedDownload, StaleDownloadError
from packtrain.transfer.registry import find_replicas
from packtrain.transfer.upload import upload_file, upload_folder
from testbed import faults
from testbed.faults import FaultProxy
from testbed.federation import DIRECTOR_BUSY, DIRECTOR_UNREACHABLE, CertificateAuthority
from testbed.http_server import HttpServer, ResponseFault

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pelican")]


@pytest.fixture(autouse=True)
def no_tokens(monkeypatch, tmp_path):
    """Whoever runs the tests may have some."""
    for name in ("BEARER_TOKEN", "BEARER_TOKEN_FILE", "TOKEN", "_CONDOR_CREDS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "nothing"))


@pytest.fixture
def ours(federation, monkeypatch):
    """One origin of ours that demands a token, and remembers who came."""
    monkeypatch.setenv("SSL_CERT_FILE", str(federation.ca))
    (federation.origin.folder / "data").mkdir(exist_ok=True)
    federation.origin.seen.clear()
    federation.director.seen.clear()
    return federation


@pytest.fixture
def real(real_federation, monkeypatch):
    """XRootD: an origin and two caches."""
    monkeypatch.setenv("SSL_CERT_FILE", str(real_federation.ca))
    real_federation.director.seen.clear()
    return real_federation


def made(folder: Path, data: bytes) -> str:
    name = uuid.uuid4().hex
    (folder / name).write_bytes(data)
    return name


def fetched(ref: Location, target: Path, reveal=str, patience_s: float = 0) -> bytes:
    item = RemoteFile("x.bin", (ref,))
    fetch(item, target, reveal, retry_timeout_s=patience_s, check_cancelled=lambda: None, on_progress=lambda d, t: None)
    return target.read_bytes()


# Tokens


def test_the_token_reaches_the_director_and_the_server_that_it_names(ours, tmp_path):
    name = made(ours.origin.folder / "data", b"from the origin")
    ref = Location(f"pelican://{ours.host}/data/{name}", token=Secret("t"))
    assert fetched(ref, tmp_path / "x", lambda _: "t0ken\n") == b"from the origin"
    for seen in (ours.director.seen[-1], ours.origin.seen[-1]):
        assert seen.headers["authorization"] == "Bearer t0ken"


def test_without_the_token_it_is_refused(ours):
    with pytest.raises(TransferError, match="no token was sent") as caught:
        PelicanBackend(str).open(Location(f"pelican://{ours.host}/data/x"))
    assert caught.value.kind == "access_denied"


def jwt(**claims: object) -> str:
    parts = (json.dumps(part).encode() for part in ({"alg": "none"}, claims))
    return ".".join([*(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts), "signature"])


def test_a_token_of_the_machine_is_used_where_one_is_needed_and_read_again(ours, tmp_path, monkeypatch):
    name = made(ours.origin.folder / "data", b"data")
    monkeypatch.setenv("BEARER_TOKEN_FILE", str(tmp_path / "token"))
    (tmp_path / "token").write_text(jwt(iss=f"https://{ours.host}", jti="old") + "\n")
    (place, *_) = find_replicas(Location(f"pelican://{ours.host}/data/{name}"), str)
    with pytest.raises(TransferError) as caught:
        place.source.open(place.location)
    assert caught.value.kind == "access_denied"
    renewed = jwt(iss=f"https://{ours.host}", jti="new")
    monkeypatch.setattr(ours.origin, "token", renewed)
    (tmp_path / "token").write_text(f"{renewed}\n")
    place.source.open(place.location).close()
    assert "authorization" not in ours.director.seen[-1].headers  # it did not ask for one


def test_a_token_of_the_machine_stays_at_home_where_none_is_needed(ours, tmp_path, monkeypatch):
    monkeypatch.setenv("BEARER_TOKEN", jwt(iss=f"https://{ours.host}"))
    monkeypatch.setattr(ours.director, "require_token", False)
    with pytest.raises(TransferError, match="no token was sent"):
        PelicanBackend(str).stat(Location(f"pelican://{ours.host}/data/x"))
    assert all("authorization" not in seen.headers for seen in (*ours.director.seen, *ours.origin.seen))


def heard(*servers) -> set[str]:
    return {
        seen.headers["authorization"] for server in servers for seen in server.seen if "authorization" in seen.headers
    }


@pytest.mark.parametrize("token", ["t0ken", jwt(iss="https://osg-htc.org/ospool", aud="ANY")])
def test_a_token_of_the_machine_does_not_go_to_a_federation_that_it_does_not_name(ours, monkeypatch, token):
    """Whoever runs one could collect tokens by saying that it needs them."""
    monkeypatch.setenv("BEARER_TOKEN", token)
    monkeypatch.setattr(ours.origin, "token", token)
    ref = Location(f"pelican://{ours.host}/data/{made(ours.origin.folder / 'data', b'data')}")
    with pytest.raises(TransferError, match="name it in the workflow") as caught:
        PelicanBackend(str).open(ref)
    assert caught.value.kind == "access_denied"
    assert heard(ours.director, ours.origin) == set()
    PelicanBackend(str).open(replace(ref, token=token)).close()
    assert heard(ours.director, ours.origin) == {f"Bearer {token}"}


def test_of_several_tokens_the_one_that_is_meant_for_the_federation_goes_there(ours, tmp_path, monkeypatch):
    meant = jwt(iss="https://issuer.example.org", aud=["https://other.example.org", f"https://{ours.host}"])
    monkeypatch.setenv("BEARER_TOKEN", jwt(iss="https://osg-htc.org/ospool"))
    monkeypatch.setenv("BEARER_TOKEN_FILE", str(tmp_path / "token"))
    (tmp_path / "token").write_text(meant)
    monkeypatch.setattr(ours.origin, "token", meant)
    PelicanBackend(str).open(
        Location(f"pelican://{ours.host}/data/{made(ours.origin.folder / 'data', b'data')}")
    ).close()
    assert heard(ours.director, ours.origin) == {f"Bearer {meant}"}


def test_a_director_behind_plain_http_gets_no_token(ours, tmp_path, monkeypatch):
    with HttpServer(tmp_path) as plain:
        monkeypatch.setattr(director, "_discover_director", lambda federation: plain.url)
        with pytest.raises(TransferError):
            PelicanBackend(str).open(Location("pelican://plain.example.org/data/x", token="t0ken"))
    assert plain.requests and heard(plain) == set()


def test_no_token_goes_over_plain_http(ours, tmp_path, monkeypatch):
    monkeypatch.setenv("BEARER_TOKEN", jwt(iss=f"https://{ours.host}"))
    (tmp_path / "data").mkdir()
    name = made(tmp_path / "data", b"open to all")
    with HttpServer(tmp_path, host="localhost") as cache:
        monkeypatch.setattr(ours.director, "caches", [cache.url])
        for ref in (Location(f"pelican://{ours.host}/data/{name}", token=token) for token in (None, "explicit")):
            PelicanBackend(str).open(ref).close()
    assert {"authorization"} & {name for seen in cache.requests for name in seen.headers} == set()


def test_the_token_goes_along_over_https_only():
    ref = Location("osdf:///nrp/x", token=Secret("t"))
    assert with_credentials(ref, "https://cache:8443/nrp/x").token == Secret("t")
    assert with_credentials(ref, "http://cache:8000/nrp/x") == Location("http://cache:8000/nrp/x")


# The director


def test_places_are_the_caches_by_rank_and_the_origin_as_last_resort(real):
    places = find_replicas(Location(real.url("x")), str)
    assert [place.label for place in places] == [
        server.url.partition("://")[2] for server in (*real.caches, real.origin)
    ]
    assert [place.is_fallback for place in places] == [False, False, True]


def test_the_last_resort_is_the_origin_itself(real, tmp_path):
    name = made(real.origin.objects, b"at the origin")
    *_, origin = find_replicas(Location(real.url(name)), str)
    real.director.seen.clear()
    for _ in range(3):
        stream = origin.source.open(origin.location)
        assert stream.read(100) == b"at the origin"
        stream.close()
    (asked,) = real.director.seen  # once for several connections
    assert asked.path == f"/api/v1.0/director/origin/data/{name}?directread"


def test_directread_leaves_the_caches_alone(real, tmp_path):
    name = made(real.origin.objects, b"direct")
    (place,) = find_replicas(Location(real.url(f"{name}?directread")), str)
    assert place.label == real.origin.url.partition("://")[2]
    assert fetched(Location(real.url(f"{name}?directread")), tmp_path / "x") == b"direct"


def test_other_flags_are_passed_through(real):
    (place, *_) = find_replicas(Location(real.url("x?pack=tar.gz&skipstat")), str)
    assert place.location.url.endswith("/data/x?pack=tar.gz&skipstat")


def test_the_federation_is_discovered_once(real):
    for _ in range(3):
        find_replicas(Location(real.url("x")), str)
    assert sum("well-known" in seen.path for seen in real.director.seen) <= 1


@pytest.mark.parametrize("trouble", [DIRECTOR_BUSY, DIRECTOR_UNREACHABLE])
def test_a_director_that_restarts_is_waited_for(real, tmp_path, trouble):
    name = made(real.origin.objects, b"worth the wait")
    real.director.troubles = [trouble] * 2
    assert fetched(Location(real.url(name)), tmp_path / "x", patience_s=20) == b"worth the wait"
    assert real.director.troubles == []


@pytest.mark.parametrize("trouble", [DIRECTOR_BUSY, DIRECTOR_UNREACHABLE])
def test_a_director_in_trouble_does_not_say_that_an_object_is_missing(real, trouble):
    real.director.troubles = [trouble]
    with pytest.raises(TransferError) as caught:
        PelicanBackend(str).stat(Location(real.url("x")))
    assert caught.value.kind == "service_unavailable"


def test_a_path_outside_of_every_namespace_is_missing(real):
    with pytest.raises(TransferError, match="No namespace found") as caught:
        PelicanBackend(str).stat(Location(f"pelican://{real.host}/elsewhere/x"))
    assert caught.value.kind == "object_missing"


def test_a_server_that_is_no_federation_is_told(tmp_path, monkeypatch):
    authority = CertificateAuthority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    page = Path(tmp_path, ".well-known", "pelican-configuration")
    page.parent.mkdir()
    page.write_text("<html>welcome</html>")
    with HttpServer(tmp_path, host="localhost", tls=authority.cert_and_key) as origin:
        host = origin.url.partition("://")[2]
        with pytest.raises(TransferError, match="not the discovery document") as caught:
            PelicanBackend(str).stat(Location(f"pelican://{host}/data/x"))
    assert caught.value.kind == "unexpected_content"


# Objects


@pytest.mark.parametrize("size", [0, 1, 70_000, 4 << 20, (9 << 20) + 5])
def test_objects_of_any_size_come_through_the_caches(real, tmp_path, size):
    data = os.urandom(size)
    assert fetched(Location(real.url(made(real.origin.objects, data))), tmp_path / "x") == data


def test_pelicanfs_reads_and_lists_the_same(real, tmp_path):
    """The reference client: what it takes for a federation is one."""
    from pelicanfs.core import PelicanFileSystem

    folder = real.origin.objects / uuid.uuid4().hex
    folder.mkdir()
    for name, data in {"a.bin": os.urandom(3_000_000), "b.bin": b"b"}.items():
        (folder / name).write_bytes(data)
    theirs = PelicanFileSystem(f"pelican://{real.host}", skip_instance_cache=True)
    ours = PelicanBackend(str)
    for entry in ours.list(Location(real.url(folder.name))):
        read = theirs.cat(f"/data/{folder.name}/{entry.name}")
        assert read == (folder / entry.name).read_bytes() == fetched(entry.location, tmp_path / entry.name)
    listed = [Path(path).name for path in theirs.ls(f"/data/{folder.name}", detail=False)]
    assert sorted(listed) == [entry.name for entry in ours.list(Location(real.url(f"{folder.name}?recursive")))]


def test_what_was_put_is_known_by_pelicanfs(real, tmp_path):
    from pelicanfs.core import PelicanFileSystem

    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "model.pt").write_bytes(os.urandom(2_000_000))
    place = uuid.uuid4().hex
    output = Output(Location(real.url(place)))
    upload_folder(
        tmp_path / "out", output, str, check_cancelled=lambda: None, on_progress=lambda d, t: None, retry_timeout_s=5
    )
    theirs = PelicanFileSystem(f"pelican://{real.host}", skip_instance_cache=True)
    assert theirs.cat(f"/data/{place}/model.pt") == (tmp_path / "out" / "model.pt").read_bytes()


def test_another_content_under_a_name_that_is_taken_is_refused_at_once(real, tmp_path):
    name = made(real.origin.objects, b"the first one")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_bytes(b"the other one")
    with pytest.raises(FailedError, match=r"exists already with other content.*use a new name") as caught:
        upload_folder(
            tmp_path / "out",
            Output(Location(real.url(""))),
            str,
            check_cancelled=lambda: None,
            on_progress=lambda d, t: None,
            retry_timeout_s=60,
        )
    assert caught.value.kind == "upload_failed"
    assert (real.origin.objects / name).read_bytes() == b"the first one"


def test_an_upload_that_is_cut_off_leaves_nothing_and_can_be_repeated(real, tmp_path):
    class Cut(Exception):
        pass

    def cut(count: int) -> None:
        raise Cut

    (tmp_path / "big").write_bytes(os.urandom(5_000_000))
    name = uuid.uuid4().hex
    ref = Location(real.url(name))
    with pytest.raises(Cut):
        PelicanBackend(str).put(ref, tmp_path / "big", cut)
    gone_by = time.monotonic() + 10
    while (real.origin.objects / name).exists() and time.monotonic() < gone_by:
        time.sleep(0.02)
    assert not (real.origin.objects / name).exists()
    # With patience: the origin may still be closing what was cut off.
    upload_file(tmp_path / "big", Output(Location(real.url("").rstrip("/"))), name, str, retry_timeout_s=30)
    assert fetched(ref, tmp_path / "x") == (tmp_path / "big").read_bytes()


def test_what_an_origin_kept_of_a_cut_upload_is_replaced(ours, tmp_path):
    (tmp_path / "file").write_bytes(b"all of it")
    name = made(ours.origin.folder / "data", b"all of")
    ref = Location(f"pelican://{ours.host}/data/{name}", token="t0ken")
    PelicanBackend(str).put(ref, tmp_path / "file")
    assert (ours.origin.folder / "data" / name).read_bytes() == b"all of it"


def test_a_folder_that_does_not_list_is_told(ours):
    ours.origin.faults = [ResponseFault(status=405)]
    with pytest.raises(TransferError, match="does not list"):
        list(PelicanBackend(str).list(Location(f"pelican://{ours.host}/data/x", token="t0ken")))


# Digests, which servers of a federation state when they are asked


CORRUPT = [faults.Fault("corrupt", response_offset=1000, max_times=None)]


def in_order(ref: Location) -> OrderedDownload:
    with OrderedDownload(
        RemoteFile("x", (ref,)), str, retry_timeout_s=5, check_cancelled=lambda: None, on_progress=lambda d, t: None
    ) as read:
        while read.read_views(1 << 20):
            pass
    return read


def checked(item: RemoteFile, target: Path, patience_s: float = 5):
    return fetch(
        item, target, str, retry_timeout_s=patience_s, check_cancelled=lambda: None, on_progress=lambda d, t: None
    )


@pytest.mark.parametrize("size", [0, 70_000, (9 << 20) + 5])
def test_a_download_through_caches_is_compared_with_the_digest_of_the_origin(real, tmp_path, size):
    name = made(real.origin.objects, os.urandom(size))
    assert checked(RemoteFile(name, (Location(real.url(name)),)), tmp_path / "x").verified_by == "md5"


def test_an_origin_that_has_no_more_than_a_crc32c(real, tmp_path, monkeypatch):
    name = made(real.origin.objects, os.urandom(3 << 20))
    monkeypatch.setitem(federated._WANT_DIGEST_HEADERS, "Want-Digest", "sha-256, crc32c, adler32")  # it has no sha-256
    item = RemoteFile(name, (Location(real.url(name)),))
    assert checked(item, tmp_path / "x").verified_by == "crc32c"
    assert in_order(item.locations[0]).make_result(1).verified_by == "crc32c"


def test_an_origin_whose_crc32c_would_take_too_long_is_asked_for_another(real, tmp_path, monkeypatch):
    name = made(real.origin.objects, os.urandom(3 << 20))
    monkeypatch.setitem(federated._WANT_DIGEST_HEADERS, "Want-Digest", "crc32c")
    monkeypatch.setattr(crc32c, "_find_native_extend", lambda: None)
    monkeypatch.setattr(crc32c, "MAX_PURE_PYTHON_UNREQUESTED_BYTES", 1 << 20)
    assert checked(RemoteFile(name, (Location(real.url(name)),)), tmp_path / "x").verified_by == "adler32"


def test_a_read_in_order_is_compared_too(real):
    name = made(real.origin.objects, os.urandom(3 << 20))
    read = in_order(Location(real.url(name)))
    assert read.make_result(1).verified_by == "md5"


def test_what_a_cache_has_corrupted_is_found_out_and_fetched_elsewhere(real, tmp_path, monkeypatch):
    data = os.urandom(3 << 20)
    name = made(real.origin.objects, data)
    with FaultProxy(real.caches[0].url, CORRUPT, upstream_ca_file=real.ca) as proxy:
        monkeypatch.setattr(real.director, "caches", [proxy.url])
        got = checked(RemoteFile(name, (Location(real.url(name)),)), tmp_path / "x")
    assert (got.verified_by, got.retries > 0) == ("md5", True)
    assert proxy.injected_faults
    assert (tmp_path / "x").read_bytes() == data


def test_a_corrupted_file_never_gets_its_name(real, tmp_path, monkeypatch):
    name = made(real.origin.objects, os.urandom(3 << 20))
    with FaultProxy(real.origin.url, CORRUPT, upstream_ca_file=real.ca) as proxy:
        monkeypatch.setattr(real.director, "caches", [])
        monkeypatch.setattr(real.director, "origin", proxy.url)
        item = RemoteFile(name, (Location(real.url(name)),))
        with pytest.raises(TransferError, match=r"has the md5 \w+, but should have") as caught:
            checked(item, tmp_path / "x")
        with pytest.raises(StaleDownloadError, match="has the md5"):
            in_order(item.locations[0])
    assert caught.value.kind == "digest_mismatch"
    assert list(tmp_path.iterdir()) == []


def test_an_origin_that_keeps_silent_is_no_error(real, tmp_path, monkeypatch):
    data = os.urandom(70_000)
    name = made(real.origin.objects, data)
    monkeypatch.setattr(digest_lookup, "MAX_DIGEST_WAIT_S", 0.2)
    with FaultProxy(real.origin.url, [faults.Fault("late", max_times=None)], upstream_ca_file=real.ca) as proxy:
        monkeypatch.setattr(real.director, "origin", proxy.url)
        item = RemoteFile(name, (Location(real.url(name)),))
        assert checked(item, tmp_path / "x").verified_by == ""
        assert in_order(item.locations[0]).make_result(1).verified_by == ""
    assert (tmp_path / "x").read_bytes() == data


@pytest.mark.parametrize("fault", [ResponseFault(status=405), ResponseFault(status=503), None])
def test_a_server_that_does_not_tell_is_asked_once(ours, tmp_path, fault):
    name = made(ours.origin.folder / "data", b"data")
    ours.origin.faults = [None, None, fault]  # a look, the object, and the question
    ref = Location(f"pelican://{ours.host}/data/{name}", token="t0ken")
    assert checked(RemoteFile(name, (ref,)), tmp_path / "x").verified_by == ""
    assert sum("want-digest" in seen.headers for seen in ours.origin.seen) == 1
    assert ours.origin.faults == []


def test_nobody_is_asked_where_the_answers_or_the_user_have_a_digest(ours, tmp_path, monkeypatch):
    name = made(ours.origin.folder / "data", b"data")
    ref = Location(f"pelican://{ours.host}/data/{name}", token="t0ken")
    digest = Digest("md5", hashlib.md5(b"data").hexdigest())
    assert checked(RemoteFile(name, (ref,), digest=digest), tmp_path / "x").verified_by == "md5"
    monkeypatch.setattr(ours.origin, "headers", {"Digest": f"adler32={zlib.adler32(b'data'):08x}"})
    assert checked(RemoteFile(name, (ref,)), tmp_path / "y").verified_by == "adler32"
    assert not any("want-digest" in seen.headers for seen in ours.origin.seen)
