"""New lines of a file that a program writes while it runs."""

from __future__ import annotations

from pathlib import Path

MAX_LINE_BYTES = 1 << 16  # of an unfinished line no more is kept


class TailedFile:
    def __init__(self, path: Path) -> None:
        self._path, self._offset, self._partial_line = path, 0, b""

    def read_lines(self, final: bool = False) -> list[bytes]:
        """Those that were completed since the last call, empty ones left out; `last` takes an unfinished one, too."""
        lines = (self._partial_line + self._read_new_bytes()).split(b"\n")
        self._partial_line = b"" if final else lines.pop()[-MAX_LINE_BYTES:]
        return [line for line in lines if line.strip()]

    def _read_new_bytes(self) -> bytes:
        try:
            with open(self._path, "rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return b""
        self._offset += len(data)
        return data
