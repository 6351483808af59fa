"""`packtrain cache` lists and removes downloaded files that jobs share."""

from __future__ import annotations

import hashlib

import pytest

from packtrain.plan import Digest, Location, RemoteFile
from packtrain.transfer.cache import DownloadCache
from tests.support.cli_runs import Workspace

CONTENTS = {"a.bin": b"a" * 3000, "b.bin": b"b" * 5000}
KEYS = {name: hashlib.sha256(data).hexdigest() for name, data in CONTENTS.items()}


@pytest.fixture
def workspace(tmp_path):
    """A workspace with a download cache that holds two files."""
    cache = DownloadCache(tmp_path / "cache")
    for name, data in CONTENTS.items():
        path = tmp_path / name
        path.write_bytes(data)
        remote_file = RemoteFile(name, (Location(path.as_uri()),), len(data), Digest("sha256", KEYS[name]))
        target = tmp_path / f"copy-{name}"
        cache.get(
            remote_file,
            target,
            str,
            retry_timeout_s=0,
            check_cancelled=lambda: None,
            on_progress=lambda done, total: None,
        )
    return Workspace(tmp_path, PACKTRAIN_CACHE=str(tmp_path / "cache"), PACKTRAIN_CACHE_LIMIT="20000")


def test_ls(workspace):
    out = workspace.run("cache")
    assert KEYS["a.bin"][:12] in out
    assert "a.bin" in out
    assert "2 objects, 8 kB of at most 20 kB" in out
    listing = workspace.run_json("cache", "ls")
    assert (listing["bytes"], listing["max_bytes"]) == (8000, 20000)
    assert {entry["key"]: entry["bytes"] for entry in listing["objects"]} == {KEYS["a.bin"]: 3000, KEYS["b.bin"]: 5000}
    assert all(entry["is_complete"] and entry["source"].startswith("file://") for entry in listing["objects"])


def test_rm_one(workspace):
    assert "would remove 1 object" in workspace.run("cache", "rm", KEYS["a.bin"][:12], "--dry-run")
    assert len(workspace.run_json("cache")["objects"]) == 2
    assert workspace.run_json("cache", "rm", KEYS["a.bin"][:12])["bytes"] == 3000
    assert [entry["name"] for entry in workspace.run_json("cache")["objects"]] == ["b.bin"]
    workspace.run("cache", "rm", KEYS["a.bin"], exit_code=4)


def test_rm_all(workspace):
    assert "would remove 2 objects" in workspace.run("cache", "rm", "--all", "--dry-run")
    assert "removed 2 objects, 8 kB" in workspace.run("cache", "rm", "--all")
    assert "0 objects" in workspace.run("cache", "ls")


def test_bad_arguments(workspace):
    workspace.run("cache", "rm", exit_code=2)
    workspace.run("cache", "rm", "", exit_code=2)
    workspace.run("cache", "ls", "--all", exit_code=2)
    workspace.run("cache", "rm", "abc", "--all", exit_code=2)
    del workspace.environment["PACKTRAIN_CACHE"]
    workspace.run("cache", "ls", exit_code=2)
    assert "PACKTRAIN_CACHE" in workspace.stderr
