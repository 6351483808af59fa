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

_OPEN_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_MAX_PROBLEMS = 10


@dataclass
class CleanupResult:
    files: int = 0
    bytes: int = 0
    problems: list[str] = field(default_factory=list)  # what could not be removed, and why

    def add_problem(self, path: Path, reason: str) -> None:
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(f"{path}: {reason}")


def remove_tree(root: Path) -> CleanupResult:
    """Remove the folder with all it holds. What cannot be removed is told, never raised."""
    cleaned = CleanupResult()
    with suppress(FileNotFoundError):
        if stat.S_ISDIR(root.lstat().st_mode):
            parent = os.open(root.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                _remove_folder(parent, root.name, root, root.lstat().st_dev, cleaned)
            finally:
                os.close(parent)
    return cleaned


def _remove_folder(parent_fd: int, name: str, path: Path, device: int, result: CleanupResult) -> None:
    try:
        _empty_folder(parent_fd, name, path, device, result)
        os.rmdir(name, dir_fd=parent_fd)
    except (OSError, RecursionError) as error:
        result.add_problem(path, str(error))


def _empty_folder(parent_fd: int, name: str, path: Path, device: int, result: CleanupResult) -> None:
    os.chmod(name, stat.S_IRWXU, dir_fd=parent_fd)
    folder = os.open(name, _OPEN_FLAGS, dir_fd=parent_fd)
    try:
        for child in os.listdir(folder):
            _remove_entry(folder, child, path / child, device, result)
    finally:
        os.close(folder)


def _remove_entry(folder_fd: int, name: str, path: Path, device: int, result: CleanupResult) -> None:
    try:
        seen = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
        if seen.st_dev != device:
            result.add_problem(path, "another file system is mounted here")
        elif stat.S_ISDIR(seen.st_mode):
            _remove_folder(folder_fd, name, path, device, result)
        else:
            os.unlink(name, dir_fd=folder_fd)
            result.files += 1
            result.bytes += seen.st_size if seen.st_nlink == 1 else 0
    except OSError as error:
        result.add_problem(path, str(error))
