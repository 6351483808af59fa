"""Remove a folder and nothing else, whatever permissions the steps gave to its subfolders.

The functions work on folder descriptors: they follow no symbolic link, reach names of any depth, and do not enter a
file system that is mounted inside the folder.
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
    """What was removed, and what could not be."""

    files: int = 0
    bytes: int = 0
    problems: list[str] = field(default_factory=list)  # paths that could not be removed, with the reason; at most 10

    def add_problem(self, path: Path, reason: str) -> None:
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(f"{path}: {reason}")


def remove_tree(root: Path) -> CleanupResult:
    """Remove a folder and its content. Errors are returned in the result, never raised."""
    result = CleanupResult()
    with suppress(FileNotFoundError):
        if stat.S_ISDIR(root.lstat().st_mode):
            parent_fd = os.open(root.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                _remove_folder(parent_fd, root.name, root, root.lstat().st_dev, result)
            finally:
                os.close(parent_fd)
    return result


def _remove_folder(parent_fd: int, name: str, path: Path, device: int, result: CleanupResult) -> None:
    try:
        _empty_folder(parent_fd, name, path, device, result)
        os.rmdir(name, dir_fd=parent_fd)
    except (OSError, RecursionError) as error:
        result.add_problem(path, str(error))


def _empty_folder(parent_fd: int, name: str, path: Path, device: int, result: CleanupResult) -> None:
    os.chmod(name, stat.S_IRWXU, dir_fd=parent_fd)
    folder_fd = os.open(name, _OPEN_FLAGS, dir_fd=parent_fd)
    try:
        for child in os.listdir(folder_fd):
            _remove_entry(folder_fd, child, path / child, device, result)
    finally:
        os.close(folder_fd)


def _remove_entry(folder_fd: int, name: str, path: Path, device: int, result: CleanupResult) -> None:
    try:
        status = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
        if status.st_dev != device:
            result.add_problem(path, "another file system is mounted here")
        elif stat.S_ISDIR(status.st_mode):
            _remove_folder(folder_fd, name, path, device, result)
        else:
            os.unlink(name, dir_fd=folder_fd)
            result.files += 1
            result.bytes += status.st_size if status.st_nlink == 1 else 0
    except OSError as error:
        result.add_problem(path, str(error))
