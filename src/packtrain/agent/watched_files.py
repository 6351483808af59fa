"""New lines of a file that a program writes while it runs."""

from __future__ import annotations

from pathlib import Path

LONGEST_LINE = 1 << 16  # of an unfinished line no more is kept


class GrowingFile:
    def __init__(self, path: Path) -> None:
        self._path, self._offset, self._rest = path, 0, b""

    def lines(self, last: bool = False) -> list[bytes]:
        """Those that were completed since the last call, empty ones left out; `last` takes an unfinished one, too."""
        lines = (self._rest + self._new_bytes()).split(b"\n")
        self._rest = b"" if last else lines.pop()[-LONGEST_LINE:]
        return [line for line in lines if line.strip()]

    def _new_bytes(self) -> bytes:
        try:
            with open(self._path, "rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return b""
        self._offset += len(data)
        return data
