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
from packtrain.plan import Digest, Item, Output, Ref, Secret
from packtrain.transfer import crc32c
from packtrain.transfer.backends.pelican import director
from packtrain.transfer.backends.pelican import server as federated
from packtrain.transfer.backends.pelican.backend import PelicanStore, let_in
from packtrain.transfer.engine import digest_lookup
from packtrain.transfer.fetch import fetch
from packtrain.transfer.ordered_download import Ordered, SpoiledError
from packtrain.transfer.registry import places_for
from packtrain.transfer.upload import upload_file, upload_folder
from testbed import faults
from testbed.faults import FaultProxy
from testbed.federation import BUSY, FOREIGN, Authority
from testbed.http_server import Fault, Origin

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


def fetched(ref: Ref, target: Path, reveal=str, patience_s: float = 0) -> bytes:
    item = Item("x.bin", (ref,))
    fetch(item, target, reveal, patience_s=patience_s, stop=lambda: None, progress=lambda d, t: None)
    return target.read_bytes()


# Tokens


def test_the_token_reaches_the_director_and_the_server_that_it_names(ours, tmp_path):
    name = made(ours.origin.folder / "data", b"from the origin")
    ref = Ref(f"pelican://{ours.host}/data/{name}", token=Secret("t"))
    assert fetched(ref, tmp_path / "x", lambda _: "t0ken\n") == b"from the origin"
    for seen in (ours.director.seen[-1], ours.origin.seen[-1]):
        assert seen.headers["authorization"] == "Bearer t0ken"


def test_without_the_token_it_is_refused(ours):
    with pytest.raises(TransferError, match="no token was sent") as caught:
        PelicanStore(str).open(Ref(f"pelican://{ours.host}/data/x"))
    assert caught.value.kind == "token_refused"


def jwt(**claims: object) -> str:
    parts = (json.dumps(part).encode() for part in ({"alg": "none"}, claims))
    return ".".join([*(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts), "signature"])


def test_a_token_of_the_machine_is_used_where_one_is_needed_and_read_again(ours, tmp_path, monkeypatch):
    name = made(ours.origin.folder / "data", b"data")
    monkeypatch.setenv("BEARER_TOKEN_FILE", str(tmp_path / "token"))
    (tmp_path / "token").write_text(jwt(iss=f"https://{ours.host}", jti="old") + "\n")
    (place, *_) = places_for(Ref(f"pelican://{ours.host}/data/{name}"), str)
    with pytest.raises(TransferError) as caught:
        place.source.open(place.ref)
    assert caught.value.kind == "token_refused"
    renewed = jwt(iss=f"https://{ours.host}", jti="new")
    monkeypatch.setattr(ours.origin, "token", renewed)
    (tmp_path / "token").write_text(f"{renewed}\n")
    place.source.open(place.ref).close()
    assert "authorization" not in ours.director.seen[-1].headers  # it did not ask for one


def test_a_token_of_the_machine_stays_at_home_where_none_is_needed(ours, tmp_path, monkeypatch):
    monkeypatch.setenv("BEARER_TOKEN", jwt(iss=f"https://{ours.host}"))
    monkeypatch.setattr(ours.director, "require_token", False)
    with pytest.raises(TransferError, match="no token was sent"):
        PelicanStore(str).stat(Ref(f"pelican://{ours.host}/data/x"))
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
    ref = Ref(f"pelican://{ours.host}/data/{made(ours.origin.folder / 'data', b'data')}")
    with pytest.raises(TransferError, match="name it in the workflow") as caught:
        PelicanStore(str).open(ref)
    assert caught.value.kind == "token_refused"
    assert heard(ours.director, ours.origin) == set()
    PelicanStore(str).open(replace(ref, token=token)).close()
    assert heard(ours.director, ours.origin) == {f"Bearer {token}"}


def test_of_several_tokens_the_one_that_is_meant_for_the_federation_goes_there(ours, tmp_path, monkeypatch):
    meant = jwt(iss="https://issuer.example.org", aud=["https://other.example.org", f"https://{ours.host}"])
    monkeypatch.setenv("BEARER_TOKEN", jwt(iss="https://osg-htc.org/ospool"))
    monkeypatch.setenv("BEARER_TOKEN_FILE", str(tmp_path / "token"))
    (tmp_path / "token").write_text(meant)
    monkeypatch.setattr(ours.origin, "token", meant)
    PelicanStore(str).open(Ref(f"pelican://{ours.host}/data/{made(ours.origin.folder / 'data', b'data')}")).close()
    assert heard(ours.director, ours.origin) == {f"Bearer {meant}"}


