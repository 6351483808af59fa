"""Extract the members of an archive so that nothing is written outside of the target folder.

Two rules guarantee that, whatever the names and the order of the members: a path leads through real folders only, never
through a link; and a link is relative, has `..` only at its start, and does not leave the folder.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Optional, Protocol

from packtrain.errors import FailedError
from packtrain.transfer.archive.byte_stream import ByteStream
from packtrain.transfer.archive.extract_dir import broken_member_error, unsafe_member_error
from packtrain.transfer.archive.small_file_writer import SmallFile

_MAX_CACHED_FOLDERS = 1 << 16
_INVALID_NAMES = frozenset({"", ".", ".."})


@contextlib.contextmanager
def map_archive_errors(archive_name: str) -> Iterator[None]:
    """Convert errors of damaged archives to FailedError with the kind `truncated` or `archive_broken`."""
    import lzma
    import zlib

    try:
        yield
    except EOFError as error:
        raise FailedError("truncated", f"{archive_name} is truncated: {error}") from error
    except (lzma.LZMAError, zlib.error, OSError, ValueError) as error:
        raise FailedError("archive_broken", f"{archive_name} cannot be read: {error}") from error


class MemberWriter(Protocol):
    """Creates members in the target folder. The extractor has checked that their paths are safe."""

    def write_small_file(self, small_file: SmallFile) -> None:
        """Write a file whose content is in memory."""
        ...

    def write_file(self, path: str, mode: int, data: ByteStream, name: str, archive_name: str) -> None:
        """Write a file from a stream; `name` and `archive_name` are for messages."""
        ...

    def make_folder(self, path: str, name: str, archive_name: str) -> None:
        """Create a folder, unless it exists and is not a link."""
        ...

    def make_symlink(self, path: str, target: str, name: str, archive_name: str) -> None:
        """Create a symbolic link, and replace an existing file."""
        ...

    def make_hardlink(self, path: str, source: str, name: str, archive_name: str) -> None:
        """Create a hard link to `source`, which is a file of the archive."""
        ...

    def is_file(self, path: str) -> bool:
        """Return whether the path is a regular file and not a link."""
        ...

    def is_link(self, path: str) -> bool:
        """Return whether the path is a symbolic link."""
        ...


class SafeExtractor:
    """Extracts the members of one archive.

    Args:
        extract_dir: Writes the members, mostly to an ExtractDir.
        archive_name: The name of the archive, for messages.
        prefix: The folder below `extract_dir` for an archive inside of another one, with a trailing slash.
    """

    def __init__(self, extract_dir: MemberWriter, archive_name: str, prefix: str = "") -> None:
        self.archive_name = archive_name
        self._extract_dir, self._prefix = extract_dir, prefix
        self._real_folders: dict[str, str] = {}  # folder part of a member's name → path of that folder

    def nested_extractor(self, name: str, archive_name: str) -> SafeExtractor:
        """Create a folder and return an extractor for it, for an archive inside of this one."""
        self.make_folder(name)
        return SafeExtractor(
            self._extract_dir, archive_name, self._prefix + "/".join(self._split_or_reject(name)) + "/"
        )

    def make_folder(self, name: str) -> None:
        """Create a folder and its parents."""
        self._make_folders(self._split_or_reject(name))

    def write_small_file(self, name: str, mode: int, views: list[memoryview], size: int) -> None:
        """Queue a file whose content is in memory."""
        self._extract_dir.write_small_file(
            SmallFile(self._resolve_path(name), mode, views, size, name, self.archive_name)
        )

    def write_file(self, name: str, mode: int, data: ByteStream) -> None:
        """Write a file from a stream."""
        self._extract_dir.write_file(self._resolve_path(name), mode, data, name, self.archive_name)

    def make_symlink(self, name: str, target: str) -> None:
        """Create a symbolic link; raises FailedError if it leaves the folder."""
        if not _is_link_inside(self._split_or_reject(name), target):
            raise unsafe_member_error(name, self.archive_name, f"is a link to {target!r}, which leaves the folder")
        self._extract_dir.make_symlink(self._resolve_path(name), target, name, self.archive_name)

    def make_hardlink(self, name: str, target: str) -> None:
        """Create a hard link to another file of the archive."""
        source = self._resolve_link_target(name, target)
        path = self._resolve_path(name)
        if path != source:
            self._extract_dir.make_hardlink(path, source, name, self.archive_name)

    def reject(self, name: str, reason: str) -> None:
        """Raise FailedError for a member of a kind that is never extracted."""
        raise unsafe_member_error(name, self.archive_name, f"is {reason}")

    def _resolve_path(self, name: str) -> str:
        """Return the path of a member relative to the target folder, and create its parent folders."""
        slash = name.rfind("/") + 1
        folder, last = name[:slash], name[slash:]
        real_folder = self._real_folders.get(folder)
        if real_folder is None or last in _INVALID_NAMES or "\0" in last:
            return self._resolve_new_path(name, folder)
        return real_folder + last

    def _resolve_new_path(self, name: str, folder: str) -> str:
        parts = self._split_or_reject(name)
        if not parts:
            raise broken_member_error(name, self.archive_name, "is a file, but a folder of that name exists")
        real_folder = self._make_folders(parts[:-1])
        if len(self._real_folders) >= _MAX_CACHED_FOLDERS:
            self._real_folders.clear()
        if name == folder + parts[-1]:
            self._real_folders[folder] = real_folder
        return real_folder + parts[-1]

    def _split_or_reject(self, name: str) -> tuple[str, ...]:
        parts = _split_safe_path(name)
        if parts is None:
            raise unsafe_member_error(name, self.archive_name, "would be written outside of the folder")
        return parts

    def _make_folders(self, parts: tuple[str, ...]) -> str:
        """Create nested folders that do not exist, and return the path of the innermost with a trailing slash."""
        path, name = self._prefix, ""
        for part in parts:
            path, name = f"{path}{part}/", f"{name}{part}/"
            if name not in self._real_folders:
                self._extract_dir.make_folder(path[:-1], name[:-1], self.archive_name)
                self._real_folders[name] = path
        return path

    def _resolve_link_target(self, name: str, target: str) -> str:
        parts = _split_safe_path(target)
        if parts is None:
            raise unsafe_member_error(
                name, self.archive_name, f"is a link to {target!r}, which is outside of the folder"
            )
        folders = [self._prefix + "/".join(parts[:depth]) for depth in range(1, len(parts))]
        if any(map(self._extract_dir.is_link, folders)):
            raise unsafe_member_error(
                name, self.archive_name, f"is a link to {target!r}, which leads through another link"
            )
        path = self._prefix + "/".join(parts)
        if not parts or not self._extract_dir.is_file(path):
            raise broken_member_error(
                name, self.archive_name, f"is a link to {target!r}, which is not a file of the archive"
            )
        return path


def _split_safe_path(name: str) -> tuple[str, ...] | None:
    """Return the parts of a path, or None if it is absolute or contains `..`."""
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    return None if name.startswith("/") or ".." in parts or "\0" in name else parts


def _is_link_inside(parts: tuple[str, ...], target: str) -> bool:
    """Return whether a link at the path `parts` stays in the folder and has `..` only at its start."""
    steps = [step for step in target.split("/") if step not in ("", ".")]
    n_up = next((i for i, step in enumerate(steps) if step != ".."), len(steps))
    is_relative = bool(target) and not target.startswith("/") and "\0" not in target
    return is_relative and ".." not in steps[n_up:] and n_up < len(parts)


MemberHandler = Optional[Callable[[SafeExtractor, str, int, ByteStream], None]]
"""Handles a member that is a file, given its name, its mode, and its data.

It need not read all of the data. None means that files are written."""
