"""Unpack an archive while it is downloaded, so that the archive itself is never written to disk."""

from __future__ import annotations

import os
import shutil
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, Callable

from packtrain.errors import FailedError
from packtrain.plan import RemoteFile
from packtrain.transfer.api import SecretResolver
from packtrain.transfer.archive.byte_stream import stream_from_reader
from packtrain.transfer.archive.unpack import UnpackResult, can_stream, unpack_stream
from packtrain.transfer.fetch import FetchResult
from packtrain.transfer.ordered_download import OrderedDownload, should_refetch
from packtrain.transfer.progress import ProgressCallback
from packtrain.transfer.tasks.cancellation import CancelCheck

if TYPE_CHECKING:
    from packtrain.transfer.integrity.block_checksums import BlockChecksums

_HEAD_BYTES = 512


def unpack_while_downloading(
    remote_file: RemoteFile,
    folder: Path,
    staging: Path,
    resolve_secret: SecretResolver,
    *,
    nested: bool,
    max_bytes: int | None,
    retry_timeout_s: float,
    check_cancelled: CancelCheck,
    on_progress: ProgressCallback,
    on_damage: Callable[[FailedError], None],
    checksums: BlockChecksums | None = None,
) -> tuple[FetchResult, UnpackResult] | None:
    """Download an archive and extract its content into `folder`.

    The content is in `staging` until the download is verified. If the archive was damaged or replaced meanwhile, the
    content is removed; a second download to a file then shows whether the archive itself is broken.

    Args:
        remote_file: The archive.
        folder: Receives the content. Files there are replaced.
        staging: A folder on the same file system, which is created and removed.
        resolve_secret: Returns the values of secrets.
        nested: Unpack each tar inside of the archive to a folder of its name.
        max_bytes: Limit for the extracted content; None: the free disk space.
        retry_timeout_s: How long to retry without progress before a failure is final.
        check_cancelled: Called several times a second; raises to cancel.
        on_progress: Receives the bytes downloaded and the total.
        on_damage: Receives the error if the archive is to be downloaded again.
        checksums: Verifies each block before it is used.

    Returns:
        None if the archive must be downloaded to a file: because of its format, or because it was damaged.

    Raises:
        FailedError: archive_unsafe, archive_too_large, disk_full, and everything a transfer may raise.
    """
    if checksums is not None and not checksums.can_stream:
        return None
    started_at = time.monotonic()
    _remove_folder(staging)  # of a process that was killed
    try:
        with OrderedDownload(
            remote_file,
            resolve_secret,
            retry_timeout_s=retry_timeout_s,
            check_cancelled=check_cancelled,
            on_progress=on_progress,
            checksums=checksums,
        ) as download:
            stream = stream_from_reader(download)
            if not can_stream(stream.peek(_HEAD_BYTES)):
                return None
            unpack_result = unpack_stream(
                stream,
                remote_file.name,
                staging,
                nested=nested,
                max_bytes=max_bytes,
                check_cancelled=check_cancelled,
                on_progress=lambda done, total: None,  # the download reports its own progress
            )
        merge_folder(staging, folder, remote_file.name)
        return download.make_result(time.monotonic() - started_at), unpack_result
    except FailedError as error:
        if not should_refetch(error):
            raise
        on_damage(error)
        return None
    finally:
        _remove_folder(staging)


def _remove_folder(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def merge_folder(staging: Path, folder: Path, archive: str) -> None:
    """Move everything in `staging` to `folder`, which may hold other files already. Files there are replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    for entry in os.scandir(staging):
        target = folder / entry.name
        old_type, new_type = _file_type(target), _file_type(Path(entry.path))
        if old_type == new_type == stat.S_IFDIR:
            merge_folder(Path(entry.path), target, archive)
        elif old_type and stat.S_IFDIR in (old_type, new_type):
            detail = (
                f"the member {entry.name!r} of {archive} conflicts with {target}: one is a folder, the other is not"
            )
            raise FailedError("archive_unsafe", detail)
        else:
            Path(entry.path).replace(target)


def _file_type(path: Path) -> int:
    """Return the file type bits of `st_mode`, 0 if there is no such file."""
    try:
        return stat.S_IFMT(path.lstat().st_mode)
    except FileNotFoundError:
        return 0