def test_a_director_behind_plain_http_gets_no_token(ours, tmp_path, monkeypatch):
    with Origin(tmp_path) as plain:
        monkeypatch.setattr(director, "_discovered", lambda federation: plain.url)
        with pytest.raises(TransferError):
            PelicanStore(str).open(Ref("pelican://plain.example.org/data/x", token="t0ken"))
    assert plain.seen and heard(plain) == set()


def test_no_token_goes_over_plain_http(ours, tmp_path, monkeypatch):
    monkeypatch.setenv("BEARER_TOKEN", jwt(iss=f"https://{ours.host}"))
    (tmp_path / "data").mkdir()
    name = made(tmp_path / "data", b"open to all")
    with Origin(tmp_path, host="localhost") as cache:
        monkeypatch.setattr(ours.director, "caches", [cache.url])
        for ref in (Ref(f"pelican://{ours.host}/data/{name}", token=token) for token in (None, "explicit")):
            PelicanStore(str).open(ref).close()
    assert {"authorization"} & {name for seen in cache.seen for name in seen.headers} == set()


def test_the_token_goes_along_over_https_only():
    ref = Ref("osdf:///nrp/x", token=Secret("t"))
    assert let_in(ref, "https://cache:8443/nrp/x").token == Secret("t")
    assert let_in(ref, "http://cache:8000/nrp/x") == Ref("http://cache:8000/nrp/x")


# The director


def test_places_are_the_caches_by_rank_and_the_origin_as_last_resort(real):
    places = places_for(Ref(real.url("x")), str)
    assert [place.label for place in places] == [
        server.url.partition("://")[2] for server in (*real.caches, real.origin)
    ]
    assert [place.last_resort for place in places] == [False, False, True]


def test_the_last_resort_is_the_origin_itself(real, tmp_path):
    name = made(real.origin.objects, b"at the origin")
    *_, origin = places_for(Ref(real.url(name)), str)
    real.director.seen.clear()
    for _ in range(3):
        stream = origin.source.open(origin.ref)
        assert stream.read(100) == b"at the origin"
        stream.close()
    (asked,) = real.director.seen  # once for several connections
    assert asked.path == f"/api/v1.0/director/origin/data/{name}?directread"


def test_directread_leaves_the_caches_alone(real, tmp_path):
    name = made(real.origin.objects, b"direct")
    (place,) = places_for(Ref(real.url(f"{name}?directread")), str)
    assert place.label == real.origin.url.partition("://")[2]
    assert fetched(Ref(real.url(f"{name}?directread")), tmp_path / "x") == b"direct"


def test_other_flags_are_passed_through(real):
    (place, *_) = places_for(Ref(real.url("x?pack=tar.gz&skipstat")), str)
    assert place.ref.url.endswith("/data/x?pack=tar.gz&skipstat")


def test_the_federation_is_discovered_once(real):
    for _ in range(3):
        places_for(Ref(real.url("x")), str)
    assert sum("well-known" in seen.path for seen in real.director.seen) <= 1


@pytest.mark.parametrize("trouble", [BUSY, FOREIGN])
def test_a_director_that_restarts_is_waited_for(real, tmp_path, trouble):
    name = made(real.origin.objects, b"worth the wait")
    real.director.troubles = [trouble] * 2
    assert fetched(Ref(real.url(name)), tmp_path / "x", patience_s=20) == b"worth the wait"
    assert real.director.troubles == []


@pytest.mark.parametrize("trouble", [BUSY, FOREIGN])
def test_a_director_in_trouble_does_not_say_that_an_object_is_missing(real, trouble):
    real.director.troubles = [trouble]
    with pytest.raises(TransferError) as caught:
        PelicanStore(str).stat(Ref(real.url("x")))
    assert caught.value.kind == "service_unavailable"


def test_a_path_outside_of_every_namespace_is_missing(real):
    with pytest.raises(TransferError, match="No namespace found") as caught:
        PelicanStore(str).stat(Ref(f"pelican://{real.host}/elsewhere/x"))
    assert caught.value.kind == "object_missing"


def test_a_server_that_is_no_federation_is_told(tmp_path, monkeypatch):
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    page = Path(tmp_path, ".well-known", "pelican-configuration")
    page.parent.mkdir()
    page.write_text("<html>welcome</html>")
    with Origin(tmp_path, host="localhost", tls=authority.pair) as origin:
        host = origin.url.partition("://")[2]
        with pytest.raises(TransferError, match="not the discovery document") as caught:
            PelicanStore(str).stat(Ref(f"pelican://{host}/data/x"))
    assert caught.value.kind == "not_the_data"


# Objects


@pytest.mark.parametrize("size", [0, 1, 70_000, 4 << 20, (9 << 20) + 5])
def test_objects_of_any_size_come_through_the_caches(real, tmp_path, size):
    data = os.urandom(size)
    assert fetched(Ref(real.url(made(real.origin.objects, data))), tmp_path / "x") == data


