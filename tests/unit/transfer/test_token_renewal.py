"""Tokens that run out in mid-run are waited for; a director that has nothing to say is not waited for without end."""

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


def get(url, target, reveal=str, patience_s=20.0, token=None):
    item = RemoteFile("x.bin", (Location(url, token=token),))
    return fetch(
        item,
        target,
        reveal,
        retry_timeout_s=patience_s,
        check_cancelled=lambda: None,
        on_progress=lambda done, total: None,
    )


def test_a_401_in_the_middle_of_a_file_passes(folder, tmp_path):
    with HttpServer(
        folder,
        faults=[ResponseFault(close_after_bytes=1_500_000), ResponseFault(status=401), ResponseFault(status=401)],
    ) as origin:
        got = get(f"{origin.url}/a.bin", tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == DATA
    assert got.retries >= 3


def test_a_401_at_the_next_file_passes_once_the_token_is_renewed(folder, tmp_path):
    tokens = ["first"]
    with HttpServer(folder, token="first") as origin:

        def reveal(text):
            if not isinstance(text, Secret):
                return text
            refused = sum(seen.path == "/b.bin" for seen in origin.requests)
            if refused >= 2:
                tokens.append("second")  # as HTCondor writes a new one under a running job
            return tokens[-1]

        get(f"{origin.url}/a.bin", tmp_path / "a", reveal, token=Secret("t"))
        origin.token = "second"
        get(f"{origin.url}/b.bin", tmp_path / "b", reveal, token=Secret("t"))
    assert (tmp_path / "b").read_bytes() == DATA


def test_one_that_is_not_renewed_is_told_after_the_patience(folder, tmp_path):
    with HttpServer(folder, token="first") as origin:
        get(f"{origin.url}/a.bin", tmp_path / "a", token="first")
        origin.token = "second"
        with pytest.raises(FailedError) as error:
            get(f"{origin.url}/b.bin", tmp_path / "b", token="first", patience_s=0.5)
    assert error.value.kind == "access_denied"


@pytest.fixture
def token(tmp_path):
    """A file, as the agent has it."""
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "t").write_text("first")
    return tmp_path / "secrets" / "t"


@pytest.mark.parametrize("meanwhile", [None, "", "fir\1"])
def test_a_token_file_that_is_written_anew_may_be_missing_for_a_moment(folder, tmp_path, token, meanwhile):
    looks = []

    def renew(done, total):
        looks.append(done)
        if len(looks) == 10:
            token.write_text("first")

    def reveal(text):
        return read_secret(token.parent, text.name) if isinstance(text, Secret) else text

    with HttpServer(folder, token="first") as origin:
        item = RemoteFile("x.bin", (Location(f"{origin.url}/a.bin", token=Secret("t")),))
        fetch(
            item,
            tmp_path / "a",
            reveal,
            retry_timeout_s=60,
            check_cancelled=lambda: None,
            on_progress=lambda done, total: None,
        )
        token.unlink()
        if meanwhile is not None:
            token.write_text(meanwhile)
        fetch(item, tmp_path / "b", reveal, retry_timeout_s=60, check_cancelled=lambda: None, on_progress=renew)
    assert (tmp_path / "b").read_bytes() == DATA


def test_a_secret_that_is_missing_leaves_the_other_sources(folder, tmp_path):
    def reveal(text):
        return read_secret(tmp_path, text.name) if isinstance(text, Secret) else text

    with HttpServer(folder) as first, HttpServer(folder) as second:
        locked, free = Location(f"{first.url}/a.bin", token=Secret("none")), Location(f"{second.url}/a.bin")
        options = {"retry_timeout_s": 3600.0, "check_cancelled": lambda: None, "on_progress": lambda done, total: None}
        fetch(RemoteFile("x.bin", (locked, free)), tmp_path / "x", reveal, **options)
        assert (tmp_path / "x").read_bytes() == DATA
        with pytest.raises(FailedError) as error:
            fetch(RemoteFile("x.bin", (locked,)), tmp_path / "y", reveal, **options)
    assert (error.value.kind, "'none' cannot be read" in error.value.detail) == ("secret_missing", True)


def test_without_credentials_a_refusal_is_told_at_once(folder, tmp_path):
    with HttpServer(folder) as origin:
        get(f"{origin.url}/a.bin", tmp_path / "a")
        origin.token = "t0ken"
        with pytest.raises(FailedError) as error:
            get(f"{origin.url}/b.bin", tmp_path / "b", patience_s=3600.0)
    assert error.value.kind == "access_denied"


@pytest.mark.parametrize(("name", "kind"), [("data/none.bin", "object_missing"), ("elsewhere/x.bin", "object_missing")])
def test_what_a_federation_does_not_have_is_told(tmp_path, monkeypatch, name, kind):
    (tmp_path / "federation" / "data").mkdir(parents=True)
    with Federation(tmp_path / "federation") as federation:
        monkeypatch.setenv("SSL_CERT_FILE", str(federation.ca))
        with pytest.raises(FailedError) as error:
            get(f"pelican://{federation.host}/{name}", tmp_path / "x", patience_s=0.5)
    assert error.value.kind == kind
