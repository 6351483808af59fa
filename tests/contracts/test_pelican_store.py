"""Pelican federations: discovery, the director, caches and origin, tokens, immutable objects, and digests."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import uuid
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from packtrain.errors import FailedError, TransferError
from packtrain.plan import Digest, Location, Output, RemoteFile, Secret
from packtrain.transfer.backends.pelican import director
from packtrain.transfer.backends.pelican import server as pelican_server
from packtrain.transfer.backends.pelican.backend import PelicanBackend, with_credentials
from packtrain.transfer.engine import digest_lookup
from packtrain.transfer.fetch import fetch
from packtrain.transfer.integrity import crc32c
from packtrain.transfer.ordered_download import OrderedDownload, StaleDownloadError
from packtrain.transfer.registry import find_replicas
from packtrain.transfer.upload import upload_file, upload_folder
from testbed import faults
from testbed.faults import FaultProxy
from testbed.federation import DIRECTOR_BUSY, DIRECTOR_UNREACHABLE, CertificateAuthority
from testbed.http_server import HttpServer, ResponseFault
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pelican")]


@pytest.fixture(autouse=True)
def no_tokens(monkeypatch, tmp_path):
    """Hide the tokens of the user who runs the tests."""
    for name in ("BEARER_TOKEN", "BEARER_TOKEN_FILE", "TOKEN", "_CONDOR_CREDS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "nothing"))


@pytest.fixture
def private(federation, monkeypatch):
    """The testbed's own origin, which requires a token and records its requests."""
    monkeypatch.setenv("SSL_CERT_FILE", str(federation.ca))
    (federation.origin.folder / "data").mkdir(exist_ok=True)
    federation.origin.requests.clear()
    federation.director.requests.clear()
    return federation


@pytest.fixture
def xrootd(real_federation, monkeypatch):
    """XRootD servers: an origin and two caches."""
    monkeypatch.setenv("SSL_CERT_FILE", str(real_federation.ca))
    real_federation.director.requests.clear()
    return real_federation


def create_object(folder: Path, data: bytes) -> str:
    name = uuid.uuid4().hex
    (folder / name).write_bytes(data)
    return name


def fetch_bytes(location: Location, target: Path, resolve=str, retry_timeout_s: float = 0) -> bytes:
    remote_file = RemoteFile("x.bin", (location,))
    fetch(
        remote_file,
        target,
        resolve,
        retry_timeout_s=retry_timeout_s,
        check_cancelled=lambda: None,
        on_progress=lambda d, t: None,
    )
    return target.read_bytes()


# Tokens


def test_token_is_sent_to_director_and_server(private, tmp_path):
    name = create_object(private.origin.folder / "data", b"from the origin")
    location = Location(f"pelican://{private.host}/data/{name}", token=Secret("t"))
    assert fetch_bytes(location, tmp_path / "x", lambda _: "t0ken\n") == b"from the origin"
    for request in (private.director.requests[-1], private.origin.requests[-1]):
        assert request.headers["authorization"] == "Bearer t0ken"


def test_missing_token(private):
    with pytest.raises(TransferError, match="no token was sent") as caught:
        PelicanBackend(str).open(Location(f"pelican://{private.host}/data/x"))
    assert caught.value.kind == "access_denied"


def jwt(**claims: object) -> str:
    parts = (json.dumps(part).encode() for part in ({"alg": "none"}, claims))
    return ".".join([*(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts), "signature"])


def test_found_token_is_reread(private, tmp_path, monkeypatch):
    name = create_object(private.origin.folder / "data", b"data")
    monkeypatch.setenv("BEARER_TOKEN_FILE", str(tmp_path / "token"))
    (tmp_path / "token").write_text(jwt(iss=f"https://{private.host}", jti="old") + "\n")
    (replica, *_) = find_replicas(Location(f"pelican://{private.host}/data/{name}"), str)
    with pytest.raises(TransferError) as caught:
        replica.source.open(replica.location)
    assert caught.value.kind == "access_denied"
    renewed = jwt(iss=f"https://{private.host}", jti="new")
    monkeypatch.setattr(private.origin, "token", renewed)
    (tmp_path / "token").write_text(f"{renewed}\n")
    replica.source.open(replica.location).close()
    assert "authorization" not in private.director.requests[-1].headers  # the director needs none


