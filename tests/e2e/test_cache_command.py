"""`packtrain depot` lists and removes what jobs share."""

from __future__ import annotations

import hashlib

import pytest

from packtrain.plan import Digest, Item, Ref
from packtrain.transfer.cache import Depot
from tests.support.cli_runs import Desk

CONTENTS = {"a.bin": b"a" * 3000, "b.bin": b"b" * 5000}
KEYS = {name: hashlib.sha256(data).hexdigest() for name, data in CONTENTS.items()}


@pytest.fixture
def desk(tmp_path):
    """With a depot that two files have passed through."""
    depot = Depot(tmp_path / "depot")
    for name, data in CONTENTS.items():
        path = tmp_path / name
        path.write_bytes(data)
        item = Item(name, (Ref(path.as_uri()),), len(data), Digest("sha256", KEYS[name]))
        target = tmp_path / f"copy-{name}"
        depot.get(item, target, str, patience_s=0, stop=lambda: None, progress=lambda done, total: None)
    return Desk(tmp_path, PACKTRAIN_DEPOT=str(tmp_path / "depot"), PACKTRAIN_DEPOT_CAP="20000")


def test_ls(desk):
    out = desk.call("depot")
    assert KEYS["a.bin"][:12] in out
    assert "a.bin" in out
    assert "2 objects, 8.0 kB of at most 20.0 kB" in out
    told = desk.json("depot", "ls")
    assert (told["bytes"], told["cap_bytes"]) == (8000, 20000)
    assert {entry["key"]: entry["bytes"] for entry in told["objects"]} == {KEYS["a.bin"]: 3000, KEYS["b.bin"]: 5000}
    assert all(entry["complete"] and entry["source"].startswith("file://") for entry in told["objects"])


def test_rm_one(desk):
    assert "would remove 1 object" in desk.call("depot", "rm", KEYS["a.bin"][:12], "--dry-run")
    assert len(desk.json("depot")["objects"]) == 2
    assert desk.json("depot", "rm", KEYS["a.bin"][:12])["bytes"] == 3000
    assert [entry["name"] for entry in desk.json("depot")["objects"]] == ["b.bin"]
    desk.call("depot", "rm", KEYS["a.bin"], code=4)


def test_rm_all(desk):
    assert "would remove 2 objects" in desk.call("depot", "rm", "--all", "--dry-run")
    assert "removed 2 objects, 8.0 kB" in desk.call("depot", "rm", "--all")
    assert "0 objects" in desk.call("depot", "ls")


def test_what_cannot_be(desk):
    desk.call("depot", "rm", code=2)
    desk.call("depot", "rm", "", code=2)
    desk.call("depot", "ls", "--all", code=2)
    desk.call("depot", "rm", "abc", "--all", code=2)
    del desk.environment["PACKTRAIN_DEPOT"]
    desk.call("depot", "ls", code=2)
    assert "PACKTRAIN_DEPOT" in desk.err
