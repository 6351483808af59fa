"""`packtrain cache` lists and removes what jobs share."""

from __future__ import annotations

import hashlib

import pytest

from packtrain.plan import Digest, Location, RemoteFile
from packtrain.transfer.cache import DownloadCache
from tests.support.cli_runs import Workspace

CONTENTS = {"a.bin": b"a" * 3000, "b.bin": b"b" * 5000}
KEYS = {name: hashlib.sha256(data).hexdigest() for name, data in CONTENTS.items()}


@pytest.fixture
def desk(tmp_path):
    """With a depot that two files have passed through."""
    depot = DownloadCache(tmp_path / "depot")
    for name, data in CONTENTS.items():
        path = tmp_path / name
        path.write_bytes(data)
        item = RemoteFile(name, (Location(path.as_uri()),), len(data), Digest("sha256", KEYS[name]))
        target = tmp_path / f"copy-{name}"
        depot.get(
            item, target, str, retry_timeout_s=0, check_cancelled=lambda: None, on_progress=lambda done, total: None
        )
    return Workspace(tmp_path, PACKTRAIN_CACHE=str(tmp_path / "depot"), PACKTRAIN_CACHE_LIMIT="20000")


def test_ls(desk):
    out = desk.run("cache")
    assert KEYS["a.bin"][:12] in out
    assert "a.bin" in out
    assert "2 objects, 8.0 kB of at most 20.0 kB" in out
    told = desk.run_json("cache", "ls")
    assert (told["bytes"], told["cap_bytes"]) == (8000, 20000)
    assert {entry["key"]: entry["bytes"] for entry in told["objects"]} == {KEYS["a.bin"]: 3000, KEYS["b.bin"]: 5000}
    assert all(entry["complete"] and entry["source"].startswith("file://") for entry in told["objects"])


def test_rm_one(desk):
    assert "would remove 1 object" in desk.run("cache", "rm", KEYS["a.bin"][:12], "--dry-run")
    assert len(desk.run_json("cache")["objects"]) == 2
    assert desk.run_json("cache", "rm", KEYS["a.bin"][:12])["bytes"] == 3000
    assert [entry["name"] for entry in desk.run_json("cache")["objects"]] == ["b.bin"]
    desk.run("cache", "rm", KEYS["a.bin"], code=4)


def test_rm_all(desk):
    assert "would remove 2 objects" in desk.run("cache", "rm", "--all", "--dry-run")
    assert "removed 2 objects, 8.0 kB" in desk.run("cache", "rm", "--all")
    assert "0 objects" in desk.run("cache", "ls")


def test_what_cannot_be(desk):
    desk.run("cache", "rm", code=2)
    desk.run("cache", "rm", "", code=2)
    desk.run("cache", "ls", "--all", code=2)
    desk.run("cache", "rm", "abc", "--all", code=2)
    del desk.environment["PACKTRAIN_CACHE"]
    desk.run("cache", "ls", code=2)
    assert "PACKTRAIN_CACHE" in desk.stderr
