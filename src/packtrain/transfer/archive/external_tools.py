"""7z and rar archives: only where the machine has a program that reads them."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

from packtrain.errors import FailedError
from packtrain.transfer.archive.byte_stream import of_file
from packtrain.transfer.archive.safe_extractor import Landing
from packtrain.transfer.archive.space_budget import Room

_LOOK_EVERY_S = 0.2
_COMMANDS: dict[str, tuple[tuple[str, ...], ...]] = {
    "7z": (("7z", "x", "-y", "-bd"), ("7zz", "x", "-y", "-bd"), ("7za", "x", "-y", "-bd")),
    "rar": (("unrar", "x", "-y", "-idq"),),
}
FOREIGN = tuple(_COMMANDS)


def unpack_foreign(
    kind: str, path: Path, landing: Landing, folder: Path, limit: int | None, stop: Callable[[], None]
) -> None:
    """Into a folder apart; from there member by member under the same rules as any other archive."""
    import shutil
    import tempfile

    command = _command(kind, path.name)
    apart = Path(tempfile.mkdtemp(prefix=".unpack-", dir=folder))
    try:
        _run((*command, str(path.absolute())), apart, Room(apart, limit, path.name), path.name, stop)
        for where, folders, names in os.walk(apart):
            for name in (*folders, *names):
                _land(Path(where, name), apart, landing)
    finally:
        shutil.rmtree(apart)


def _command(kind: str, archive: str) -> tuple[str, ...]:
    import shutil

    for command in _COMMANDS[kind]:
        if shutil.which(command[0]):
            return command
    tools = " or ".join(command[0] for command in _COMMANDS[kind])
    raise FailedError("archive_broken", f"{archive} is a {kind} archive, and there is no {tools} here to unpack it")


def _run(command: tuple[str, ...], folder: Path, room: Room, archive: str, stop: Callable[[], None]) -> None:
    with subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            while _still_runs(process):
                stop()
                size, files = _taken_below(folder)
                room.take(size - room.taken, files - room.files)
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        words = f"{archive} cannot be read: {command[0]} ended with exit code {process.returncode}"
        raise FailedError("archive_broken", words)


def _still_runs(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(_LOOK_EVERY_S)
        return False
    except subprocess.TimeoutExpired:
        return True


def _taken_below(folder: Path) -> tuple[int, int]:
    """Bytes and files."""
    paths = [Path(where, name) for where, folders, names in os.walk(folder) for name in (*folders, *names)]
    return sum(path.lstat().st_size for path in paths if not path.is_dir()), len(paths)


def _land(path: Path, root: Path, landing: Landing) -> None:
    name, mode = path.relative_to(root).as_posix(), path.lstat().st_mode
    if stat.S_ISLNK(mode):
        landing.symlink(name, str(path.readlink()))
    elif stat.S_ISDIR(mode):
        landing.folder(name)
    elif stat.S_ISREG(mode):
        with open(path, "rb") as data:
            landing.file(name, bool(mode & 0o100), of_file(data.fileno()))
        path.unlink()
    else:
        landing.refuse(name, "a device or pipe")
