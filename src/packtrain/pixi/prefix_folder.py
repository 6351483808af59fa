"""The folder that the packages of an environment are written to, by several threads at once.

Packages have ranks, their places in the order of installation. Where two packages have the same file, the one of the
higher rank owns it, whichever is written first.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from packtrain.fileutil import DISK_FULL_ERRNOS
from packtrain.transfer.archive.byte_stream import CHUNK_BYTES, ByteStream
from packtrain.transfer.archive.extract_dir import (
    CREATE_FLAGS,
    broken_member_error,
    make_real_folder,
    map_write_errors,
    stat_mode,
    unsafe_member_error,
    write_all,
    write_views,
)
from packtrain.transfer.archive.small_file_writer import SmallFile
from packtrain.transfer.archive.space_budget import SpaceBudget

T = TypeVar("T")
_PERMISSIONS = 0o777
_SETUID_OR_SETGID = stat.S_ISUID | stat.S_ISGID


class PrefixFolder:
    """A context manager that holds the folder open.

    Args:
        folder: The folder, which is created.
        max_bytes: Limit for the installed size.
        name: The name of the environment, for messages.
    """

    def __init__(self, folder: Path, max_bytes: int, name: str) -> None:
        folder.mkdir()
        self.folder, self.max_bytes = folder, max_bytes
        self._space_budget = SpaceBudget(folder, max_bytes, name)
        self._lock = threading.Lock()
        self._owners: dict[str, int] = {}  # path → rank of the package that has it

    def __enter__(self) -> PrefixFolder:
        self.dir_fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self.dir_fd)

    @property
    def n_files(self) -> int:
        return len(self._owners)

    @property
    def n_bytes(self) -> int:
        return self._space_budget.used_bytes

    def is_owner(self, path: str, rank: int) -> bool:
        """Return whether the package of this rank has the path."""
        with self._lock:
            return self._owners.get(path) == rank

    def reserve(self, n_bytes: int, n_files: int = 0) -> None:
        """Reserve space. Raises FailedError: archive_too_large."""
        with self._lock:
            self._space_budget.reserve(n_bytes, n_files)

    def create(self, path: str, rank: int, make: Callable[[], T]) -> T | None:
        """Return what `make` returns, or None if a package of a higher rank owns the path.

        Args:
            path: The path relative to the folder.
            rank: The rank of the package.
            make: Creates the path; raises FileExistsError if it exists.
        """
        with self._lock:
            if self._owners.get(path, rank) > rank:
                return None
            self._owners[path] = rank
        while True:
            try:
                return make()
            except FileExistsError:
                with self._lock:
                    if self._owners[path] != rank:
                        return None
                    if stat.S_ISDIR(stat_mode(self.dir_fd, path)):
                        raise
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(path, dir_fd=self.dir_fd)


class PackageWriter:
    """Writes the members of one package; a MemberWriter of the safe extractor."""

    def __init__(self, prefix_folder: PrefixFolder, rank: int) -> None:
        self._prefix_folder, self._rank = prefix_folder, rank

    def write_small_file(self, small_file: SmallFile) -> None:
        """Write a file whose content is in memory."""
        name, archive_name = small_file.member_name, small_file.archive_name
        self._prefix_folder.reserve(small_file.size, n_files=1)
        with self._create_file(small_file.path, small_file.mode, name, archive_name) as fd:
            if fd is not None:
                write_views(fd, small_file.views, small_file.size)

    def write_file(self, path: str, mode: int, data: ByteStream, name: str, archive_name: str) -> None:
        """Write a file from a stream."""
        self._prefix_folder.reserve(0, n_files=1)
        with self._create_file(path, mode, name, archive_name) as fd:
            for chunk in iter(data.read_chunk, memoryview(b"")):
                if fd is not None:
                    self._prefix_folder.reserve(len(chunk))
                    write_all(fd, chunk)

    def make_folder(self, path: str, name: str, archive_name: str) -> None:
        """Create a folder, unless it exists and is not a link."""
        self._prefix_folder.reserve(0, n_files=1)
        with map_write_errors(self._prefix_folder.folder, name, archive_name):
            make_real_folder(self._prefix_folder.dir_fd, path, name, archive_name)

    def make_symlink(self, path: str, target: str, name: str, archive_name: str) -> None:
        """Create a symbolic link."""
        dir_fd = self._prefix_folder.dir_fd
        self._prefix_folder.reserve(0, n_files=1)
        with self._map_errors(name, archive_name):
            self._prefix_folder.create(path, self._rank, lambda: os.symlink(target, path, dir_fd=dir_fd))

    def make_hardlink(self, path: str, source: str, name: str, archive_name: str) -> None:
        """Create a hard link to another file of the package; copy it if the file system has no links."""
        if not self._prefix_folder.is_owner(source, self._rank):
            problem = f"is a link to {source!r}, which another package replaces"
            raise broken_member_error(name, archive_name, problem)
        fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._prefix_folder.dir_fd)
        try:
            if not self._try_link(path, source, name, archive_name):
                mode = os.fstat(fd).st_mode & _PERMISSIONS
                self.write_file(path, mode, ByteStream(lambda: os.read(fd, CHUNK_BYTES)), name, archive_name)
        finally:
            os.close(fd)

    def is_file(self, path: str) -> bool:
        """Return whether the path is a regular file and not a link."""
        return stat.S_ISREG(stat_mode(self._prefix_folder.dir_fd, path))

    def is_link(self, path: str) -> bool:
        """Return whether the path is a symbolic link."""
        return stat.S_ISLNK(stat_mode(self._prefix_folder.dir_fd, path))

    def _try_link(self, path: str, source: str, name: str, archive_name: str) -> bool:
        """Create a hard link. Return False if the file system has none."""
        dir_fd = self._prefix_folder.dir_fd
        self._prefix_folder.reserve(0, n_files=1)

        def link() -> None:
            os.link(source, path, src_dir_fd=dir_fd, dst_dir_fd=dir_fd, follow_symlinks=False)

        with self._map_errors(name, archive_name):
            try:
                self._prefix_folder.create(path, self._rank, link)
            except OSError as error:
                if isinstance(error, FileExistsError) or error.errno in DISK_FULL_ERRNOS:
                    raise
                return False
        return True

    @contextlib.contextmanager
    def _map_errors(self, name: str, archive_name: str) -> Iterator[None]:
        with map_write_errors(self._prefix_folder.folder, name, archive_name):
            try:
                yield
            except FileExistsError:
                problem = "is a file, but a folder of that name exists"
                raise broken_member_error(name, archive_name, problem) from None

    @contextlib.contextmanager
    def _create_file(self, path: str, mode: int, name: str, archive_name: str) -> Iterator[int | None]:
        """Yield the descriptor of a new file, or None if another package owns the path."""
        if mode & _SETUID_OR_SETGID:
            raise unsafe_member_error(name, archive_name, "has a setuid or setgid bit")
        dir_fd = self._prefix_folder.dir_fd
        with self._map_errors(name, archive_name):
            fd = self._prefix_folder.create(
                path, self._rank, lambda: os.open(path, CREATE_FLAGS, _PERMISSIONS, dir_fd=dir_fd)
            )
            try:
                yield fd
                if fd is not None:
                    os.fchmod(fd, mode & _PERMISSIONS)
            finally:
                if fd is not None:
                    os.close(fd)
