"""Journals: every event is read once, complete and in order."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import threading

import pytest

from packtrain.events import Journal, JournalReader, Redactor, kinds


@pytest.fixture
def path(tmp_path):
    return tmp_path / "attempt" / "journal.jsonl"


def open_journal(path, secrets=()):
    return Journal(path, "run-1", "0", "agent-1", Redactor(secrets))


@pytest.fixture
def journal(path):
    journal = open_journal(path)
    yield journal
    journal.close()


def test_emit_and_read(journal, path):
    written = [journal.emit(kinds.NOTICE, text="first"), journal.emit(kinds.STAGE_STARTED, stage="probe")]
    assert JournalReader(path).read() == written
    assert [(event.run, event.job, event.emitter, event.seq) for event in written] == [
        ("run-1", "0", "agent-1", 1),
        ("run-1", "0", "agent-1", 2),
    ]


def test_data_key_named_kind(journal, path):
    journal.emit(kinds.NOTICE, kind="mine", text="x")
    assert JournalReader(path).read()[0].data == {"kind": "mine", "text": "x"}


def test_missing_journal(path):
    reader = JournalReader(path)
    assert reader.read() == []
    open_journal(path).emit(kinds.NOTICE, text="now")
    assert [event.data["text"] for event in reader.read()] == ["now"]


def test_incomplete_last_line(journal, path):
    journal.emit(kinds.NOTICE, text="whole")
    reader = JournalReader(path)
    line = (json.dumps(json.loads(path.read_text())) + "\n").encode().replace(b'"seq": 1', b'"seq": 2')
    with open(path, "ab", buffering=0) as file:
        file.write(line[:30])
        assert [event.seq for event in reader.read()] == [1]
        assert reader.read() == []
        file.write(line[30:-1])
        assert reader.read() == []
        file.write(line[-1:])
        assert [event.seq for event in reader.read()] == [2]
    assert reader.n_invalid_lines == 0
    assert reader.offset == path.stat().st_size


def test_invalid_lines(journal, path):
    journal.emit(kinds.NOTICE, text="before")
    with open(path, "ab") as file:
        file.write(b"half a li\n\xff\xfe\x00\n{}\n")
    journal.emit(kinds.NOTICE, text="after")
    reader = JournalReader(path)
    assert [event.data["text"] for event in reader.read()] == ["before", "after"]
    assert reader.n_invalid_lines == 3


def test_reader_offset(journal, path):
    journal.emit(kinds.NOTICE, text="one")
    first = JournalReader(path)
    first.read()
    journal.emit(kinds.NOTICE, text="two")
    second = JournalReader(path, first.offset)
    assert [event.data["text"] for event in second.read()] == ["two"]
    assert second.read() == []


def test_concurrent_threads(journal, path):
    def write(name):
        for number in range(100):
            journal.emit(kinds.PROGRESS, stage=name, done=number, text="x" * 500)

    threads = [threading.Thread(target=write, args=(str(n),)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    reader = JournalReader(path)
    events = reader.read()
    assert [event.seq for event in events] == list(range(1, 801))
    assert reader.n_invalid_lines == 0
    for name in map(str, range(8)):
        assert [event.data["done"] for event in events if event.data["stage"] == name] == list(range(100))


def test_secrets_are_redacted(path):
    secret = 'pa"ss\\wo\nrd'
    journal = open_journal(path, [secret])
    journal.emit(kinds.NOTICE, text=f"before {secret} after", more=[{"deep": (secret, 1)}])
    written = path.read_text()
    assert secret not in written
    assert json.dumps(secret)[1:-1] not in written
    assert JournalReader(path).read()[0].data == {"text": "before *** after", "more": [{"deep": ["***", 1]}]}


@pytest.mark.parametrize("secret", ["data", "kind", "1234", "run-1", "null", "agent-1"])
def test_secret_that_equals_json_text(path, secret):
    journal = open_journal(path, [secret])
    journal.emit(kinds.STAGE_ENDED, stage="probe", bytes=12345, nothing=None)
    reader = JournalReader(path)
    (event,) = reader.read()
    assert reader.n_invalid_lines == 0
    assert (event.run, event.emitter, event.data["bytes"]) == ("run-1", "agent-1", 12345)


@pytest.mark.parametrize("text", ["lone surrogate \ud83d", "undecodable file name \udcff", "line\r\nand\u2028more"])
def test_unusual_text(journal, path, text):
    journal.emit(kinds.NOTICE, text=text)
    journal.emit(kinds.NOTICE, text="next")
    reader = JournalReader(path)
    assert [event.seq for event in reader.read()] == [1, 2]
    assert reader.n_invalid_lines == 0


def test_full_disk(tmp_path):
    """The file size limit simulates a full disk: one write is cut short, the next fails, then space is free again."""
    script = textwrap.dedent("""
        import resource, sys
        from pathlib import Path
        from packtrain.events import Journal, Redactor
        journal = Journal(Path(sys.argv[1]), "run-1", "0", "agent-1", Redactor())
        journal.emit("notice", text="before")
        hard_limit = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (Path(sys.argv[1]).stat().st_size + 40, hard_limit))
        for _ in range(2):
            try:
                journal.emit("notice", text="does not fit")
            except OSError:
                print("full")
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard_limit, hard_limit))
        journal.emit("notice", text="after")
    """)
    path = tmp_path / "journal.jsonl"
    result = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["full", "full"]
    reader = JournalReader(path)
    assert [event.data["text"] for event in reader.read()] == ["before", "after"]
    assert reader.n_invalid_lines == 1
