"""Headers of an HTTP message, and the values of those that several modules need."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import overload

MAX_RETRY_AFTER_S = 86400.0
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f]+")  # also folded lines
INVALID_CHARACTER = re.compile(r"[^\t\x20-\x7e\x80-\xff]")  # in names and values that are sent
_MAX_REASON_CHARS = 200
_NUMBER = re.compile(r"[0-9]{1,19}")
_CONTENT_RANGE = re.compile(r"bytes\s+(?:([0-9]{1,19})-([0-9]{1,19})|\*)/([0-9]{1,19}|\*)", re.IGNORECASE)


class Headers:
    """A multi-dict of headers: case-insensitive names, values without control characters."""

    def __init__(self, items: Iterable[tuple[str, str]] = ()) -> None:
        self._values: dict[str, list[str]] = {}
        for name, value in items:
            self._values.setdefault(name.lower(), []).append(_CONTROL_CHARACTERS.sub(" ", value).strip())

    @overload
    def get(self, name: str) -> str | None: ...

    @overload
    def get(self, name: str, default: str) -> str: ...

    def get(self, name: str, default: str | None = None) -> str | None:
        """Return the first value of a header."""
        values = self._values.get(name.lower())
        return values[0] if values else default

    def get_combined(self, name: str) -> str | None:
        """Return all values of a list header (RFC 9110, 5.3), joined by commas."""
        values = self._values.get(name.lower())
        return ", ".join(values) if values else None


def printable(reason: str) -> str:
    """Return a reason phrase for messages: short, and without control characters."""
    return "".join(char if char.isprintable() else " " for char in reason[:_MAX_REASON_CHARS]).strip()


def parse_number(text: str) -> int | None:
    """Return a number that a server states, or None if the text is none or absurdly long."""
    return int(text) if _NUMBER.fullmatch(text.strip()) else None


def parse_content_range(headers: Headers) -> tuple[int | None, int | None]:
    """Return the first byte and the total size of the Content-Range header."""
    match = _CONTENT_RANGE.fullmatch(headers.get("Content-Range", ""))
    if match is None:
        return None, None
    first, _, total = match.groups()
    return None if first is None else int(first), None if total == "*" else int(total)


def parse_retry_after_s(headers: Headers) -> float | None:
    """Return the Retry-After header (seconds or date) in seconds, at most a day, or None."""
    value = headers.get("Retry-After", "")
    if not value:
        return None
    if value.isdecimal():
        return min(float(value), MAX_RETRY_AFTER_S)
    from email.utils import parsedate_to_datetime

    try:
        return min(max(0.0, parsedate_to_datetime(value).timestamp() - time.time()), MAX_RETRY_AFTER_S)
    except (TypeError, ValueError, OverflowError):
        return None
