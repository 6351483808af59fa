"""What only a federation has: discovery, a director, and a token that follows it over https."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from packtrain.errors import TransferError
from packtrain.plan import Item, Ref, Secret
from packtrain.transfer.fetch import fetch
from packtrain.transfer.pelican import PelicanStore, let_in
from testbed.federation import Authority
from testbed.origin import Origin

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def trusted(federation, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(federation.ca))


def test_the_token_reaches_the_server_that_the_director_names(federation, tmp_path):
    name = uuid.uuid4().hex
    (federation.origin.folder / "data").mkdir(exist_ok=True)
    (federation.origin.folder / "data" / name).write_bytes(b"from the origin")
    item = Item("x", (Ref(f"pelican://{federation.host}/data/{name}", token=Secret("t")),))
    fetch(item, tmp_path / "x", lambda _: "t0ken\n", patience_s=0, stop=lambda: None, progress=lambda d, t: None)
    assert (tmp_path / "x").read_bytes() == b"from the origin"
    assert federation.origin.seen[-1].headers["authorization"] == "Bearer t0ken"


def test_without_the_token_it_is_refused(federation):
    with pytest.raises(TransferError, match="no token was sent") as caught:
        PelicanStore(str).open(Ref(f"pelican://{federation.host}/data/x"))
    assert caught.value.kind == "token_refused"


def test_a_path_outside_of_every_namespace_is_missing(federation):
    with pytest.raises(TransferError) as caught:
        PelicanStore(str).stat(Ref(f"pelican://{federation.host}/elsewhere/x"))
    assert caught.value.kind == "object_missing"


def test_a_server_that_is_no_federation_is_told(tmp_path, monkeypatch):
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    page = Path(tmp_path, ".well-known", "pelican-configuration")
    page.parent.mkdir()
    page.write_text("<html>welcome</html>")
    with Origin(tmp_path, host="localhost", tls=(authority.certificate, authority.key)) as origin:
        host = origin.url.partition("://")[2]
        with pytest.raises(TransferError, match="not the discovery document") as caught:
            PelicanStore(str).stat(Ref(f"pelican://{host}/data/x"))
    assert caught.value.kind == "not_the_data"


def test_the_token_goes_along_over_https_only():
    ref = Ref("osdf:///nrp/x", token=Secret("t"))
    assert let_in(ref, "https://cache:8443/nrp/x").token == Secret("t")
    assert let_in(ref, "http://cache:8000/nrp/x") == Ref("http://cache:8000/nrp/x")