def test_found_token_is_not_sent_if_not_required(private, tmp_path, monkeypatch):
    monkeypatch.setenv("BEARER_TOKEN", jwt(iss=f"https://{private.host}"))
    monkeypatch.setattr(private.director, "require_token", False)
    with pytest.raises(TransferError, match="no token was sent"):
        PelicanBackend(str).stat(Location(f"pelican://{private.host}/data/x"))
    assert all("authorization" not in r.headers for r in (*private.director.requests, *private.origin.requests))


def sent_authorizations(*servers) -> set[str]:
    return {
        request.headers["authorization"]
        for server in servers
        for request in server.requests
        if "authorization" in request.headers
    }


@pytest.mark.parametrize("token", ["t0ken", jwt(iss="https://osg-htc.org/ospool", aud="ANY")])
def test_found_token_is_not_sent_to_other_federations(private, monkeypatch, token):
    """A malicious federation could collect tokens by requiring them."""
    monkeypatch.setenv("BEARER_TOKEN", token)
    monkeypatch.setattr(private.origin, "token", token)
    location = Location(f"pelican://{private.host}/data/{create_object(private.origin.folder / 'data', b'data')}")
    with pytest.raises(TransferError, match="configure it in the workflow") as caught:
        PelicanBackend(str).open(location)
    assert caught.value.kind == "access_denied"
    assert sent_authorizations(private.director, private.origin) == set()
    PelicanBackend(str).open(replace(location, token=token)).close()
    assert sent_authorizations(private.director, private.origin) == {f"Bearer {token}"}


def test_token_of_the_federation_is_chosen(private, tmp_path, monkeypatch):
    matching_token = jwt(iss="https://issuer.example.org", aud=["https://other.example.org", f"https://{private.host}"])
    monkeypatch.setenv("BEARER_TOKEN", jwt(iss="https://osg-htc.org/ospool"))
    monkeypatch.setenv("BEARER_TOKEN_FILE", str(tmp_path / "token"))
    (tmp_path / "token").write_text(matching_token)
    monkeypatch.setattr(private.origin, "token", matching_token)
    PelicanBackend(str).open(
        Location(f"pelican://{private.host}/data/{create_object(private.origin.folder / 'data', b'data')}")
    ).close()
    assert sent_authorizations(private.director, private.origin) == {f"Bearer {matching_token}"}


def test_plain_http_director_gets_no_token(private, tmp_path, monkeypatch):
    with HttpServer(tmp_path) as plain:
        monkeypatch.setattr(director, "_discover_director", lambda federation: plain.url)
        with pytest.raises(TransferError):
            PelicanBackend(str).open(Location("pelican://plain.example.org/data/x", token="t0ken"))
    assert plain.requests and sent_authorizations(plain) == set()


def test_plain_http_cache_gets_no_token(private, tmp_path, monkeypatch):
    monkeypatch.setenv("BEARER_TOKEN", jwt(iss=f"https://{private.host}"))
    (tmp_path / "data").mkdir()
    name = create_object(tmp_path / "data", b"open to all")
    with HttpServer(tmp_path, host="localhost") as cache:
        monkeypatch.setattr(private.director, "caches", [cache.url])
        for location in (
            Location(f"pelican://{private.host}/data/{name}", token=token) for token in (None, "explicit")
        ):
            PelicanBackend(str).open(location).close()
    assert {"authorization"} & {name for request in cache.requests for name in request.headers} == set()


def test_credentials_over_https_only():
    location = Location("osdf:///nrp/x", token=Secret("t"))
    assert with_credentials(location, "https://cache:8443/nrp/x").token == Secret("t")
    assert with_credentials(location, "http://cache:8000/nrp/x") == Location("http://cache:8000/nrp/x")


# The director


def test_replicas_are_caches_then_origin(xrootd):
    replicas = find_replicas(Location(xrootd.url("x")), str)
    assert [replica.label for replica in replicas] == [
        server.url.partition("://")[2] for server in (*xrootd.caches, xrootd.origin)
    ]
    assert [replica.is_fallback for replica in replicas] == [False, False, True]


