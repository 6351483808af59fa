"""Power cuts: disks in image files, copied while a program writes, and booted afterwards.

A disk is an ext4 file system on a loop device; its image is in shared memory, so that syncs are fast. What a program
wrote is in the memory of the kernel until it is synced, or until the kernel writes it back by itself; only what reached
the device is in the image. So a copy of the image is what a power cut leaves. `PowerCuts.record` copies the images of
all disks, at the same moment, before each system call of a program that changes names, writes or syncs;
`PowerCuts.boot` then mounts each copy where the disk was, which replays its journal. Needs root.

The kernel may write back anything at any time, so a test runs once for each `Writeback`: nothing but what the program
syncs; all names, but no content (what ext4's journal does every five seconds); or files chosen at random.
"""

from __future__ import annotations

import os
import random
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

_SHARED_MEMORY = Path("/dev/shm")
_DISK_BYTES = 8 << 20
_COPY_BYTES = 1 << 16
_WRITTEN_SECTORS_FIELD = 6  # of the statistics of a block device
_MAKE_OPTIONS = ("-q", "-E", "lazy_itable_init=0,lazy_journal_init=0")  # the kernel must not write by itself later
_MOUNT_OPTIONS = "loop,noatime,commit=600,noauto_da_alloc"  # no commits and syncs that no program asked for
_STEPS = (
    *("fdatasync", "fsync", "link", "mkdir", "pwrite", "remove"),
    *("rename", "replace", "rmdir", "symlink", "unlink", "write"),
)
_FSYNC = os.fsync

Writeback = Callable[[Sequence["Disk"]], None]
"""Writes some of what the kernel has in memory to the disks. Called before each cut."""


class Disk:
    """A file system in an image file, mounted while the `with` block runs.

    Args:
        path: Where it is mounted.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._image: Path | None = None

    def __enter__(self) -> Disk:
        self.path.mkdir()
        image = self._new_image()
        _write_sparse(image, bytes(_DISK_BYTES))
        subprocess.run(["mkfs.ext4", *_MAKE_OPTIONS, image], check=True)
        self._mount(image)
        return self

    def __exit__(self, *exc: object) -> None:
        self._unmount()

    def written_sectors(self) -> int:
        """Return a number that changes when something reaches the device."""
        device = self.path.stat().st_dev
        statistics = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat").read_text(encoding="ascii")
        return int(statistics.split()[_WRITTEN_SECTORS_FIELD])

    def read_image(self) -> bytes:
        """Return what has reached the device."""
        assert self._image is not None
        return self._image.read_bytes()

    def replace_content(self, image: Path) -> None:
        """Mount a copy of an image in place of what is mounted now."""
        self._unmount()
        copy = self._new_image()
        _write_sparse(copy, image.read_bytes())
        self._mount(copy)

    def _new_image(self) -> Path:
        return _SHARED_MEMORY / f"packtrain-{self.path.name}-{os.urandom(8).hex()}.img"

    def _mount(self, image: Path) -> None:
        self._image = image
        subprocess.run(["mount", "-o", _MOUNT_OPTIONS, image, self.path], check=True)

    def _unmount(self) -> None:
        """Unmount the disk, even if files are open, and remove its image."""
        if os.path.ismount(self.path):
            subprocess.run(["umount", "--lazy", self.path], check=True)
        if self._image is not None:
            self._image.unlink(missing_ok=True)

    def files(self) -> list[Path]:
        """Return all files, sorted."""
        return sorted(path for path in self.path.rglob("*") if path.is_file() and not path.is_symlink())


def write_nothing(disks: Sequence[Disk]) -> None:
    """Write nothing back."""


def write_names(disks: Sequence[Disk]) -> None:
    """Commit the journal of each disk: names, but not the content of new files."""
    for disk in disks:
        _sync(disk.path / "lost+found", os.O_RDONLY)


def write_randomly(seed: int) -> Writeback:
    """Return a writeback that writes the content of random files, and with it all names of their disk."""
    chooser = random.Random(seed)

    def write_some(disks: Sequence[Disk]) -> None:
        files = [path for disk in disks for path in disk.files()]
        if files and chooser.random() < 0.5:
            _sync(chooser.choice(files), os.O_RDONLY)

    return write_some


def _sync(path: Path, flags: int) -> None:
    fd = os.open(path, flags)
    try:
        _FSYNC(fd)
    finally:
        os.close(fd)


class PowerCuts:
    """The states that power cuts at every step of a program leave on several disks.

    Args:
        disks: The disks.
        folder: Receives copies of their images.
        writeback: What the kernel writes by itself.
    """

    def __init__(self, disks: Sequence[Disk], folder: Path, writeback: Writeback = write_nothing) -> None:
        self._disks, self._folder, self._writeback = disks, folder, writeback
        self._lock = threading.RLock()
        self._written_sectors: list[int] = []
        self._steps: list[str] = []

    @contextmanager
    def record(self) -> Iterator[None]:
        """Cut the power before each step of the `with` block, and after the last one."""
        with ExitStack() as stack:
            for name in _STEPS:
                stack.enter_context(mock.patch.object(os, name, self._with_cut(name, getattr(os, name))))
            yield
        self.cut("the end")

    def _with_cut(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            with self._lock:  # no other thread may sync while the images are copied
                self.cut(f"{name}({', '.join(str(arg) for arg in args[:2] if not isinstance(arg, bytes))})")
                return function(*args, **kwargs)

        return step

    def cut(self, step: str) -> None:
        """Copy the images, unless nothing reached them since the last cut."""
        with self._lock:
            self._writeback(self._disks)
            written_sectors = [disk.written_sectors() for disk in self._disks]
            if written_sectors != self._written_sectors:
                for disk in self._disks:
                    _write_sparse(self._copy_path(disk, len(self._steps)), disk.read_image())
                self._written_sectors = written_sectors
                self._steps.append(step)

    def boot(self) -> Iterator[str]:
        """Mount the disks as each cut left them, and yield the step before which the power was cut."""
        for number, step in enumerate(self._steps):
            for disk in self._disks:
                disk.replace_content(self._copy_path(disk, number))
            yield f"{number + 1} of {len(self._steps)}, before {step}"

    def _copy_path(self, disk: Disk, number: int) -> Path:
        return self._folder / f"{disk.path.name}-{number}.img"


def _write_sparse(path: Path, content: bytes) -> None:
    empty = bytes(_COPY_BYTES)
    with open(path, "wb") as file:
        for offset in range(0, len(content), _COPY_BYTES):
            block = content[offset : offset + _COPY_BYTES]
            if block != empty:
                file.seek(offset)
                file.write(block)
        file.truncate(len(content))
