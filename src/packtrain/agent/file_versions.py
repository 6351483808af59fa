"""Versions of files that programs write, and the names that are not theirs yet."""

from __future__ import annotations

from pathlib import Path

FileVersion = tuple[int, int]  # size and time of change


def file_version(path: Path) -> FileVersion:
    seen = path.stat()
    return seen.st_size, seen.st_mtime_ns


def is_temporary_name(name: str) -> bool:
    """`.NAME.tmp-PID`: somebody is still writing it."""
    last = name.rpartition("/")[2]
    return last.startswith(".") and ".tmp-" in last
