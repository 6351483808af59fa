"""Unpack an archive while it is downloaded, so that the archive itself is never written to disk.

The content goes to a staging folder and is moved to the input's folder after the download is verified. If the archive
is damaged, the content is removed and the archive is fetched again as a file. The stage `unpack` then reports that
verified file as broken, if it is.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from packtrain.agent.cleanup import remove_tree
from packtrain.agent.context import AttemptContext
from packtrain.errors import FailedError
from packtrain.plan import Input, RemoteFile
from packtrain.transfer.archive.byte_stream import ByteStream, ViewReader, stream_from_reader
from packtrain.transfer.archive.unpack import UnpackResult, can_stream, unpack_stream
from packtrain.transfer.ordered_download import should_refetch

_HEAD_BYTES = 512


class SequentialDownload(ViewReader, Protocol):
    """The used interface of `transfer.ordered_download.OrderedDownload`. It raises at the end if bytes were wrong."""

    @property
    def source(self) -> str: ...

    @property
    def retries(self) -> int: ...


OpenDownload = Callable[[RemoteFile], AbstractContextManager[SequentialDownload]]


@dataclass(frozen=True)
class StreamedDownload:
    """The result of an archive that was unpacked while it was downloaded."""

    downloaded_bytes: int
    source: str
    retries: int
    unpack_result: UnpackResult


def unpack_while_downloading(
    context: AttemptContext,
    job_input: Input,
    remote_file: RemoteFile,
    folder: Path,
    open_download: OpenDownload,
    max_bytes: int,
) -> StreamedDownload | None:
    """Download an archive and extract its content into `folder`. Return None if it must be fetched as a file.

    Args:
        context: The execution.
        job_input: The input that the archive belongs to.
        remote_file: The archive.
        folder: Receives the content.
        open_download: Starts the download.
        max_bytes: Limit for the extracted content.

    Raises FailedError: archive_unsafe, archive_too_large, disk_full, and everything a transfer may raise.
    """
    staging = context.sandbox.tmp / "streaming-unpack"
    try:
        download = _download_and_unpack(context, job_input, remote_file, staging, open_download, max_bytes)
        if download is not None:
            merge_folder(staging, folder, remote_file.name)
        return download
    except FailedError as error:
        if not should_refetch(error):
            raise
        context.emit_notice("fetch", f"{error.detail}; {remote_file.name} is fetched again, this time as a file")
        return None
    finally:
        if staging.exists():
            remove_tree(staging)


def _download_and_unpack(
    context: AttemptContext,
    job_input: Input,
    remote_file: RemoteFile,
    staging: Path,
    open_download: OpenDownload,
    max_bytes: int,
) -> StreamedDownload | None:
    with open_download(remote_file) as download:
        stream: ByteStream = stream_from_reader(download)
        if not can_stream(stream.peek(_HEAD_BYTES)):
            return None
        result = unpack_stream(
            stream,
            remote_file.name,
            staging,
            nested=job_input.nested,
            max_bytes=max_bytes,
            check_cancelled=context.stop.check,
            on_progress=lambda done, total: None,  # the download reports its own progress
        )
    return StreamedDownload(stream.position, download.source, download.retries, result)


def merge_folder(staging: Path, folder: Path, archive: str) -> None:
    """Move everything in `staging` to `folder`, which may hold other inputs already. Files there are replaced."""
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
