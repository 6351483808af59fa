"""Expired tokens are retried until they are renewed; other refusals are final."""

from __future__ import annotations

import os

import pytest

from packtrain.errors import FailedError
from packtrain.plan import Location, RemoteFile, Secret
from packtrain.plan.secret_files import read_secret
from packtrain.transfer.fetch import fetch
from testbed.federation import Federation
from testbed.http_server import HttpServer, ResponseFault

pytestmark = pytest.mark.slow

DATA = os.urandom(3_000_000)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "served").mkdir()
    for name in ("a.bin", "b.bin"):
        (tmp_path / "served" / name).write_bytes(DATA)
    return tmp_path / "served"


def get(url, target, resolve_secret=str, retry_timeout_s=20.0, token=None):
    remote_file = RemoteFile("x.bin", (Location(url, token=token),))
    return fetch(
        remote_file,
        target,
        resolve_secret,
        retry_timeout_s=retry_timeout_s,
        check_cancelled=lambda: None,
        on_progress=lambda done, total: None,
    )


def test_401_during_a_file_is_retried(folder, tmp_path):
    with HttpServer(
        folder,
        faults=[ResponseFault(close_after_bytes=1_500_000), ResponseFault(status=401), ResponseFault(status=401)],
    ) as server:
        result = get(f"{server.url}/a.bin", tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == DATA
    assert result.retries >= 3


def test_401_for_next_file_is_retried_until_renewal(folder, tmp_path):
    tokens = ["first"]
    with HttpServer(folder, token="first") as server:

        def resolve_secret(text):
            if not isinstance(text, Secret):
                return text
            n_refused = sum(request.path == "/b.bin" for request in server.requests)
            if n_refused >= 2:
                tokens.append("second")  # HTCondor writes a new token under a running job
            return tokens[-1]

        get(f"{server.url}/a.bin", tmp_path / "a", resolve_secret, token=Secret("t"))
        server.token = "second"
        get(f"{server.url}/b.bin", tmp_path / "b", resolve_secret, token=Secret("t"))
    assert (tmp_path / "b").read_bytes() == DATA


def test_token_that_is_not_renewed_fails(folder, tmp_path):
    with HttpServer(folder, token="first") as server:
        get(f"{server.url}/a.bin", tmp_path / "a", token="first")
        server.token = "second"
        with pytest.raises(FailedError) as error:
            get(f"{server.url}/b.bin", tmp_path / "b", token="first", retry_timeout_s=0.5)
    assert error.value.kind == "access_denied"


@pytest.fixture
def token(tmp_path):
    """A token file, as the agent stores it."""
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "t").write_text("first")
    return tmp_path / "secrets" / "t"


@pytest.mark.parametrize("meanwhile", [None, "", "fir\1"])
def test_token_file_may_be_missing_for_a_moment(folder, tmp_path, token, meanwhile):
    calls = []

    def renew(done, total):
        calls.append(done)
        if len(calls) == 10:
            token.write_text("first")

    def resolve_secret(text):
        return read_secret(token.parent, text.name) if isinstance(text, Secret) else text

    with HttpServer(folder, token="first") as server:
        remote_file = RemoteFile("x.bin", (Location(f"{server.url}/a.bin", token=Secret("t")),))
        fetch(
            remote_file,
            tmp_path / "a",
            resolve_secret,
            retry_timeout_s=60,
            check_cancelled=lambda: None,
            on_progress=lambda done, total: None,
        )
        token.unlink()
        if meanwhile is not None:
            token.write_text(meanwhile)
        fetch(
            remote_file,
            tmp_path / "b",
            resolve_secret,
            retry_timeout_s=60,
            check_cancelled=lambda: None,
            on_progress=renew,
        )
    assert (tmp_path / "b").read_bytes() == DATA


def test_missing_secret_affects_one_source_only(folder, tmp_path):
    def resolve_secret(text):
        return read_secret(tmp_path, text.name) if isinstance(text, Secret) else text

    with HttpServer(folder) as first, HttpServer(folder) as second:
        locked, public = Location(f"{first.url}/a.bin", token=Secret("none")), Location(f"{second.url}/a.bin")
        options = {"retry_timeout_s": 3600.0, "check_cancelled": lambda: None, "on_progress": lambda done, total: None}
        fetch(RemoteFile("x.bin", (locked, public)), tmp_path / "x", resolve_secret, **options)
        assert (tmp_path / "x").read_bytes() == DATA
        with pytest.raises(FailedError) as error:
            fetch(RemoteFile("x.bin", (locked,)), tmp_path / "y", resolve_secret, **options)
    assert (error.value.kind, "'none' cannot be read" in error.value.detail) == ("secret_missing", True)


def test_refusal_without_credentials_is_final(folder, tmp_path):
    with HttpServer(folder) as server:
        get(f"{server.url}/a.bin", tmp_path / "a")
        server.token = "t0ken"
        with pytest.raises(FailedError) as error:
            get(f"{server.url}/b.bin", tmp_path / "b", retry_timeout_s=3600.0)
    assert error.value.kind == "access_denied"


@pytest.mark.parametrize(("name", "kind"), [("data/none.bin", "object_missing"), ("elsewhere/x.bin", "object_missing")])
def test_object_missing_in_federation(tmp_path, monkeypatch, name, kind):
    (tmp_path / "federation" / "data").mkdir(parents=True)
    with Federation(tmp_path / "federation") as federation:
        monkeypatch.setenv("SSL_CERT_FILE", str(federation.ca))
        with pytest.raises(FailedError) as error:
            get(f"pelican://{federation.host}/{name}", tmp_path / "x", retry_timeout_s=0.5)
    assert error.value.kind == kind