def test_fallback_reads_from_the_origin(xrootd, tmp_path):
    name = create_object(xrootd.origin.object_dir, b"at the origin")
    *_, origin = find_replicas(Location(xrootd.url(name)), str)
    xrootd.director.requests.clear()
    for _ in range(3):
        stream = origin.source.open(origin.location)
        assert stream.read(100) == b"at the origin"
        stream.close()
    (request,) = xrootd.director.requests  # one request for several connections
    assert request.path == f"/api/v1.0/director/origin/data/{name}?directread"


def test_directread_skips_the_caches(xrootd, tmp_path):
    name = create_object(xrootd.origin.object_dir, b"direct")
    (replica,) = find_replicas(Location(xrootd.url(f"{name}?directread")), str)
    assert replica.label == xrootd.origin.url.partition("://")[2]
    assert fetch_bytes(Location(xrootd.url(f"{name}?directread")), tmp_path / "x") == b"direct"


def test_other_flags_are_forwarded(xrootd):
    (replica, *_) = find_replicas(Location(xrootd.url("x?pack=tar.gz&skipstat")), str)
    assert replica.location.url.endswith("/data/x?pack=tar.gz&skipstat")


def test_discovery_is_cached(xrootd):
    for _ in range(3):
        find_replicas(Location(xrootd.url("x")), str)
    assert sum("well-known" in request.path for request in xrootd.director.requests) <= 1


@pytest.mark.parametrize("fault", [DIRECTOR_BUSY, DIRECTOR_UNREACHABLE])
def test_restarting_director_is_retried(xrootd, tmp_path, fault):
    name = create_object(xrootd.origin.object_dir, b"worth the wait")
    xrootd.director.queued_faults = [fault] * 2
    assert fetch_bytes(Location(xrootd.url(name)), tmp_path / "x", retry_timeout_s=20) == b"worth the wait"
    assert xrootd.director.queued_faults == []


@pytest.mark.parametrize("fault", [DIRECTOR_BUSY, DIRECTOR_UNREACHABLE])
def test_director_fault_is_not_object_missing(xrootd, fault):
    xrootd.director.queued_faults = [fault]
    with pytest.raises(TransferError) as caught:
        PelicanBackend(str).stat(Location(xrootd.url("x")))
    assert caught.value.kind == "service_unavailable"


def test_path_outside_every_namespace(xrootd):
    with pytest.raises(TransferError, match="No namespace found") as caught:
        PelicanBackend(str).stat(Location(f"pelican://{xrootd.host}/elsewhere/x"))
    assert caught.value.kind == "object_missing"


def test_host_is_not_a_federation(tmp_path, monkeypatch):
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
def test_object_sizes(xrootd, tmp_path, size):
    data = os.urandom(size)
    assert fetch_bytes(Location(xrootd.url(create_object(xrootd.origin.object_dir, data))), tmp_path / "x") == data


def test_agrees_with_pelicanfs(xrootd, tmp_path):
    """pelicanfs is an independent client, so this also checks the test federation."""
    from pelicanfs.core import PelicanFileSystem

    folder = xrootd.origin.object_dir / uuid.uuid4().hex
    folder.mkdir()
    for name, data in {"a.bin": os.urandom(3_000_000), "b.bin": b"b"}.items():
        (folder / name).write_bytes(data)
    pelicanfs = PelicanFileSystem(f"pelican://{xrootd.host}", skip_instance_cache=True)
    backend = PelicanBackend(str)
    for entry in backend.list(Location(xrootd.url(folder.name))):
        data = pelicanfs.cat(f"/data/{folder.name}/{entry.name}")
        assert data == (folder / entry.name).read_bytes() == fetch_bytes(entry.location, tmp_path / entry.name)
    listed = [Path(path).name for path in pelicanfs.ls(f"/data/{folder.name}", detail=False)]
    assert sorted(listed) == [entry.name for entry in backend.list(Location(xrootd.url(f"{folder.name}?recursive")))]


def test_pelicanfs_reads_uploads(xrootd, tmp_path):
    from pelicanfs.core import PelicanFileSystem

    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "model.pt").write_bytes(os.urandom(2_000_000))
    prefix = uuid.uuid4().hex
    output = Output(Location(xrootd.url(prefix)))
    upload_folder(
        tmp_path / "out", output, str, check_cancelled=lambda: None, on_progress=lambda d, t: None, retry_timeout_s=5
    )
    pelicanfs = PelicanFileSystem(f"pelican://{xrootd.host}", skip_instance_cache=True)
    assert pelicanfs.cat(f"/data/{prefix}/model.pt") == (tmp_path / "out" / "model.pt").read_bytes()


