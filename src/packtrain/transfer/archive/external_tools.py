"""7z and rar archives, unpacked by a program of the machine if it has one."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

from packtrain.errors import FailedError
from packtrain.transfer.archive.byte_stream import stream_from_fd
from packtrain.transfer.archive.safe_extractor import SafeExtractor
from packtrain.transfer.archive.space_budget import SpaceBudget
from packtrain.transfer.tasks.cancellation import CancelCheck

_POLL_INTERVAL_S = 0.2
_COMMANDS_BY_FORMAT: dict[str, tuple[tuple[str, ...], ...]] = {
    "7z": (("7z", "x", "-y", "-bd"), ("7zz", "x", "-y", "-bd"), ("7za", "x", "-y", "-bd")),
    "rar": (("unrar", "x", "-y", "-idq"),),
}
EXTERNAL_FORMATS = tuple(_COMMANDS_BY_FORMAT)


def extract_with_tool(
    archive_format: str,
    path: Path,
    extractor: SafeExtractor,
    folder: Path,
    max_bytes: int | None,
    check_cancelled: CancelCheck,
) -> None:
    """Unpack an archive to a staging folder, and move its members from there under the rules for all archives.

    Args:
        archive_format: One of EXTERNAL_FORMATS.
        path: The archive.
        extractor: Receives the members.
        folder: Where the staging folder is created.
        max_bytes: Limit for the unpacked size; None: the free disk space.
        check_cancelled: Called several times a second; raises to cancel.
    """
    import shutil
    import tempfile

    command = _find_command(archive_format, path.name)
    staging = Path(tempfile.mkdtemp(prefix=".unpack-", dir=folder))
    try:
        space_budget = SpaceBudget(staging, max_bytes, path.name)
        _run_command((*command, str(path.absolute())), staging, space_budget, path.name, check_cancelled)
        for parent, folders, names in os.walk(staging):
            for name in (*folders, *names):
                _extract_member(Path(parent, name), staging, extractor)
    finally:
        shutil.rmtree(staging)


def _find_command(archive_format: str, archive_name: str) -> tuple[str, ...]:
    import shutil

    for command in _COMMANDS_BY_FORMAT[archive_format]:
        if shutil.which(command[0]):
            return command
    tools = " or ".join(command[0] for command in _COMMANDS_BY_FORMAT[archive_format])
    raise FailedError(
        "archive_broken", f"{archive_name} is a {archive_format} archive, but {tools} is not installed to unpack it"
    )


def _run_command(
    command: tuple[str, ...],
    folder: Path,
    space_budget: SpaceBudget,
    archive_name: str,
    check_cancelled: CancelCheck,
) -> None:
    with subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            while _is_running(process):
                check_cancelled()
                n_bytes, n_files = _measure_usage(folder)
                space_budget.reserve(n_bytes - space_budget.used_bytes, n_files - space_budget.n_files)
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        detail = f"{archive_name} cannot be unpacked: {command[0]} exited with code {process.returncode}"
        raise FailedError("archive_broken", detail)


def _is_running(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(_POLL_INTERVAL_S)
        return False
    except subprocess.TimeoutExpired:
        return True


def _measure_usage(folder: Path) -> tuple[int, int]:
    """Return the bytes and the number of files and folders below a folder."""
    paths = [Path(parent, name) for parent, folders, names in os.walk(folder) for name in (*folders, *names)]
    return sum(path.lstat().st_size for path in paths if not path.is_dir()), len(paths)


def _extract_member(path: Path, root: Path, extractor: SafeExtractor) -> None:
    name, mode = path.relative_to(root).as_posix(), path.lstat().st_mode
    if stat.S_ISLNK(mode):
        extractor.make_symlink(name, str(path.readlink()))
    elif stat.S_ISDIR(mode):
        extractor.make_folder(name)
    elif stat.S_ISREG(mode):
        with open(path, "rb") as data:
            extractor.write_file(name, mode, stream_from_fd(data.fileno()))
        path.unlink()
    else:
        extractor.reject(name, "a device or pipe")
