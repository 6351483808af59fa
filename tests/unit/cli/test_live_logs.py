"""`logs -f` of a job that is far away: the newest bytes of its log as the pool tells them, then the file itself."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from packtrain.cli.commands.watch.logs import AttemptLogReader
from packtrain.plan import AttemptFolder


@pytest.fixture
def tail(tmp_path):
    return AttemptLogReader(AttemptFolder(tmp_path))


def told(text: str, end: int) -> dict:
    return {"file": "train.out", "end": end, "text": quote(text)}


def lines(tail, text, end):
    return [line for _, line in tail.catch(told(text, end))]


def test_only_what_is_new_is_shown(tail):
    assert lines(tail, "one\ntwo\n", 8) == ["one", "two"]
    assert lines(tail, "one\ntwo\n", 8) == []
    assert lines(tail, "two\nthree\n", 14) == ["three"]


def test_an_unfinished_line_waits(tail):
    assert lines(tail, "one\ntw", 6) == ["one"]
    assert lines(tail, "one\ntwo\n", 8) == ["two"]


def test_a_gap_is_shown_as_one(tail):
    assert lines(tail, "one\n", 4) == ["one"]
    assert lines(tail, "late\n", 105) == ["…", "late"]


def test_the_file_goes_on_where_the_words_ended(tail):
    lines(tail, "one\ntwo\n", 8)
    tail.attempt.logs.mkdir()
    (tail.attempt.logs / "train.out").write_text("one\ntwo\nthree\n")
    assert list(tail.read()) == [("train.out", "three")]


@pytest.mark.parametrize("odd", [{}, {"file": "../../x", "end": "?", "text": 1}, {"file": "", "end": 3, "text": "abc"}])
def test_nonsense_is_passed_over(tail, odd):
    assert list(tail.catch(odd)) == []
