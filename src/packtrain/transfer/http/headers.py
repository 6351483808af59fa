"""Headers of an HTTP message: case-insensitive names, unchanged values."""

from __future__ import annotations

import re
from typing import overload

_OBS_FOLD = re.compile(r"\r?\n[ \t]+")


class Headers:
    """A multi-dict of headers."""

    def __init__(self) -> None:
        self._values: dict[str, list[str]] = {}

    @classmethod
    def parse(cls, data: bytes) -> Headers:
        """Parse `Name: value` lines; invalid lines are ignored, as browsers do."""
        headers = cls()
        for line in _OBS_FOLD.sub(" ", data.decode("latin-1")).split("\n"):
            headers.add_line(line)
        return headers

    def add_line(self, line: str) -> None:
        """Add one `Name: value` line."""
        name, colon, value = line.partition(":")
        if colon and name.strip():
            self._values.setdefault(name.strip().lower(), []).append(value.strip())

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
