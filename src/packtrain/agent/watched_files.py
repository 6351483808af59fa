"""Files that a program writes while the agent watches them: how to find them, their versions and new lines."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from pathlib import Path

from packtrain.errors import FailedError

FileVersion = tuple[int, int]  # size in bytes and modification time in nanoseconds
MAX_LINE_BYTES = 1 << 16  # longer unfinished lines lose their beginning


def file_version(path: Path) -> FileVersion:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def match_files(pattern: str, folder: Path) -> list[Path]:
    """Return the files that match the pattern, or the matching folders if no file matches."""
    if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
        raise FailedError("output_invalid", f"`expect` names {pattern!r}, which is not below the output folder")
    # Unlike Path.glob, glob.glob accepts every pattern, for example `**.pt`.
    paths = sorted(map(Path, glob.glob(f"{glob.escape(str(folder))}/{pattern}", recursive=True)))  # noqa: PTH207
    return [path for path in paths if path.is_file()] or [path for path in paths if path.is_dir() and path != folder]


def walk_files(folder: Path) -> Iterator[Path]:
    """Yield every file below the folder, sorted by name."""
    for where, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(where) / name for name in sorted(names))


class TailedFile:
    """Reads the lines that a program appends to a file."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset, self._partial_line = path, 0, b""

    def read_lines(self, final: bool = False) -> list[bytes]:
        """Return the non-empty lines completed since the last call; with `final`, also an unfinished last line."""
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