def test_different_content_is_rejected(xrootd, tmp_path):
    name = create_object(xrootd.origin.object_dir, b"the first one")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_bytes(b"the other one")
    with pytest.raises(FailedError, match=r"exists with different content.*use a new name") as caught:
        upload_folder(
            tmp_path / "out",
            Output(Location(xrootd.url(""))),
            str,
            check_cancelled=lambda: None,
            on_progress=lambda d, t: None,
            retry_timeout_s=60,
        )
    assert caught.value.kind == "upload_failed"
    assert (xrootd.origin.object_dir / name).read_bytes() == b"the first one"


def test_cancelled_upload_can_be_repeated(xrootd, tmp_path):
    class UploadCancelled(Exception):
        pass

    def cancel(count: int) -> None:
        raise UploadCancelled

    (tmp_path / "big").write_bytes(os.urandom(5_000_000))
    name = uuid.uuid4().hex
    location = Location(xrootd.url(name))
    with pytest.raises(UploadCancelled):
        PelicanBackend(str).put(location, tmp_path / "big", cancel)
    wait_until(lambda: not (xrootd.origin.object_dir / name).exists())
    # Retry, because the origin may still be closing the cancelled upload.
    upload_file(tmp_path / "big", Output(Location(xrootd.url("").rstrip("/"))), name, str, retry_timeout_s=30)
    assert fetch_bytes(location, tmp_path / "x") == (tmp_path / "big").read_bytes()


def test_partial_upload_is_replaced(private, tmp_path):
    (tmp_path / "file").write_bytes(b"all of it")
    name = create_object(private.origin.folder / "data", b"all of")
    location = Location(f"pelican://{private.host}/data/{name}", token="t0ken")
    PelicanBackend(str).put(location, tmp_path / "file")
    assert (private.origin.folder / "data" / name).read_bytes() == b"all of it"


def test_listing_is_unsupported(private):
    private.origin.faults = [ResponseFault(status=405)]
    with pytest.raises(TransferError, match="does not support folder listings"):
        list(PelicanBackend(str).list(Location(f"pelican://{private.host}/data/x", token="t0ken")))


# Digests, which servers of a federation state on request


CORRUPT = [faults.Fault("corrupt", response_offset=1000, max_times=None)]


def read_in_order(location: Location) -> OrderedDownload:
    with OrderedDownload(
        RemoteFile("x", (location,)),
        str,
        retry_timeout_s=5,
        check_cancelled=lambda: None,
        on_progress=lambda d, t: None,
    ) as download:
        while download.read_views(1 << 20):
            pass
    return download


def fetch_object(remote_file: RemoteFile, target: Path, retry_timeout_s: float = 5):
    return fetch(
        remote_file,
        target,
        str,
        retry_timeout_s=retry_timeout_s,
        check_cancelled=lambda: None,
        on_progress=lambda d, t: None,
    )


@pytest.mark.parametrize("size", [0, 70_000, (9 << 20) + 5])
def test_download_is_verified(xrootd, tmp_path, size):
    name = create_object(xrootd.origin.object_dir, os.urandom(size))
    assert fetch_object(RemoteFile(name, (Location(xrootd.url(name)),)), tmp_path / "x").verified_by == "md5"


def test_origin_with_crc32c_only(xrootd, tmp_path, monkeypatch):
    name = create_object(xrootd.origin.object_dir, os.urandom(3 << 20))
    monkeypatch.setitem(
        pelican_server._WANT_DIGEST_HEADERS, "Want-Digest", "sha-256, crc32c, adler32"
    )  # the origin has no sha-256
    remote_file = RemoteFile(name, (Location(xrootd.url(name)),))
    assert fetch_object(remote_file, tmp_path / "x").verified_by == "crc32c"
    assert read_in_order(remote_file.locations[0]).make_result(1).verified_by == "crc32c"


