"""Text to logical lines: continuations joined, comments dropped, `@=` blocks kept together."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_BLOCK = re.compile(r"\s*([^\s=]+)\s*@=(\S+)\s*")
_BLANKS = " \t"


@dataclass(frozen=True)
class LogicalLine:
    line_number: int  # of its first physical line, from 1
    text: str


class LogicalLines:
    """Walks through a text; `queue … (` takes the raw lines that belong to it with `block`."""

    def __init__(self, text: str) -> None:
        self._lines = [line.rstrip("\r").strip(_BLANKS) for line in text.split("\n")]
        self._position = 0

    def __iter__(self) -> Iterator[LogicalLine]:
        while self._position < len(self._lines):
            number, text = self._position + 1, self._read_line()
            if text.startswith("#") or not text:
                continue
            opened = _BLOCK.fullmatch(text)
            if opened:
                text = f"{opened.group(1)} = " + "\n".join(self.read_block("@" + opened.group(2)) or ())
            yield LogicalLine(number, text)

    def _read_line(self) -> str:
        """A line with its continuations. Of a comment among them HTCondor drops only the mark; so do we."""
        parts: list[str] = []
        while True:
            line = self._lines[self._position]
            self._position += 1
            if parts:
                line = line.lstrip("#" + _BLANKS)
            goes_on = line.endswith("\\") and not (line.startswith("#") and not parts)
            parts.append(line[:-1] if goes_on else line)
            if not goes_on or self._position == len(self._lines):
                return "".join(parts)

    def read_block(self, end_marker: str) -> list[str] | None:
        """The lines up to the one that starts with `end`; None if there is none, and then nothing is taken."""
        for at in range(self._position, len(self._lines)):
            if self._lines[at].startswith(end_marker):
                found, self._position = self._lines[self._position : at], at + 1
                return found
        return None
