"""`packtrain get` from a federation: folders by either way to write them, and a director that has just restarted."""

from __future__ import annotations

import pytest

from packtrain.plugin.file_transfer import run_transfer
from packtrain.plugin.job_credentials import JobCredentials
from packtrain.plugin.transfer_requests import TransferRequest
from testbed.federation import DIRECTOR_BUSY, DIRECTOR_UNREACHABLE, XRootDFederation
from testbed.http_server import ResponseFault
from tests.support.transfer_commands import DATA

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pelican")]


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    with XRootDFederation(tmp_path_factory.mktemp("federation")) as federation:
        folder = federation.origin.object_dir / "set" / "deep"
        folder.mkdir(parents=True)
        (folder / "a.bin").write_bytes(DATA)
        yield federation


@pytest.fixture
def away(desk, federation):
    """The address of the folder."""
    desk.environment["SSL_CERT_FILE"] = str(federation.ca)
    federation.director.troubles.clear()
    return f"pelican://{federation.host}/data/set"


@pytest.mark.parametrize("ending", ["/", "?recursive", "/?recursive&directread"])
def test_all_below_a_folder(desk, away, ending):
    (file,) = desk.run_json("get", away + ending, "-o", "all")["files"]
    assert file["path"] == "all/deep/a.bin"
    assert (desk.folder / "all/deep/a.bin").read_bytes() == DATA


def test_a_folder_has_no_digest(desk, away):
    desk.run("get", f"{away}?recursive", "--sha256", "0" * 64, code=2)
    assert "apply to one file" in desk.stderr


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_director_that_has_just_restarted_is_asked_again(desk, away, federation, dry):
    federation.director.troubles[:] = [DIRECTOR_BUSY, DIRECTOR_UNREACHABLE]
    desk.run("get", f"{away}/", "-o", "all", "--retry-timeout", "60s", *dry)
    assert (desk.folder / "all/deep/a.bin").exists() is not bool(dry)


def test_without_patience_it_is_told(desk, away, federation):
    federation.director.troubles[:] = [DIRECTOR_BUSY] * 9
    desk.run("get", f"{away}/", "-o", "all", "--retry-timeout", "0", code=37)
    assert "429" in desk.stderr


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_busy_server_is_asked_again_about_a_file_that_stands_here(desk, origin, dry):
    (desk.folder / "data.bin").write_bytes(DATA)
    origin.faults[:] = [ResponseFault(status=503), ResponseFault(status=429)]
    desk.run("get", f"{origin.url}/data.bin", "--retry-timeout", "60s", *dry)


def test_packing_is_explained(desk, away):
    desk.run("get", f"{away}/deep/a.tar?pack=auto", code=2)
    assert "--unpack -o FOLDER" in desk.stderr
    (desk.folder / "x").touch()
    desk.run("put", "x", f"{away}/x?pack=tar", code=2)
    assert "pack=" in desk.stderr


def test_the_plugin_asks_again_too(away, federation, tmp_path, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(federation.ca))
    federation.director.troubles[:] = [DIRECTOR_BUSY, DIRECTOR_UNREACHABLE]
    moved = run_transfer(
        TransferRequest(f"{away}?recursive", str(tmp_path / "all"), is_upload=False),
        JobCredentials({}),
        60,
        lambda: None,
    )
    assert moved.error is None
    assert (tmp_path / "all/deep/a.bin").read_bytes() == DATA


def test_the_plugin_does_not_pack(tmp_path):
    (tmp_path / "x").touch()
    moved = run_transfer(
        TransferRequest("osdf:///data/x?pack=tar", str(tmp_path / "x"), is_upload=True),
        JobCredentials({}),
        0,
        lambda: None,
    )
    assert "does not pack" in str(moved.error)
