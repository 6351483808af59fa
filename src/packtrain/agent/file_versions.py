"""Versions of files that programs write, and the names that are not theirs yet."""

from __future__ import annotations

from pathlib import Path

Version = tuple[int, int]  # size and time of change


def version_of(path: Path) -> Version:
    seen = path.stat()
    return seen.st_size, seen.st_mtime_ns


def is_temporary(name: str) -> bool:
    """`.NAME.tmp-PID`: somebody is still writing it."""
    last = name.rpartition("/")[2]
    return last.startswith(".") and ".tmp-" in last
