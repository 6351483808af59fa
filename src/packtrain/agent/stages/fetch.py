"""Stages fetch and unpack: every input's files into its folder of the sandbox.

Archives that can be are unpacked behind their download (`behind`), in the stage fetch; the stage unpack has the
rest, and tells what is wrong with an archive, whenever it was seen.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from packtrain.agent.context import AttemptContext, StageStats
from packtrain.agent.live.progress import StageProgress
from packtrain.agent.stages import hardware
from packtrain.errors import FailedError, FormatError, TransferError
from packtrain.plan import Input, Location, RemoteFile
from packtrain.transfer.api import ListedObject
from packtrain.transfer.archive.detection import can_unpack_while_downloading, has_archive_magic, has_archive_suffix
from packtrain.transfer.fetch import fetch
from packtrain.transfer.registry import get_source
from packtrain.transfer.retry import RetryTracker
from packtrain.transfer.urls import check_listed_name, redact_url

if TYPE_CHECKING:
    from packtrain.agent.stages.streaming_unpack import OpenDownload, SequentialDownload
    from packtrain.transfer.block_checksums import BlockChecksums

_MAX_DISK_SHARE = 0.95  # of the disk, for archives: the steps want to write, too
_MAX_NAMES_IN_MESSAGE = 3
_ARCHIVE_REJECTION_KINDS = frozenset({"archive_unsafe", "archive_too_large"})


def fetch_inputs(context: AttemptContext, stats: StageStats) -> None:
    """Raises FailedError: unsupported, archive_unsafe, and all that a transfer may raise."""
    wanted = [(source, item) for source in context.job.inputs for item in _remote_files(context, source)]
    sizes = [item.size for _, item in wanted if item.size is not None]
    progress = StageProgress(context.journal, "fetch", sum(sizes) if len(sizes) == len(wanted) else None)
    stats.update(bytes=0, files=0, retries=0, source="", unpacked_files=0, unpacked_bytes=0)
    for source, item in wanted:
        if context.streamed_archives.error is None:
            _fetch_or_stream(context, source, item, progress, stats)
    if wanted:
        progress.finish()


def _remote_files(context: AttemptContext, job_input: Input) -> list[RemoteFile]:
    """What has to come before the steps; of data that are streamed, where the samples lie."""
    if job_input.mode == "stream":
        return [_index_file(job_input)]
    if job_input.prefix is None:
        return list(job_input.files)
    entries = _list_with_retries(context, job_input.prefix)
    items = [RemoteFile(e.name, (e.location,), e.size) for e in entries if e.name and not e.name.endswith("/")]
    if not items:
        context.emit_notice(
            "fetch",
            f"there is nothing below {redact_url(job_input.prefix.url)}; the folder {job_input.folder} stays empty",
        )
    return items


def _index_file(job_input: Input) -> RemoteFile:
    if job_input.index is None:
        name = f"the input {job_input.name!r}" if job_input.name else "the input"
        raise FailedError("unsupported", f"{name} is to be streamed, but the plan has no index of it: plan it anew")
    return job_input.index


def _list_with_retries(context: AttemptContext, location: Location) -> list[ListedObject]:
    patience = RetryTracker(context.job.retry_timeout_s, 1, time.monotonic())
    while True:
        try:
            return list(get_source(location, context.secrets.resolve_secret).list(location))
        except TransferError as error:
            patience.record_failure(0, error)
        wait = patience.next_wait_s(time.monotonic())
        if wait is None:
            raise patience.final_error()
        context.stop.wait(wait)
        context.stop.check()


def _fetch_or_stream(
    context: AttemptContext, job_input: Input, remote_file: RemoteFile, progress: StageProgress, stats: StageStats
) -> None:
    """Unpacked on its way where that can be, else as a file."""
    context.stop.check()
    target = context.sandbox.input_folder(job_input) / check_listed_name(remote_file.name, remote_file.locations[0].url)
    target.parent.mkdir(parents=True, exist_ok=True)
    sums = _fetch_checksums(context, remote_file)
    streams = (
        context.download_cache is None
        and job_input.prefix is None
        and can_unpack_while_downloading(job_input, remote_file)
    )
    streams = streams and (sums is None or sums.can_stream)
    if not (streams and _stream_unpack(context, job_input, remote_file, target, progress, stats, sums)):
        _fetch_file(context, remote_file, target, progress, stats, sums)


def _fetch_checksums(context: AttemptContext, remote_file: RemoteFile) -> BlockChecksums | None:
    """As its checksums file says, which comes first."""
    if remote_file.checksums is None:
        return None
    from packtrain.transfer.block_checksums import CHECKSUMS_SUFFIX, read_checksums

    path, given = context.sandbox.tmp / "checksums.json", context.job.retry_timeout_s
    wanted = RemoteFile(
        remote_file.name + CHECKSUMS_SUFFIX, (remote_file.checksums,)
    )  # its name allows JSON, which is an error's page elsewhere
    fetch(
        wanted,
        path,
        context.secrets.resolve_secret,
        retry_timeout_s=given,
        check_cancelled=context.stop.check,
        on_progress=lambda d, t: None,
    )
    try:
        return read_checksums(path)
    except FormatError as error:
        raise FailedError("unexpected_content", f"{redact_url(remote_file.checksums.url)}: {error}") from error
    finally:
        path.unlink()


def _stream_unpack(
    context: AttemptContext,
    job_input: Input,
    remote_file: RemoteFile,
    target: Path,
    progress: StageProgress,
    stats: StageStats,
    checksums: BlockChecksums | None,
) -> bool:
    """False: it has to come as a file."""
    from packtrain.agent.stages.streaming_unpack import unpack_while_downloading

    behind, limit = context.streamed_archives, _available_bytes(context, context.streamed_archives.unpacked_bytes)
    opening = _make_open_download(context, progress, checksums)
    try:
        arrived = unpack_while_downloading(context, job_input, remote_file, target.parent, opening, limit)
    except FailedError as error:
        if error.kind not in _ARCHIVE_REJECTION_KINDS:
            raise
        behind.error = error
        return True
    if arrived is None:
        return False
    behind.paths.add(target)
    behind.unpacked_files += arrived.unpack_result.files
    behind.unpacked_bytes += arrived.unpack_result.bytes
    _count_file(stats, progress, arrived.downloaded_bytes, arrived.retries, arrived.source)
    stats.update(unpacked_files=behind.unpacked_files, unpacked_bytes=behind.unpacked_bytes)
    return True


def _make_open_download(
    context: AttemptContext, progress: StageProgress, checksums: BlockChecksums | None
) -> OpenDownload:
    from packtrain.transfer.ordered_download import OrderedDownload

    def open_download(remote_file: RemoteFile) -> AbstractContextManager[SequentialDownload]:
        return OrderedDownload(
            remote_file,
            context.secrets.resolve_secret,
            retry_timeout_s=context.job.retry_timeout_s,
            check_cancelled=context.stop.check,
            on_progress=progress.start_part(remote_file.name),
            checksums=checksums,
        )

    return open_download


def _fetch_file(
    context: AttemptContext,
    remote_file: RemoteFile,
    target: Path,
    progress: StageProgress,
    stats: StageStats,
    checksums: BlockChecksums | None,
) -> None:
    bring = fetch if context.download_cache is None else context.download_cache.get
    got = bring(
        remote_file,
        target,
        context.secrets.resolve_secret,
        retry_timeout_s=context.job.retry_timeout_s,
        check_cancelled=context.stop.check,
        on_progress=progress.start_part(remote_file.name),
        checksums=checksums,
    )
    _count_file(stats, progress, got.bytes, got.retries, got.source)


def _count_file(stats: StageStats, progress: StageProgress, size_bytes: int, retries: int, source: str) -> None:
    progress.finish_part(size_bytes)
    stats.update(
        bytes=stats["bytes"] + size_bytes, files=stats["files"] + 1, retries=stats["retries"] + retries, source=source
    )


def unpack_inputs(context: AttemptContext, stats: StageStats) -> None:
    """Raises FailedError: archive_unsafe, archive_broken, archive_too_large, truncated, disk_full."""
    behind = context.streamed_archives
    stats.update(bytes=behind.unpacked_bytes, files=behind.unpacked_files)
    if behind.error is not None:
        raise behind.error
    progress = StageProgress(context.journal, "unpack", None)
    progress.finish_part(behind.unpacked_bytes)
    for source in context.job.inputs:
        if source.unpack == "auto" and source.mode != "stream":
            _unpack_input(context, source, progress, stats)
        if source.chmod is not None:
            _chmod_recursive(context.sandbox.input_folder(source), source.chmod)
    if stats["files"]:
        progress.finish()


def _unpack_input(context: AttemptContext, job_input: Input, progress: StageProgress, stats: StageStats) -> None:
    folder = context.sandbox.input_folder(job_input)
    misnamed = []
    for path in [path for path in _input_files(job_input, folder) if path not in context.streamed_archives.paths]:
        if _archive_kind(path) is not None:
            _unpack_archive(context, job_input, path, progress, stats)
        elif has_archive_suffix(path.name):
            misnamed.append(path.name)
    if misnamed:
        names = ", ".join(misnamed[:_MAX_NAMES_IN_MESSAGE]) + (", …" if len(misnamed) > _MAX_NAMES_IN_MESSAGE else "")
        what = "is no archive, whatever its name says, and stays as it is"
        what = what if len(misnamed) == 1 else "are no archives, whatever their names say, and stay as they are"
        context.emit_notice("unpack", f"{names} in {job_input.folder} {what}")


def _input_files(job_input: Input, folder: Path) -> Iterator[Path]:
    if job_input.prefix is None:
        return (folder / item.name for item in job_input.files)
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _archive_kind(path: Path) -> str | None:
    if not has_archive_magic(path):
        return None
    from packtrain.transfer.archive.unpack import detect_format

    return detect_format(path)


def _unpack_archive(
    context: AttemptContext, job_input: Input, path: Path, progress: StageProgress, stats: StageStats
) -> None:
    from packtrain.transfer.archive.unpack import unpack

    archive = _move_to_staging(context, path)
    done = unpack(
        archive,
        path.parent,
        nested=job_input.nested,
        max_bytes=_available_bytes(context, stats["bytes"]),
        check_cancelled=context.stop.check,
        on_progress=progress.start_part(path.name),
    )
    archive.unlink()
    progress.finish_part(done.bytes)
    stats.update(bytes=stats["bytes"] + done.bytes, files=stats["files"] + done.files)


def _move_to_staging(context: AttemptContext, path: Path) -> Path:
    """An archive may hold a member of its own name: it is read from elsewhere."""
    aside = context.sandbox.tmp / "unpack" / path.name
    aside.parent.mkdir(exist_ok=True)
    return path.replace(aside)


def _available_bytes(context: AttemptContext, used_bytes: int) -> int:
    free = int(hardware.free_disk_bytes(context.sandbox.root) * _MAX_DISK_SHARE)
    promised = context.job.limits.disk_bytes
    return free if promised is None else min(free, max(promised - used_bytes, 0))


def _chmod_recursive(folder: Path, mode: int) -> None:
    """Like chmod -R, from the leaves up: a folder may lose its own x bit."""
    for where, folders, files in os.walk(folder, topdown=False):
        for path in (Path(where, name) for name in (*files, *folders)):
            if not path.is_symlink():
                path.chmod(mode)
    folder.chmod(mode)
