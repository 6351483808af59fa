"""Text to logical lines: continuations joined, comments dropped, `@=` blocks kept together."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_BLOCK = re.compile(r"\s*([^\s=]+)\s*@=(\S+)\s*")
_BLANKS = " \t"


@dataclass(frozen=True)
class Line:
    number: int  # of its first physical line, from 1
    text: str


class Lines:
    """Walks through a text; `queue … (` takes the raw lines that belong to it with `block`."""

    def __init__(self, text: str) -> None:
        self._lines = [line.rstrip("\r").strip(_BLANKS) for line in text.split("\n")]
        self._at = 0

    def __iter__(self) -> Iterator[Line]:
        while self._at < len(self._lines):
            number, text = self._at + 1, self._next()
            if text.startswith("#") or not text:
                continue
            opened = _BLOCK.fullmatch(text)
            if opened:
                text = f"{opened.group(1)} = " + "\n".join(self.block("@" + opened.group(2)) or ())
            yield Line(number, text)

    def _next(self) -> str:
        """A line with its continuations. Of a comment among them HTCondor drops only the mark; so do we."""
        parts: list[str] = []
        while True:
            line = self._lines[self._at]
            self._at += 1
            if parts:
                line = line.lstrip("#" + _BLANKS)
            goes_on = line.endswith("\\") and not (line.startswith("#") and not parts)
            parts.append(line[:-1] if goes_on else line)
            if not goes_on or self._at == len(self._lines):
                return "".join(parts)

    def block(self, end: str) -> list[str] | None:
        """The lines up to the one that starts with `end`; None if there is none, and then nothing is taken."""
        for at in range(self._at, len(self._lines)):
            if self._lines[at].startswith(end):
                found, self._at = self._lines[self._at : at], at + 1
                return found
        return None
