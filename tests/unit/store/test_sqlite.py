"""The store's file: damaged, from a newer version, on a network file system, or written by a killed process."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from packtrain.errors import FormatError, UnavailableError
from packtrain.store import SqliteStore, location, store_path
from packtrain.store.sqlite import STORE_VERSION

MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
/dev/sdb1 /home/scratch xfs rw 0 0
lustre@tcp:/l /mnt/with\\040space lustre rw 0 0
overlay /home overlay rw 0 0
broken
"""


@pytest.mark.parametrize("content", [b"this is not a database, but long enough to be parsed" * 20, b"\0" * 4096])
def test_file_is_no_database(tmp_path, content):
    path = tmp_path / "store.db"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"store\.db cannot be read .*; move it away"):
        SqliteStore(path)
    assert path.read_bytes() == content, "the file is unchanged"


def test_damaged_store(tmp_path, event):
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    store.append([event(n, text="x" * 500) for n in range(1, 200)])
    store.close()
    damaged = bytearray(path.read_bytes())
    damaged[100:4096] = b"\xff" * 3996
    path.write_bytes(damaged)
    with pytest.raises(FormatError, match="cannot be read"):
        SqliteStore(path).events("run-1")


def test_newer_version(tmp_path):
    path = tmp_path / "store.db"
    SqliteStore(path).close()
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {STORE_VERSION + 1}")
    db.close()
    message = f"has version {STORE_VERSION + 1}, but this packtrain reads version {STORE_VERSION}"
    with pytest.raises(FormatError, match=message):
        SqliteStore(path)


def test_unwritable_location(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UnavailableError, match=r"cannot be opened .*PACKTRAIN_STORE"):
        SqliteStore(tmp_path / "file" / "store.db")
    with pytest.raises(UnavailableError, match="cannot be opened"):
        SqliteStore(tmp_path)


def test_full_disk(tmp_path, event):
    script = textwrap.dedent("""
        import resource, sys
        from pathlib import Path
        from packtrain.errors import UnavailableError
        from packtrain.events import Event
        from packtrain.store import SqliteStore
        store, hard_limit = SqliteStore(Path(sys.argv[1])), resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        big = [Event("run-1", "0", "agent-1", n, "notice", 1.0, 1.0, {"text": "x" * 9000}) for n in range(1, 100)]
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard_limit))
        try:
            store.append(big)
        except UnavailableError as error:
            print(error)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard_limit, hard_limit))
        print(len(store.events("run-1")))
        store.append(big)
        print(len(store.events("run-1")))
    """)
    result = subprocess.run([sys.executable, "-c", script, str(tmp_path / "s.db")], capture_output=True, text=True)
    lines = result.stdout.splitlines()
    assert "cannot be written" in lines[0], result
    assert lines[1:] == ["0", "99"], "no partial write, and the store works after space is free"


def journal_mode(path):
    db = sqlite3.connect(path)
    try:
        return db.execute("PRAGMA journal_mode").fetchone()[0]
    finally:
        db.close()


def test_local_file_system_uses_wal(tmp_path, monkeypatch):
    monkeypatch.setattr(location, "_read_mounts", lambda: MOUNTS)
    SqliteStore(tmp_path / "store.db").close()
    assert journal_mode(tmp_path / "store.db") == "wal"


def test_network_file_system_uses_rollback_journal(tmp_path, monkeypatch, event):
    monkeypatch.setattr(location, "_read_mounts", lambda: f"server:/x {tmp_path} nfs4 rw 0 0\n")
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    store.append([event(1)])
    store.close()
    assert journal_mode(path) == "delete"


FILE_SYSTEMS = [
    ("/var/x/store.db", "ext4"),
    ("/home/scratch/me/store.db", "xfs"),
    ("/home", "overlay"),
    ("/homestead/store.db", "ext4"),
    ("/mnt/with space/store.db", "lustre"),
]


@pytest.mark.parametrize(("path", "expected"), FILE_SYSTEMS)
def test_file_system_type(path, expected):
    assert location.file_system_type(Path(path), MOUNTS) == expected


def test_unknown_file_system():
    assert location.file_system_type(Path("/x"), "") == ""
    assert not location.is_network_file_system("")
    assert location.is_network_file_system("nfs4")


def test_file_system_of_this_machine(tmp_path):
    assert location.file_system_type(tmp_path) != ""


def test_store_path(monkeypatch, tmp_path):
    monkeypatch.delenv("PACKTRAIN_STORE", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert store_path() == tmp_path / "packtrain" / "store.db"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert store_path() == tmp_path / ".local/share/packtrain/store.db"
    monkeypatch.setenv("PACKTRAIN_STORE", "/x/y.db")
    assert store_path() == Path("/x/y.db")


WRITE_SCRIPT = textwrap.dedent("""
    import sys
    from pathlib import Path
    from packtrain.events import Event
    from packtrain.store import SqliteStore
    store, seq = SqliteStore(Path(sys.argv[1])), 0
    while True:
        batch = [Event("run-1", "0", "agent-1", seq + n, "notice", 1.0, 1.0, {"text": "x" * 200}) for n in range(1, 51)]
        seq += 50
        store.append(batch, cursors={("run-1", "/x"): seq})
        print(seq, flush=True)
""")


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.0, 0.003, 0.011, 0.037])
def test_killed_writer(path, delay):
    writer = subprocess.Popen([sys.executable, "-c", WRITE_SCRIPT, str(path)], stdout=subprocess.PIPE, text=True)
    n_reported = int(writer.stdout.readline())
    time.sleep(delay)  # vary the point at which the writer is killed
    os.kill(writer.pid, signal.SIGKILL)
    n_reported = int((writer.stdout.read().split() or [n_reported])[-1])
    writer.wait()
    store = SqliteStore(path)
    seqs = [stored.event.seq for stored in store.events("run-1")]
    assert seqs == list(range(1, len(seqs) + 1))
    assert len(seqs) % 50 == 0 and len(seqs) >= n_reported, "every reported transaction is complete"
    assert store.cursors("run-1") == {"/x": len(seqs)}
    store.close()
