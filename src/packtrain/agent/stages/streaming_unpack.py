"""Unpacks an archive behind its download: of the archive itself nothing comes to the disk.

What arrives is unpacked in a folder apart, and moves to its place when the download's end has proven it. An
archive that is not what it should be is removed, and fetched once more the ordinary way, as a file: it is that
file, verified, of which a stage says that it is broken.
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
    """What `transfer.ordered.Ordered` is to us; it raises at its end if the bytes were wrong."""

    @property
    def source(self) -> str: ...

    @property
    def retries(self) -> int: ...


OpenDownload = Callable[[RemoteFile], AbstractContextManager[SequentialDownload]]


@dataclass(frozen=True)
class StreamedDownload:
    """A download that was unpacked on its way."""

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
    """The content of the item stands in the folder. None: it has to be fetched the ordinary way.

    Raises FailedError: archive_unsafe, archive_too_large, disk_full, and all that a transfer may raise.
    """
    apart = context.sandbox.tmp / "behind"
    try:
        arrived = _download_and_unpack(context, job_input, remote_file, apart, open_download, max_bytes)
        if arrived is not None:
            merge_folder(apart, folder, remote_file.name)
        return arrived
    except FailedError as error:
        if not should_refetch(error):
            raise
        context.emit_notice("fetch", f"{error.detail}; {remote_file.name} is fetched once more, this time as a file")
        return None
    finally:
        if apart.exists():
            remove_tree(apart)


def _download_and_unpack(
    context: AttemptContext,
    job_input: Input,
    remote_file: RemoteFile,
    staging: Path,
    open_download: OpenDownload,
    max_bytes: int,
) -> StreamedDownload | None:
    with open_download(remote_file) as download:
        flow: ByteStream = stream_from_reader(download)
        if not can_stream(flow.peek(_HEAD_BYTES)):
            return None
        done = unpack_stream(
            flow,
            remote_file.name,
            staging,
            nested=job_input.nested,
            max_bytes=max_bytes,
            check_cancelled=context.stop.check,
            on_progress=lambda done, total: None,  # the download tells of its own
        )
    return StreamedDownload(flow.position, download.source, download.retries, done)


def merge_folder(staging: Path, folder: Path, archive: str) -> None:
    """Move all that is in `apart` into the folder, where other inputs may already be. Newer files replace older."""
    folder.mkdir(parents=True, exist_ok=True)
    for entry in os.scandir(staging):
        target = folder / entry.name
        there, comes = _file_type(target), _file_type(Path(entry.path))
        if there == comes == stat.S_IFDIR:
            merge_folder(Path(entry.path), target, archive)
        elif there and stat.S_IFDIR in (there, comes):
            words = f"the member {entry.name!r} of {archive} is a folder, and {target} is none, or the reverse"
            raise FailedError("archive_unsafe", words)
        else:
            Path(entry.path).replace(target)


def _file_type(path: Path) -> int:
    try:
        return stat.S_IFMT(path.lstat().st_mode)
    except FileNotFoundError:
        return 0