def test_crc32c_without_module_is_replaced(xrootd, tmp_path, monkeypatch):
    name = create_object(xrootd.origin.object_dir, os.urandom(3 << 20))
    monkeypatch.setitem(pelican_server._WANT_DIGEST_HEADERS, "Want-Digest", "crc32c")
    monkeypatch.setattr(crc32c, "find_extend", lambda: None)
    assert fetch_object(RemoteFile(name, (Location(xrootd.url(name)),)), tmp_path / "x").verified_by == "adler32"


def test_ordered_download_is_verified(xrootd):
    name = create_object(xrootd.origin.object_dir, os.urandom(3 << 20))
    download = read_in_order(Location(xrootd.url(name)))
    assert download.make_result(1).verified_by == "md5"


def test_corrupt_cache_is_bypassed(xrootd, tmp_path, monkeypatch):
    data = os.urandom(3 << 20)
    name = create_object(xrootd.origin.object_dir, data)
    with FaultProxy(xrootd.caches[0].url, CORRUPT, upstream_ca_file=xrootd.ca) as proxy:
        monkeypatch.setattr(xrootd.director, "caches", [proxy.url])
        result = fetch_object(RemoteFile(name, (Location(xrootd.url(name)),)), tmp_path / "x")
    assert (result.verified_by, result.retries > 0) == ("md5", True)
    assert proxy.injected_faults
    assert (tmp_path / "x").read_bytes() == data


def test_corrupt_file_is_discarded(xrootd, tmp_path, monkeypatch):
    name = create_object(xrootd.origin.object_dir, os.urandom(3 << 20))
    with FaultProxy(xrootd.origin.url, CORRUPT, upstream_ca_file=xrootd.ca) as proxy:
        monkeypatch.setattr(xrootd.director, "caches", [])
        monkeypatch.setattr(xrootd.director, "origin", proxy.url)
        remote_file = RemoteFile(name, (Location(xrootd.url(name)),))
        with pytest.raises(TransferError, match=r"has the md5 \w+, but should have") as caught:
            fetch_object(remote_file, tmp_path / "x")
        with pytest.raises(StaleDownloadError, match="has the md5"):
            read_in_order(remote_file.locations[0])
    assert caught.value.kind == "digest_mismatch"
    assert list(tmp_path.iterdir()) == []


def test_slow_digest_request_is_no_error(xrootd, tmp_path, monkeypatch):
    data = os.urandom(70_000)
    name = create_object(xrootd.origin.object_dir, data)
    monkeypatch.setattr(digest_lookup, "MAX_DIGEST_WAIT_S", 0.2)
    with FaultProxy(xrootd.origin.url, [faults.Fault("delay", max_times=None)], upstream_ca_file=xrootd.ca) as proxy:
        monkeypatch.setattr(xrootd.director, "origin", proxy.url)
        remote_file = RemoteFile(name, (Location(xrootd.url(name)),))
        assert fetch_object(remote_file, tmp_path / "x").verified_by == ""
        assert read_in_order(remote_file.locations[0]).make_result(1).verified_by == ""
    assert (tmp_path / "x").read_bytes() == data


@pytest.mark.parametrize("fault", [ResponseFault(status=405), ResponseFault(status=503), None])
def test_missing_digest_is_requested_once(private, tmp_path, fault):
    name = create_object(private.origin.folder / "data", b"data")
    private.origin.faults = [None, None, fault]  # stat, the object, and the digest request
    location = Location(f"pelican://{private.host}/data/{name}", token="t0ken")
    assert fetch_object(RemoteFile(name, (location,)), tmp_path / "x").verified_by == ""
    assert sum("want-digest" in request.headers for request in private.origin.requests) == 1
    assert private.origin.faults == []


def test_known_digest_is_not_requested(private, tmp_path, monkeypatch):
    name = create_object(private.origin.folder / "data", b"data")
    location = Location(f"pelican://{private.host}/data/{name}", token="t0ken")
    digest = Digest("md5", hashlib.md5(b"data").hexdigest())
    assert fetch_object(RemoteFile(name, (location,), digest=digest), tmp_path / "x").verified_by == "md5"
    monkeypatch.setattr(private.origin, "headers", {"Digest": f"adler32={zlib.adler32(b'data'):08x}"})
    assert fetch_object(RemoteFile(name, (location,)), tmp_path / "y").verified_by == "adler32"
    assert not any("want-digest" in request.headers for request in private.origin.requests)
