"""Header fields of an HTTP message: names without regard to case, values as they came."""

from __future__ import annotations

import re
from typing import overload

_OBS_FOLD = re.compile(r"\r?\n[ \t]+")


class Headers:
    def __init__(self) -> None:
        self._values: dict[str, list[str]] = {}

    @classmethod
    def parse(cls, data: bytes) -> Headers:
        """Lines `Name: value`; those that are none are passed over, as browsers do."""
        fields = cls()
        for line in _OBS_FOLD.sub(" ", data.decode("latin-1")).split("\n"):
            fields.add_line(line)
        return fields

    def add_line(self, line: str) -> None:
        name, colon, value = line.partition(":")
        if colon and name.strip():
            self._values.setdefault(name.strip().lower(), []).append(value.strip())

    @overload
    def get(self, name: str) -> str | None: ...

    @overload
    def get(self, name: str, default: str) -> str: ...

    def get(self, name: str, default: str | None = None) -> str | None:
        """The first of this name."""
        found = self._values.get(name.lower())
        return found[0] if found else default

    def get_combined(self, name: str) -> str | None:
        """All of this name as one list, for fields whose values are lists (RFC 9110, 5.3)."""
        found = self._values.get(name.lower())
        return ", ".join(found) if found else None
