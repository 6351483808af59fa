"""Removes the sandbox, whatever permissions the steps gave to its folders, and nothing else.

Works on folder descriptors: no symbolic link is followed, names of any depth are reached, and
a file system that was mounted inside the sandbox is left alone.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_MOST_PROBLEMS = 10


@dataclass
class Cleaned:
    files: int = 0
    bytes: int = 0
    problems: list[str] = field(default_factory=list)  # what could not be removed, and why

    def problem(self, path: Path, reason: str) -> None:
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(f"{path}: {reason}")


def remove_tree(root: Path) -> Cleaned:
    """Remove the folder with all it holds. What cannot be removed is told, never raised."""
    cleaned = Cleaned()
    with suppress(FileNotFoundError):
        if stat.S_ISDIR(root.lstat().st_mode):
            parent = os.open(root.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                _remove_folder(parent, root.name, root, root.lstat().st_dev, cleaned)
            finally:
                os.close(parent)
    return cleaned


def _remove_folder(parent: int, name: str, path: Path, device: int, cleaned: Cleaned) -> None:
    try:
        _empty_folder(parent, name, path, device, cleaned)
        os.rmdir(name, dir_fd=parent)
    except (OSError, RecursionError) as error:
        cleaned.problem(path, str(error))


def _empty_folder(parent: int, name: str, path: Path, device: int, cleaned: Cleaned) -> None:
    os.chmod(name, stat.S_IRWXU, dir_fd=parent)
    folder = os.open(name, _OPEN, dir_fd=parent)
    try:
        for child in os.listdir(folder):
            _remove_entry(folder, child, path / child, device, cleaned)
    finally:
        os.close(folder)


def _remove_entry(folder: int, name: str, path: Path, device: int, cleaned: Cleaned) -> None:
    try:
        seen = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if seen.st_dev != device:
            cleaned.problem(path, "another file system is mounted here")
        elif stat.S_ISDIR(seen.st_mode):
            _remove_folder(folder, name, path, device, cleaned)
        else:
            os.unlink(name, dir_fd=folder)
            cleaned.files += 1
            cleaned.bytes += seen.st_size if seen.st_nlink == 1 else 0
    except OSError as error:
        cleaned.problem(path, str(error))
