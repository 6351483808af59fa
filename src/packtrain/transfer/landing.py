"""The folder where an archive lands. Whatever its members are called, nothing leaves the folder.

The rules that make this hold, whatever the order of members: a path goes through real folders only,
never through a link; a link is relative, climbs (`..`) only at its beginning, and not out of the folder.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from typing import Protocol

from packtrain.errors import FailedError
from packtrain.transfer.partial import free_bytes

BLOCK = 1 << 20
_RESERVE = 1 << 20  # of the disk is left free: it is never quite filled
_CLUSTER = 4096  # what even a small file takes
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class Room:
    """How much may be written: the promised limit, and what the disk has."""

    def __init__(self, folder: Path, limit: int | None, archive: str) -> None:
        self._folder, self._limit, self._archive = folder, limit, archive
        self.taken = 0

    def take(self, size: int) -> None:
        if self._limit is not None and self.taken + size > self._limit:
            words = f"{self._archive} unpacks to more than the {self._limit} bytes that it may take"
            raise FailedError("archive_too_large", words)
        disk = os.statvfs(self._folder)
        free = disk.f_bavail * disk.f_frsize
        if size + _CLUSTER + _RESERVE > free:
            words = f"{self._archive} unpacks to more than the disk has: {self.taken} bytes done, {free} free"
            raise FailedError("archive_too_large", words)
        self.taken += size

    def give_back(self, size: int) -> None:
        self.taken -= size


class Landing:
    def __init__(self, folder: Path, room: Room, archive: str, wrote: Callable[[], None]) -> None:
        self._root, self._room, self._archive, self._wrote = folder, room, archive, wrote
        self._real: set[tuple[str, ...]] = set()  # folders that are known to exist and to be no links
        folder.mkdir(parents=True, exist_ok=True)
        self.files = 0

    def folder(self, name: str) -> None:
        self._make_folders(self._parts(name))

    def file(self, name: str, executable: bool, data: Readable) -> Path:
        path = self._cleared(name)
        with self._writing(name):
            made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o777 if executable else 0o666)
        with open(made, "wb", buffering=0) as file:
            for block in iter(lambda: data.read(BLOCK), b""):
                self._room.take(len(block))
                with self._writing(name):
                    _write(file, block)
                self._wrote()
        self.files += 1
        return path

    def symlink(self, name: str, target: str) -> None:
        parts = self._parts(name)
        if not _stays_inside(parts, target):
            raise self._unsafe(name, f"is a link to {target!r}, which leaves the folder")
        path = self._cleared(name)
        with self._writing(name):
            path.symlink_to(target)

    def hardlink(self, name: str, target: str) -> None:
        """A second name for a file of the archive."""
        source = self._existing(name, target)
        path = self._cleared(name)
        with self._writing(name):
            try:
                os.link(source, path)
            except OSError as error:
                if error.errno in _NO_ROOM:
                    raise
                with open(source, "rb") as data:  # a file system without hard links
                    self.file(name, os.access(source, os.X_OK), data)
                    return
        self.files += 1

    def refuse(self, name: str, what: str) -> None:
        raise self._unsafe(name, f"is {what}")

    def _parts(self, name: str) -> tuple[str, ...]:
        parts = _parts_inside(name)
        if parts is None:
            raise self._unsafe(name, "would land outside of the folder")
        return parts

    def _cleared(self, name: str) -> Path:
        """The path for a member, its folder made, an older member of the name removed."""
        parts = self._parts(name)
        self._make_folders(parts[:-1])
        path = self._root.joinpath(*parts)
        with contextlib.suppress(FileNotFoundError), self._writing(name):
            if stat.S_ISDIR(path.lstat().st_mode):
                raise self._broken(name, "is a file where a folder of that name is")
            path.unlink()
        return path

    def _make_folders(self, parts: tuple[str, ...]) -> None:
        for depth in range(1, len(parts) + 1):
            if parts[:depth] not in self._real:
                self._make_folder(parts[:depth])
                self._real.add(parts[:depth])

    def _make_folder(self, parts: tuple[str, ...]) -> None:
        path, name = self._root.joinpath(*parts), "/".join(parts)
        with contextlib.suppress(FileExistsError), self._writing(name):
            path.mkdir()
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            raise self._unsafe(name, "is a link, and another member goes through it")
        if not stat.S_ISDIR(mode):
            raise self._broken(name, "is a folder where a file of that name is")

    def _existing(self, name: str, target: str) -> Path:
        parts = _parts_inside(target)
        if parts is None:
            raise self._unsafe(name, f"is a link to {target!r}, which is outside of the folder")
        for depth in range(1, len(parts)):
            if self._root.joinpath(*parts[:depth]).is_symlink():
                raise self._unsafe(name, f"is a link to {target!r}, which goes through another link")
        path = self._root.joinpath(*parts)
        if path.is_symlink() or not path.is_file():
            raise self._broken(name, f"is a link to {target!r}, which is no file of the archive")
        return path

    @contextlib.contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, FileExistsError):
            raise
        except OSError as error:
            if error.errno in _NO_ROOM:
                words = f"the disk is full at {name!r} of {self._archive}: {free_bytes(self._root)} bytes are free"
                raise FailedError("disk_full", words) from error
            raise self._broken(name, f"cannot be written ({error.strerror or error})") from error

    def _unsafe(self, name: str, words: str) -> FailedError:
        return FailedError("archive_unsafe", f"the member {name!r} of {self._archive} {words}")

    def _broken(self, name: str, words: str) -> FailedError:
        return FailedError("archive_broken", f"the member {name!r} of {self._archive} {words}")


def _write(file: FileIO, block: bytes) -> None:
    rest = memoryview(block)
    while rest:
        rest = rest[file.write(rest) :]


def _parts_inside(name: str) -> tuple[str, ...] | None:
    """The parts of a path below the folder; None if it is not below."""
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    return None if name.startswith("/") or ".." in parts or "\0" in name else parts


def _stays_inside(parts: tuple[str, ...], target: str) -> bool:
    steps = [step for step in target.split("/") if step not in ("", ".")]
    climbs = next((i for i, step in enumerate(steps) if step != ".."), len(steps))
    relative = bool(target) and not target.startswith("/") and "\0" not in target
    return relative and ".." not in steps[climbs:] and climbs < len(parts)