def test_pelicanfs_reads_and_lists_the_same(real, tmp_path):
    """The reference client: what it takes for a federation is one."""
    from pelicanfs.core import PelicanFileSystem

    folder = real.origin.objects / uuid.uuid4().hex
    folder.mkdir()
    for name, data in {"a.bin": os.urandom(3_000_000), "b.bin": b"b"}.items():
        (folder / name).write_bytes(data)
    theirs = PelicanFileSystem(f"pelican://{real.host}", skip_instance_cache=True)
    ours = PelicanStore(str)
    for entry in ours.list(Ref(real.url(folder.name))):
        read = theirs.cat(f"/data/{folder.name}/{entry.name}")
        assert read == (folder / entry.name).read_bytes() == fetched(entry.ref, tmp_path / entry.name)
    listed = [Path(path).name for path in theirs.ls(f"/data/{folder.name}", detail=False)]
    assert sorted(listed) == [entry.name for entry in ours.list(Ref(real.url(f"{folder.name}?recursive")))]


def test_what_was_put_is_known_by_pelicanfs(real, tmp_path):
    from pelicanfs.core import PelicanFileSystem

    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "model.pt").write_bytes(os.urandom(2_000_000))
    place = uuid.uuid4().hex
    output = Output(Ref(real.url(place)))
    upload_folder(tmp_path / "out", output, str, stop=lambda: None, progress=lambda d, t: None, patience_s=5)
    theirs = PelicanFileSystem(f"pelican://{real.host}", skip_instance_cache=True)
    assert theirs.cat(f"/data/{place}/model.pt") == (tmp_path / "out" / "model.pt").read_bytes()


def test_another_content_under_a_name_that_is_taken_is_refused_at_once(real, tmp_path):
    name = made(real.origin.objects, b"the first one")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_bytes(b"the other one")
    with pytest.raises(FailedError, match=r"exists already with other content.*use a new name") as caught:
        upload_folder(
            tmp_path / "out",
            Output(Ref(real.url(""))),
            str,
            stop=lambda: None,
            progress=lambda d, t: None,
            patience_s=60,
        )
    assert caught.value.kind == "sink_failed"
    assert (real.origin.objects / name).read_bytes() == b"the first one"


def test_an_upload_that_is_cut_off_leaves_nothing_and_can_be_repeated(real, tmp_path):
    class Cut(Exception):
        pass

    def cut(count: int) -> None:
        raise Cut

    (tmp_path / "big").write_bytes(os.urandom(5_000_000))
    name = uuid.uuid4().hex
    ref = Ref(real.url(name))
    with pytest.raises(Cut):
        PelicanStore(str).put(ref, tmp_path / "big", cut)
    gone_by = time.monotonic() + 10
    while (real.origin.objects / name).exists() and time.monotonic() < gone_by:
        time.sleep(0.02)
    assert not (real.origin.objects / name).exists()
    # With patience: the origin may still be closing what was cut off.
    upload_file(tmp_path / "big", Output(Ref(real.url("").rstrip("/"))), name, str, patience_s=30)
    assert fetched(ref, tmp_path / "x") == (tmp_path / "big").read_bytes()


def test_what_an_origin_kept_of_a_cut_upload_is_replaced(ours, tmp_path):
    (tmp_path / "file").write_bytes(b"all of it")
    name = made(ours.origin.folder / "data", b"all of")
    ref = Ref(f"pelican://{ours.host}/data/{name}", token="t0ken")
    PelicanStore(str).put(ref, tmp_path / "file")
    assert (ours.origin.folder / "data" / name).read_bytes() == b"all of it"


def test_a_folder_that_does_not_list_is_told(ours):
    ours.origin.faults = [Fault(status=405)]
    with pytest.raises(TransferError, match="does not list"):
        list(PelicanStore(str).list(Ref(f"pelican://{ours.host}/data/x", token="t0ken")))


# Digests, which servers of a federation state when they are asked


CORRUPT = [faults.Fault("corrupt", at=1000, times=None)]


def in_order(ref: Ref) -> Ordered:
    with Ordered(Item("x", (ref,)), str, patience_s=5, stop=lambda: None, progress=lambda d, t: None) as read:
        while read.take(1 << 20):
            pass
    return read


def checked(item: Item, target: Path, patience_s: float = 5):
    return fetch(item, target, str, patience_s=patience_s, stop=lambda: None, progress=lambda d, t: None)


@pytest.mark.parametrize("size", [0, 70_000, (9 << 20) + 5])
def test_a_download_through_caches_is_compared_with_the_digest_of_the_origin(real, tmp_path, size):
    name = made(real.origin.objects, os.urandom(size))
    assert checked(Item(name, (Ref(real.url(name)),)), tmp_path / "x").verified_by == "md5"


