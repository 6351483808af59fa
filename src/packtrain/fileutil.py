"""Helpers for files and disks: atomic and durable writes, locks on open files, free space, and folders for sockets.

A file that is written atomically is complete or absent under its name: readers never see a part of it, and a process
that is killed leaves the old content and perhaps a temporary file beside it.

A power cut takes more: everything that was not synced, in any order, so a name may survive without its content. What is
durable survives it. A record is a file, or a row of the store, that says that something else exists: outputs of a
succeeded job, files of a checkpoint, an entry of the cache. The order is always

1. the content of the files that the record relies on (`sync_file`, `sync_tree`),
2. the folders that name them (`sync_folder`, `durable_mkdir`),
3. the record (`atomic_write` with `durable`),
4. then what they were made from may be removed (`durable_move` does 1, 2 and 4).

A file that nothing relies on after a reboot is not synced. What is expensive to sync but easy to verify carries the
`boot_id` instead: after a reboot it is verified or made again.

A locked file is written by one process at a time. The lock belongs to the open file, so the kernel drops it when the
process ends for whatever reason. On a file system without locks, files are written unlocked; there `is_same_file`
detects that another process replaced the file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Callable, TypeVar

T = TypeVar("T")

DISK_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

_MAX_SOCKET_FOLDER_BYTES = 107 - len("/pymp-xxxxxxxx/listener-xxxxxxxx")  # a socket's path has at most 107 bytes
_MAX_SYNC_THREADS = 8  # file systems write several files that are synced at once with one commit of their journal
_TEMPORARY_MARK = ".tmp-"  # training programs use it for their own temporary files, too (docs/how-to/checkpoints.md)


def atomic_write(path: Path, content: str | bytes, *, durable: bool = False, mode: int = 0o666) -> None:
    """Write a file so that it has either its old or its new content.

    Args:
        path: The file; its folder must exist.
        content: Text is written as UTF-8.
        durable: Return only after the content and the name are on the disk, so that they survive a power cut.
        mode: The permissions of a new file, before the umask.
    """
    with atomic_writer(path, durable=durable, mode=mode) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def atomic_writer(path: Path, *, durable: bool = False, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path` when the block ends, and is removed if the block raises."""
    temporary = temporary_path(path)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(fd, "wb") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    if durable:
        sync_folder(path.parent)


def temporary_path(path: Path) -> Path:
    """Return an unused hidden name in the same folder, for a file or folder that is renamed to `path` when complete."""
    return path.with_name(f".{path.name[-200:]}{_TEMPORARY_MARK}{os.getpid()}-{os.urandom(4).hex()}")


def is_temporary_name(name: str) -> bool:
    """Return whether a name or path names a file that is still being written: `.NAME.tmp-…`."""
    last_part = name.rpartition("/")[2]
    return last_part.startswith(".") and _TEMPORARY_MARK in last_part


def sync_file(path: Path) -> None:
    """Make the content of a file survive a power cut, whichever process wrote it; its name needs `sync_folder`."""
    if not path.is_symlink():  # a link is a name
        _sync(path, os.O_RDONLY)


def sync_folder(folder: Path) -> None:
    """Make new, renamed and removed entries of a folder survive a power cut."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    fd = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot sync a folder
            raise
    finally:
        os.close(fd)


def sync_tree(folder: Path) -> None:
    """Make a folder and everything in it survive a power cut; its own name needs `sync_folder` of its parent.

    What other processes remove meanwhile is skipped.
    """
    files: list[Path] = []
    folders = [folder]
    for parent in folders:
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(parent):
                if entry.is_dir(follow_symlinks=False):
                    folders.append(Path(entry))
                elif entry.is_file(follow_symlinks=False):
                    files.append(Path(entry))
    _run_parallel(_sync_unless_removed, files)
    _run_parallel(_sync_unless_removed, folders[1:])
    sync_folder(folder)


def _sync_unless_removed(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        _sync(path, os.O_RDONLY)


def durable_mkdir(folder: Path) -> None:
    """Create a folder and its parents unless they exist; the new ones survive a power cut."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in reversed(missing):
        sync_folder(path.parent)


def durable_move(targets: Mapping[Path, Path]) -> None:
    """Move files, also to another file system, so that a power cut at any moment loses none of them.

    Each target has its old or its complete new content at any moment. The sources are removed last, when all targets
    are durable, so a move that was interrupted can be repeated.

    Args:
        targets: The new path of each file; existing files are replaced.
    """
    folders = {target.parent for target in targets.values()}
    for folder in folders:
        durable_mkdir(folder)
    _run_parallel(_install_file, targets.items())
    _run_parallel(sync_folder, folders)
    for source in targets:
        source.unlink()


def _install_file(source_and_target: tuple[Path, Path]) -> None:
    """Make `target` a link to `source`, or a copy on another file system; the content is durable first."""
    source, target = source_and_target
    if _is_linked(source, target):  # by an earlier process; renaming one link to the other would keep both
        sync_file(target)
        return
    temporary = temporary_path(target)
    try:
        _link_or_copy(source, temporary)
        sync_file(temporary)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _is_linked(source: Path, target: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(source.lstat(), target.lstat())
    return False


def _link_or_copy(source: Path, target: Path) -> None:
    import shutil

    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)


def _run_parallel(function: Callable[[T], None], arguments: Iterable[T]) -> None:
    """Call a function with each argument, in several threads if there are several."""
    items = list(arguments)
    if len(items) <= 1:
        for item in items:
            function(item)
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(_MAX_SYNC_THREADS, len(items))) as pool:
        for _ in pool.map(function, items):
            pass


@functools.lru_cache(maxsize=1)
def boot_id() -> str:
    """Return an id that changes with every boot of the machine; "" if unknown."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def open_locked(path: Path, create: bool) -> int | None:
    """Open a file for reading and writing and lock it.

    Returns:
        The file descriptor, or None if the file does not exist and `create` is false.

    Raises:
        BlockingIOError: Another process holds the lock.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
    while True:
        try:
            fd = os.open(path, flags, 0o666)
        except FileNotFoundError:
            if create:
                raise
            return None
        if _lock_if_current(fd, path):
            return fd


def _lock_if_current(fd: int, path: Path) -> bool:
    """Lock the file, or close it if `path` is another file by now.

    The previous holder of the lock may have renamed or removed the file before it released the lock.
    """
    is_current = False
    try:
        lock_exclusive(fd)
        is_current = is_same_file(fd, path)
        return is_current
    finally:
        if not is_current:
            os.close(fd)


def lock_exclusive(fd: int) -> None:
    """Lock an open file, or do nothing on a file system without locks. Raises BlockingIOError if it is locked."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        pass  # a file system without locks


def unlock_and_close(fd: int) -> None:
    """Release the lock and close the file.

    Closing alone is not enough while a child process is being started: it shares the open file until it executes its
    program.
    """
    with contextlib.suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


def is_same_file(fd: int, path: Path) -> bool:
    """Return whether `path` exists and is the file that is open as `fd`."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(fd), path.stat())
    return False


def free_bytes(folder: Path) -> int:
    """Return the bytes free for this user on the disk of `folder`, which need not exist yet."""
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    disk = os.statvfs(existing)
    return disk.f_bavail * disk.f_frsize


def can_hold_sockets(folder: str) -> bool:
    """Return whether multiprocessing can create its sockets in a temporary folder, or the path is too long for them.

    The scratch folder that HTCondor names in TMPDIR often is too deep. PyTorch's data loaders then hang silently.
    """
    return len(os.fsencode(folder)) <= _MAX_SOCKET_FOLDER_BYTES
