"""Headers and the values that several modules need."""

from __future__ import annotations

import email.utils
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packtrain.transfer.http.headers import (
    MAX_RETRY_AFTER_S,
    Headers,
    parse_content_range,
    parse_number,
    parse_retry_after_s,
)


def test_names_ignore_case_and_values_repeat():
    headers = Headers([("Digest", "a"), ("DIGEST", " b\r\n c ")])
    assert headers.get("digest") == "a"
    assert headers.get_combined("Digest") == "a, b  c"
    assert headers.get("Missing") is None and headers.get("Missing", "x") == "x"


@pytest.mark.parametrize(
    ("value", "expected"),
    [("7", 7.0), ("", None), ("soon", None), ("-5", None), ("9" * 5000, MAX_RETRY_AFTER_S), ("1e3", None)],
)
def test_retry_after_seconds(value, expected):
    assert parse_retry_after_s(Headers([("Retry-After", value)])) == expected


def test_retry_after_date():
    def parse(offset_s: float) -> float | None:
        date = email.utils.formatdate(time.time() + offset_s, usegmt=True)
        return parse_retry_after_s(Headers([("Retry-After", date)]))

    assert 0 < (parse(3600) or 0) <= 3600
    assert parse(-3600) == 0
    assert parse(1e9) == MAX_RETRY_AFTER_S


@given(first=st.integers(0, 1 << 62), length=st.integers(1, 1 << 40), total=st.integers(0, 1 << 62) | st.none())
def test_content_range(first, length, total):
    text = f"bytes {first}-{first + length - 1}/{'*' if total is None else total}"
    assert parse_content_range(Headers([("Content-Range", text)])) == (first, total)


@given(st.text(st.characters(max_codepoint=255), max_size=40) | st.from_regex(r"bytes \d+-\d+/\d+x?", fullmatch=True))
def test_any_text_as_value(text):
    """Whatever a server sends, values are numbers or absent; none raises."""
    headers = Headers([("Content-Range", text), ("Retry-After", text)])
    first, total = parse_content_range(headers)
    assert first is None or first >= 0
    assert total is None or total >= 0
    retry_after_s = parse_retry_after_s(headers)
    assert retry_after_s is None or 0 <= retry_after_s <= MAX_RETRY_AFTER_S
    number = parse_number(text)
    assert number is None or str(number) == (text.strip().lstrip("0") or "0")
