"""`packtrain get` from a federation: folder URLs, and a director that has just restarted."""

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
        folder = federation.server.object_dir / "set" / "deep"
        folder.mkdir(parents=True)
        (folder / "a.bin").write_bytes(DATA)
        yield federation


@pytest.fixture
def folder_url(workspace, federation):
    """The URL of a folder in the federation."""
    workspace.environment["SSL_CERT_FILE"] = str(federation.ca)
    federation.director.troubles.clear()
    return f"pelican://{federation.host}/data/set"


@pytest.mark.parametrize("suffix", ["/", "?recursive", "/?recursive&directread"])
def test_folder(workspace, folder_url, suffix):
    (file,) = workspace.run_json("get", folder_url + suffix, "-o", "all")["files"]
    assert file["path"] == "all/deep/a.bin"
    assert (workspace.folder / "all/deep/a.bin").read_bytes() == DATA


def test_folder_with_digest_is_rejected(workspace, folder_url):
    workspace.run("get", f"{folder_url}?recursive", "--sha256", "0" * 64, exit_code=2)
    assert "apply to one file" in workspace.stderr


@pytest.mark.parametrize("dry_run", [(), ("--dry-run",)])
def test_restarted_director_is_retried(workspace, folder_url, federation, dry_run):
    federation.director.troubles[:] = [DIRECTOR_BUSY, DIRECTOR_UNREACHABLE]
    workspace.run("get", f"{folder_url}/", "-o", "all", "--retry-timeout", "60s", *dry_run)
    assert (workspace.folder / "all/deep/a.bin").exists() is not bool(dry_run)


def test_busy_director_without_retry_timeout(workspace, folder_url, federation):
    federation.director.troubles[:] = [DIRECTOR_BUSY] * 9
    workspace.run("get", f"{folder_url}/", "-o", "all", "--retry-timeout", "0", exit_code=37)
    assert "429" in workspace.stderr


@pytest.mark.parametrize("dry_run", [(), ("--dry-run",)])
def test_busy_server_is_retried_for_existing_file(workspace, server, dry_run):
    (workspace.folder / "data.bin").write_bytes(DATA)
    server.faults[:] = [ResponseFault(status=503), ResponseFault(status=429)]
    workspace.run("get", f"{server.url}/data.bin", "--retry-timeout", "60s", *dry_run)


def test_pack_option_is_rejected(workspace, folder_url):
    workspace.run("get", f"{folder_url}/deep/a.tar?pack=auto", exit_code=2)
    assert "--unpack -o FOLDER" in workspace.stderr
    (workspace.folder / "x").touch()
    workspace.run("put", "x", f"{folder_url}/x?pack=tar", exit_code=2)
    assert "pack=" in workspace.stderr


def test_plugin_retries_director(folder_url, federation, tmp_path, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(federation.ca))
    federation.director.troubles[:] = [DIRECTOR_BUSY, DIRECTOR_UNREACHABLE]
    result = run_transfer(
        TransferRequest(f"{folder_url}?recursive", str(tmp_path / "all"), is_upload=False),
        JobCredentials({}),
        60,
        lambda: None,
    )
    assert result.error is None
    assert (tmp_path / "all/deep/a.bin").read_bytes() == DATA


def test_plugin_rejects_pack_option(tmp_path):
    (tmp_path / "x").touch()
    result = run_transfer(
        TransferRequest("osdf:///data/x?pack=tar", str(tmp_path / "x"), is_upload=True),
        JobCredentials({}),
        0,
        lambda: None,
    )
    assert "does not pack" in str(result.error)
