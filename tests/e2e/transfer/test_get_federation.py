"""`packtrain get` from a federation: folders by either way to write them, and a director that has just restarted."""

from __future__ import annotations

import pytest

from packtrain.plugin.file_transfer import move
from packtrain.plugin.job_credentials import Access
from packtrain.plugin.transfer_requests import Asked
from testbed.federation import BUSY, FOREIGN, RealFederation
from testbed.http_server import Fault
from tests.support.transfer_commands import DATA

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pelican")]


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    with RealFederation(tmp_path_factory.mktemp("federation")) as federation:
        folder = federation.origin.objects / "set" / "deep"
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
    (file,) = desk.json("get", away + ending, "-o", "all")["files"]
    assert file["path"] == "all/deep/a.bin"
    assert (desk.folder / "all/deep/a.bin").read_bytes() == DATA


def test_a_folder_has_no_digest(desk, away):
    desk.call("get", f"{away}?recursive", "--sha256", "0" * 64, code=2)
    assert "belong to one file" in desk.err


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_director_that_has_just_restarted_is_asked_again(desk, away, federation, dry):
    federation.director.troubles[:] = [BUSY, FOREIGN]
    desk.call("get", f"{away}/", "-o", "all", "--patience", "60s", *dry)
    assert (desk.folder / "all/deep/a.bin").exists() is not bool(dry)


def test_without_patience_it_is_told(desk, away, federation):
    federation.director.troubles[:] = [BUSY] * 9
    desk.call("get", f"{away}/", "-o", "all", "--patience", "0", code=37)
    assert "429" in desk.err


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_busy_server_is_asked_again_about_a_file_that_stands_here(desk, origin, dry):
    (desk.folder / "data.bin").write_bytes(DATA)
    origin.faults[:] = [Fault(status=503), Fault(status=429)]
    desk.call("get", f"{origin.url}/data.bin", "--patience", "60s", *dry)


def test_packing_is_explained(desk, away):
    desk.call("get", f"{away}/deep/a.tar?pack=auto", code=2)
    assert "--unpack -o FOLDER" in desk.err
    (desk.folder / "x").touch()
    desk.call("put", "x", f"{away}/x?pack=tar", code=2)
    assert "pack=" in desk.err


def test_the_plugin_asks_again_too(away, federation, tmp_path, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(federation.ca))
    federation.director.troubles[:] = [BUSY, FOREIGN]
    moved = move(Asked(f"{away}?recursive", str(tmp_path / "all"), upload=False), Access({}), 60, lambda: None)
    assert moved.error is None
    assert (tmp_path / "all/deep/a.bin").read_bytes() == DATA


def test_the_plugin_does_not_pack(tmp_path):
    (tmp_path / "x").touch()
    moved = move(Asked("osdf:///data/x?pack=tar", str(tmp_path / "x"), upload=True), Access({}), 0, lambda: None)
    assert "does not pack" in str(moved.error)