def test_an_origin_that_has_no_more_than_a_crc32c(real, tmp_path, monkeypatch):
    name = made(real.origin.objects, os.urandom(3 << 20))
    monkeypatch.setitem(federated._TELL_DIGEST, "Want-Digest", "sha-256, crc32c, adler32")  # it has no sha-256
    item = Item(name, (Ref(real.url(name)),))
    assert checked(item, tmp_path / "x").verified_by == "crc32c"
    assert in_order(item.sources[0]).figures(1).verified_by == "crc32c"


def test_an_origin_whose_crc32c_would_take_too_long_is_asked_for_another(real, tmp_path, monkeypatch):
    name = made(real.origin.objects, os.urandom(3 << 20))
    monkeypatch.setitem(federated._TELL_DIGEST, "Want-Digest", "crc32c")
    monkeypatch.setattr(crc32c, "_fast", lambda: None)
    monkeypatch.setattr(crc32c, "MOST_UNASKED", 1 << 20)
    assert checked(Item(name, (Ref(real.url(name)),)), tmp_path / "x").verified_by == "adler32"


def test_a_read_in_order_is_compared_too(real):
    name = made(real.origin.objects, os.urandom(3 << 20))
    read = in_order(Ref(real.url(name)))
    assert read.figures(1).verified_by == "md5"


def test_what_a_cache_has_corrupted_is_found_out_and_fetched_elsewhere(real, tmp_path, monkeypatch):
    data = os.urandom(3 << 20)
    name = made(real.origin.objects, data)
    with FaultProxy(real.caches[0].url, CORRUPT, upstream_ca=real.ca) as proxy:
        monkeypatch.setattr(real.director, "caches", [proxy.url])
        got = checked(Item(name, (Ref(real.url(name)),)), tmp_path / "x")
    assert (got.verified_by, got.retries > 0) == ("md5", True)
    assert proxy.strikes
    assert (tmp_path / "x").read_bytes() == data


def test_a_corrupted_file_never_gets_its_name(real, tmp_path, monkeypatch):
    name = made(real.origin.objects, os.urandom(3 << 20))
    with FaultProxy(real.origin.url, CORRUPT, upstream_ca=real.ca) as proxy:
        monkeypatch.setattr(real.director, "caches", [])
        monkeypatch.setattr(real.director, "origin", proxy.url)
        item = Item(name, (Ref(real.url(name)),))
        with pytest.raises(TransferError, match=r"has the md5 \w+, but should have") as caught:
            checked(item, tmp_path / "x")
        with pytest.raises(SpoiledError, match="has the md5"):
            in_order(item.sources[0])
    assert caught.value.kind == "digest_mismatch"
    assert list(tmp_path.iterdir()) == []


def test_an_origin_that_keeps_silent_is_no_error(real, tmp_path, monkeypatch):
    data = os.urandom(70_000)
    name = made(real.origin.objects, data)
    monkeypatch.setattr(digest_lookup, "WAITED_S", 0.2)
    with FaultProxy(real.origin.url, [faults.Fault("late", times=None)], upstream_ca=real.ca) as proxy:
        monkeypatch.setattr(real.director, "origin", proxy.url)
        item = Item(name, (Ref(real.url(name)),))
        assert checked(item, tmp_path / "x").verified_by == ""
        assert in_order(item.sources[0]).figures(1).verified_by == ""
    assert (tmp_path / "x").read_bytes() == data


@pytest.mark.parametrize("fault", [Fault(status=405), Fault(status=503), None])
def test_a_server_that_does_not_tell_is_asked_once(ours, tmp_path, fault):
    name = made(ours.origin.folder / "data", b"data")
    ours.origin.faults = [None, None, fault]  # a look, the object, and the question
    ref = Ref(f"pelican://{ours.host}/data/{name}", token="t0ken")
    assert checked(Item(name, (ref,)), tmp_path / "x").verified_by == ""
    assert sum("want-digest" in seen.headers for seen in ours.origin.seen) == 1
    assert ours.origin.faults == []


def test_nobody_is_asked_where_the_answers_or_the_user_have_a_digest(ours, tmp_path, monkeypatch):
    name = made(ours.origin.folder / "data", b"data")
    ref = Ref(f"pelican://{ours.host}/data/{name}", token="t0ken")
    digest = Digest("md5", hashlib.md5(b"data").hexdigest())
    assert checked(Item(name, (ref,), digest=digest), tmp_path / "x").verified_by == "md5"
    monkeypatch.setattr(ours.origin, "headers", {"Digest": f"adler32={zlib.adler32(b'data'):08x}"})
    assert checked(Item(name, (ref,)), tmp_path / "y").verified_by == "adler32"
    assert not any("want-digest" in seen.headers for seen in ours.origin.seen)
