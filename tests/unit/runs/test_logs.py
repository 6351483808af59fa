"""`logs -f` of a job on a worker: first the log tail that the pool publishes, then the file itself."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from packtrain.plan import AttemptFolder
from packtrain.runs.logs import AttemptLogReader


@pytest.fixture
def reader(tmp_path):
    return AttemptLogReader(AttemptFolder(tmp_path))


def log_tail(text: str, end: int) -> dict:
    return {"file": "train.out", "end": end, "text": quote(text)}


def lines(reader, text, end):
    return [line for _, line in reader.read_log_tail(log_tail(text, end))]


def test_overlap_is_skipped(reader):
    assert lines(reader, "one\ntwo\n", 8) == ["one", "two"]
    assert lines(reader, "one\ntwo\n", 8) == []
    assert lines(reader, "two\nthree\n", 14) == ["three"]


def test_incomplete_line_is_kept_back(reader):
    assert lines(reader, "one\ntw", 6) == ["one"]
    assert lines(reader, "one\ntwo\n", 8) == ["two"]


def test_gap(reader):
    assert lines(reader, "one\n", 4) == ["one"]
    assert lines(reader, "late\n", 105) == ["…", "late"]


def test_file_continues_after_tail(reader):
    lines(reader, "one\ntwo\n", 8)
    reader.attempt_folder.logs.mkdir()
    (reader.attempt_folder.logs / "train.out").write_text("one\ntwo\nthree\n")
    assert list(reader.read_new_lines()) == [("train.out", "three")]


@pytest.mark.parametrize(
    "invalid", [{}, {"file": "../../x", "end": "?", "text": 1}, {"file": "", "end": 3, "text": "abc"}]
)
def test_invalid_tail_is_ignored(reader, invalid):
    assert list(reader.read_log_tail(invalid)) == []
