"""The folder that an archive is extracted to: creates files, folders and links within a space budget.

Paths are relative to the folder, which is held open. `safe_extractor` has checked before that they are safe.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from packtrain.errors import FailedError
from packtrain.fileutil import DISK_FULL_ERRNOS, free_bytes
from packtrain.transfer.archive.byte_stream import ByteStream
from packtrain.transfer.archive.small_file_writer import SmallFile, SmallFileWriter
from packtrain.transfer.archive.space_budget import SpaceBudget

MAX_SMALL_FILE_BYTES = 4 << 20  # files up to this size are written at once, by another thread
CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_MODE, _EXECUTABLE_MODE = 0o666, 0o777  # before the umask; never setuid or sticky
_OWNER_EXECUTE_BIT = 0o100
_MAX_VIEWS_PER_WRITE = 256  # the kernel's limit is 1024


class ExtractDir:
    """A context manager; when its block ends, everything is written or an error is raised.

    Args:
        folder: The folder, which is created if necessary.
        max_bytes: Limit for the extracted size; None: the free disk space.
        archive_name: The name of the archive, for messages.
        on_written: Receives the number of bytes extracted so far.
    """

    def __init__(
        self, folder: Path, max_bytes: int | None, archive_name: str, on_written: Callable[[int], None]
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._on_written = folder, on_written
        self._writer = SmallFileWriter(self._write_small_now)
        self.space_budget = SpaceBudget(folder, max_bytes, archive_name, self._writer.unwritten_bytes)
        self.n_files = 0

    def __enter__(self) -> ExtractDir:
        self._dir_fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._writer.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        try:
            self._writer.__exit__(*exc)
        finally:
            os.close(self._dir_fd)

    def write_small_file(self, small_file: SmallFile) -> None:
        """Queue a small file for the writer thread."""
        self.space_budget.reserve(small_file.size, n_files=1)
        self._writer.put(small_file)
        self.n_files += 1
        self._on_written(self.space_budget.used_bytes)

    def write_file(self, path: str, mode: int, data: ByteStream, name: str, archive_name: str) -> None:
        """Write a file from a stream.

        Args:
            path: The path relative to the folder.
            mode: Its mode in the archive.
            data: The content.
            name: The name of the member, for messages.
            archive_name: The name of the archive, for messages.
        """
        self._writer.flush()
        self.space_budget.reserve(0, n_files=1)
        with map_write_errors(self._folder, name, archive_name):
            fd = self._create_file(path, mode, name, archive_name)
        try:
            for chunk in iter(data.read_chunk, memoryview(b"")):
                self.space_budget.reserve(len(chunk))
                with map_write_errors(self._folder, name, archive_name):
                    write_all(fd, chunk)
                self._on_written(self.space_budget.used_bytes)
        finally:
            os.close(fd)
        self.n_files += 1

    def make_folder(self, path: str, name: str, archive_name: str) -> None:
        """Create a folder, unless it exists and is not a link."""
        self.space_budget.reserve(0, n_files=1)
        with map_write_errors(self._folder, name, archive_name):
            make_real_folder(self._dir_fd, path, name, archive_name)

    def make_symlink(self, path: str, target: str, name: str, archive_name: str) -> None:
        """Create a symbolic link, and replace an existing file."""
        self._writer.flush()
        self.space_budget.reserve(0, n_files=1)
        with map_write_errors(self._folder, name, archive_name):
            self._remove_existing(path, name, archive_name)
            os.symlink(target, path, dir_fd=self._dir_fd)

    def make_hardlink(self, path: str, source: str, name: str, archive_name: str) -> None:
        """Create a hard link to `source`, which is a file of the archive; copy it if the file system has no links."""
        self._writer.flush()
        self.space_budget.reserve(0, n_files=1)
        with map_write_errors(self._folder, name, archive_name):
            self._remove_existing(path, name, archive_name)
            try:
                os.link(source, path, src_dir_fd=self._dir_fd, dst_dir_fd=self._dir_fd, follow_symlinks=False)
            except OSError as error:
                if error.errno in DISK_FULL_ERRNOS:
                    raise
                self._copy_file(path, source, name, archive_name)
                return
        self.n_files += 1

    def is_file(self, path: str) -> bool:
        """Return whether the path is a regular file and not a link."""
        self._writer.flush()
        return stat.S_ISREG(self._stat_mode(path))

    def is_link(self, path: str) -> bool:
        """Return whether the path is a symbolic link."""
        return stat.S_ISLNK(self._stat_mode(path))

    def _stat_mode(self, path: str) -> int:
        return stat_mode(self._dir_fd, path)

    def _copy_file(self, path: str, source: str, name: str, archive_name: str) -> None:
        fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._dir_fd)
        try:
            data = ByteStream(lambda: os.read(fd, MAX_SMALL_FILE_BYTES))
            self.write_file(path, os.fstat(fd).st_mode, data, name, archive_name)
        finally:
            os.close(fd)

    def _write_small_now(self, small_file: SmallFile) -> None:
        name, archive_name = small_file.member_name, small_file.archive_name
        with map_write_errors(self._folder, name, archive_name):
            fd = self._create_file(small_file.path, small_file.mode, name, archive_name)
            try:
                write_views(fd, small_file.views, small_file.size)
            finally:
                os.close(fd)

    def _create_file(self, path: str, mode: int, name: str, archive_name: str) -> int:
        allowed_mode = _EXECUTABLE_MODE if mode & _OWNER_EXECUTE_BIT else _FILE_MODE
        try:
            return os.open(path, CREATE_FLAGS, allowed_mode, dir_fd=self._dir_fd)
        except FileExistsError:
            self._remove_existing(path, name, archive_name)
            return os.open(path, CREATE_FLAGS, allowed_mode, dir_fd=self._dir_fd)

    def _remove_existing(self, path: str, name: str, archive_name: str) -> None:
        """Remove an earlier member of the same name, so that nothing is written through a link."""
        if stat.S_ISDIR(self._stat_mode(path)):
            raise broken_member_error(name, archive_name, "is a file, but a folder of that name exists")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path, dir_fd=self._dir_fd)


def make_real_folder(dir_fd: int, path: str, name: str, archive_name: str) -> None:
    """Create a folder below `dir_fd`, unless it exists; a link to a folder is not accepted."""
    try:
        os.mkdir(path, dir_fd=dir_fd)
        return
    except FileExistsError:
        mode = stat_mode(dir_fd, path)
    if stat.S_ISLNK(mode):
        raise unsafe_member_error(name, archive_name, "is a link, and the path of another member leads through it")
    if not stat.S_ISDIR(mode):
        raise broken_member_error(name, archive_name, "is a folder, but a file of that name exists")


def stat_mode(dir_fd: int, path: str) -> int:
    """Return the type and mode of a path below `dir_fd`, or 0 if there is nothing."""
    try:
        return os.stat(path, dir_fd=dir_fd, follow_symlinks=False).st_mode
    except OSError:
        return 0


@contextlib.contextmanager
def map_write_errors(folder: Path, name: str, archive_name: str) -> Iterator[None]:
    """Convert errors of writing a member below `folder` to FailedError: disk_full, archive_broken."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL_ERRNOS:
            problem = f"cannot be written ({error.strerror or error})"
            raise broken_member_error(name, archive_name, problem) from error
        detail = f"the disk is full at {name!r} of {archive_name}: {free_bytes(folder)} bytes are free"
        raise FailedError("disk_full", detail) from error


def unsafe_member_error(name: str, archive_name: str, problem: str) -> FailedError:
    """Return the error for a member that must not be extracted."""
    return FailedError("archive_unsafe", f"the member {name!r} of {archive_name} {problem}")


def broken_member_error(name: str, archive_name: str, problem: str) -> FailedError:
    """Return the error for a member that cannot be extracted."""
    return FailedError("archive_broken", f"the member {name!r} of {archive_name} {problem}")


def write_views(fd: int, views: list[memoryview], size: int) -> None:
    """Write views of `size` bytes in all to a new file."""
    if len(views) > _MAX_VIEWS_PER_WRITE:
        views = [memoryview(b"".join(views))]
    if not size or os.writev(fd, views) == size:
        return
    os.lseek(fd, 0, os.SEEK_SET)
    for view in views:
        write_all(fd, view)


def write_all(fd: int, view: memoryview) -> None:
    """Write a view, however many system calls that takes."""
    while len(view):
        view = view[os.write(fd, view) :]
