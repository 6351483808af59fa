"""Splits a submit file into logical lines: joins continuations and `@=` blocks, and drops comments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_BLOCK = re.compile(r"\s*([^\s=]+)\s*@=(\S+)\s*")
_BLANKS = " \t"


@dataclass(frozen=True)
class LogicalLine:
    """One statement of a submit file."""

    line_number: int  # of its first physical line, from 1
    text: str


class LogicalLines:
    """Iterates over the logical lines of a text. The parser of `queue … (` reads its list with `read_block`."""

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
        """Return a line with its continuations. Like HTCondor, drop only the # of a comment among them."""
        parts: list[str] = []
        while True:
            line = self._lines[self._position]
            self._position += 1
            if parts:
                line = line.lstrip("#" + _BLANKS)
            is_continued = line.endswith("\\") and not (line.startswith("#") and not parts)
            parts.append(line[:-1] if is_continued else line)
            if not is_continued or self._position == len(self._lines):
                return "".join(parts)

    def read_block(self, end_marker: str) -> list[str] | None:
        """Return the lines before the one that starts with `end_marker`; None, and read nothing, if there is none."""
        for end in range(self._position, len(self._lines)):
            if self._lines[end].startswith(end_marker):
                block, self._position = self._lines[self._position : end], end + 1
                return block
        return None
