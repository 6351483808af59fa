"""The stage `fetch`: download every input into its folder of the sandbox, and the checkpoint to resume from.

Archives that allow it are unpacked while they are downloaded. The stage `unpack` extracts the others, and also reports
archives that this stage rejected.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from packtrain.agent.context import AttemptContext, StageStats
from packtrain.agent.live.progress import StageProgress
from packtrain.agent.stages.unpack import max_unpacked_bytes
from packtrain.errors import FailedError, FormatError
from packtrain.plan import Input, Location, RemoteFile
from packtrain.transfer.api import ListedObject
from packtrain.transfer.archive.formats import can_unpack_while_downloading
from packtrain.transfer.fetch import FetchResult, fetch
from packtrain.transfer.registry import get_source
from packtrain.transfer.retry import retry
from packtrain.transfer.urls import check_listed_name, redact_url

if TYPE_CHECKING:
    from packtrain.transfer.integrity.block_checksums import BlockChecksums

_ARCHIVE_REJECTION_KINDS = frozenset({"archive_unsafe", "archive_too_large"})


def fetch_all(context: AttemptContext, stats: StageStats) -> None:
    """Fetch the inputs, or reuse those of the previous execution, and restore the checkpoint. Raises FailedError."""
    if not _restore_inputs(context, stats):
        fetch_inputs(context, stats)
    if context.job.checkpoint is not None:
        from packtrain.agent.checkpoints.restore import restore_checkpoint

        restore_checkpoint(context)


def _restore_inputs(context: AttemptContext, stats: StageStats) -> bool:
    if context.reuse_folder is None:
        return False
    from packtrain.agent.stages.reuse_inputs import restore_inputs

    return restore_inputs(context, stats)


def fetch_inputs(context: AttemptContext, stats: StageStats) -> None:
    """Fetch every file of every input. Raises FailedError: unsupported, and everything a transfer may raise."""
    requests = [
        (job_input, remote_file)
        for job_input in context.job.inputs
        for remote_file in _remote_files(context, job_input)
    ]
    sizes = [remote_file.size for _, remote_file in requests if remote_file.size is not None]
    progress = StageProgress(context.journal, "fetch", sum(sizes) if len(sizes) == len(requests) else None)
    stats.update(bytes=0, files=0, retries=0, source="", unpacked_files=0, unpacked_bytes=0)
    for job_input, remote_file in requests:
        if context.streamed_archives.error is None:
            _fetch_or_stream(context, job_input, remote_file, progress, stats)
    if requests:
        progress.finish()


def _remote_files(context: AttemptContext, job_input: Input) -> list[RemoteFile]:
    """Return the files to fetch before the steps; of a streamed input, only its index."""
    if job_input.mode == "stream":
        return [_index_file(job_input)]
    if job_input.prefix is None:
        return list(job_input.files)
    entries = _list_with_retries(context, job_input.prefix)
    remote_files = [RemoteFile(e.name, (e.location,), e.size) for e in entries if e.name and not e.name.endswith("/")]
    if not remote_files:
        url = redact_url(job_input.prefix.url)
        context.emit_notice("fetch", f"there are no files below {url}; the folder {job_input.folder} is empty")
    return remote_files


def _index_file(job_input: Input) -> RemoteFile:
    if job_input.index is None:
        name = f"the input {job_input.name!r}" if job_input.name else "the input"
        raise FailedError(
            "unsupported", f"{name} has `mode: stream`, but the plan has no index for it; submit the workflow again"
        )
    return job_input.index


def _list_with_retries(context: AttemptContext, location: Location) -> list[ListedObject]:
    source = get_source(location, context.secrets.resolve_secret)
    return retry(lambda: list(source.list(location)), context.job.retry_timeout_s, context.stop.check)


def _fetch_or_stream(
    context: AttemptContext, job_input: Input, remote_file: RemoteFile, progress: StageProgress, stats: StageStats
) -> None:
    """Fetch one file, and unpack it on the way where that is possible."""
    context.stop.check()
    target = context.sandbox.input_folder(job_input) / check_listed_name(remote_file.name, remote_file.locations[0].url)
    target.parent.mkdir(parents=True, exist_ok=True)
    checksums = _fetch_checksums(context, remote_file)
    can_stream = (
        context.download_cache is None
        and job_input.prefix is None
        and can_unpack_while_downloading(job_input, remote_file)
    )
    if not (can_stream and _stream_unpack(context, job_input, remote_file, target, progress, stats, checksums)):
        _fetch_file(context, remote_file, target, progress, stats, checksums)


def _fetch_checksums(context: AttemptContext, remote_file: RemoteFile) -> BlockChecksums | None:
    """Fetch and read the checksums file of an input file, if it has one."""
    if remote_file.checksums is None:
        return None
    from packtrain.transfer.integrity.block_checksums import CHECKSUMS_SUFFIX, read_checksums

    path = context.sandbox.tmp / "checksums.json"
    # The suffix of the name permits JSON content, which is taken for an error page elsewhere.
    checksums_file = RemoteFile(remote_file.name + CHECKSUMS_SUFFIX, (remote_file.checksums,))
    fetch(
        checksums_file,
        path,
        context.secrets.resolve_secret,
        retry_timeout_s=context.job.retry_timeout_s,
        check_cancelled=context.stop.check,
        on_progress=lambda done, total: None,
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
    """Unpack an archive while it is downloaded. Return False if it must be fetched as a file instead."""
    from packtrain.transfer.streamed_unpack import unpack_while_downloading

    def on_damage(error: FailedError) -> None:
        context.emit_notice("fetch", f"{error.detail}; {remote_file.name} is fetched again, this time as a file")

    streamed = context.streamed_archives
    try:
        results = unpack_while_downloading(
            remote_file,
            target.parent,
            context.sandbox.tmp / "streaming-unpack",
            context.secrets.resolve_secret,
            nested=job_input.nested,
            max_bytes=max_unpacked_bytes(context, streamed.unpacked_bytes),
            retry_timeout_s=context.job.retry_timeout_s,
            check_cancelled=context.stop.check,
            on_progress=progress.start_part(remote_file.name),
            on_damage=on_damage,
            checksums=checksums,
        )
    except FailedError as error:
        if error.kind not in _ARCHIVE_REJECTION_KINDS:
            raise
        streamed.error = error
        return True
    if results is None:
        return False
    fetch_result, unpack_result = results
    streamed.paths.add(target)
    streamed.unpacked_files += unpack_result.files
    streamed.unpacked_bytes += unpack_result.bytes
    _count_file(stats, progress, fetch_result)
    stats.update(unpacked_files=streamed.unpacked_files, unpacked_bytes=streamed.unpacked_bytes)
    return True


def _fetch_file(
    context: AttemptContext,
    remote_file: RemoteFile,
    target: Path,
    progress: StageProgress,
    stats: StageStats,
    checksums: BlockChecksums | None,
) -> None:
    fetch_or_get = fetch if context.download_cache is None else context.download_cache.get
    result = fetch_or_get(
        remote_file,
        target,
        context.secrets.resolve_secret,
        retry_timeout_s=context.job.retry_timeout_s,
        check_cancelled=context.stop.check,
        on_progress=progress.start_part(remote_file.name),
        checksums=checksums,
        max_unsized_bytes=max_unpacked_bytes(context, stats["bytes"] + stats["unpacked_bytes"]),
    )
    _count_file(stats, progress, result)


def _count_file(stats: StageStats, progress: StageProgress, result: FetchResult) -> None:
    progress.finish_part(result.bytes)
    stats.update(
        bytes=stats["bytes"] + result.bytes,
        files=stats["files"] + 1,
        retries=stats["retries"] + result.retries,
        source=result.source,
    )
