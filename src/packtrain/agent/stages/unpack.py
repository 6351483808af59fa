"""The stage `unpack`: extract the archives among the inputs and set file modes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from packtrain.agent.context import AttemptContext, StageStats
from packtrain.agent.live.progress import StageProgress
from packtrain.fileutil import free_bytes
from packtrain.plan import Input
from packtrain.transfer.archive.formats import may_be_archive, unpacked_format

_MAX_DISK_SHARE = 0.95  # of the free disk, for the content of archives; the steps write files, too
_MAX_NAMES_IN_MESSAGE = 3


def unpack_all(context: AttemptContext, stats: StageStats) -> None:
    """Unpack the inputs unless they were reused, and record their fingerprint. Raises FailedError."""
    if not context.checkpoint_state.inputs_reused:
        unpack_inputs(context, stats)
        if context.reuse_folder is not None:
            from packtrain.agent.stages.reuse_inputs import record_inputs_fingerprint

            record_inputs_fingerprint(context)


def unpack_inputs(context: AttemptContext, stats: StageStats) -> None:
    """Extract the archives that the stage fetch has not extracted yet.

    Raises FailedError: archive_unsafe, archive_broken, archive_too_large, truncated, disk_full.
    """
    streamed = context.streamed_archives
    stats.update(bytes=streamed.unpacked_bytes, files=streamed.unpacked_files)
    if streamed.error is not None:
        raise streamed.error
    progress = StageProgress(context.journal, "unpack", None)
    progress.finish_part(streamed.unpacked_bytes)
    for job_input in context.job.inputs:
        if job_input.unpack == "auto" and job_input.mode != "stream":
            _unpack_input(context, job_input, progress, stats)
        if job_input.chmod is not None:
            _chmod_recursive(context.sandbox.input_folder(job_input), job_input.chmod)
    if stats["files"]:
        progress.finish()


def _unpack_input(context: AttemptContext, job_input: Input, progress: StageProgress, stats: StageStats) -> None:
    folder = context.sandbox.input_folder(job_input)
    misnamed = []
    for path in [path for path in _input_files(job_input, folder) if path not in context.streamed_archives.paths]:
        if _archive_kind(path) is not None:
            _unpack_archive(context, job_input, path, progress, stats)
        elif unpacked_format(path.name):
            misnamed.append(path.name)
    if misnamed:
        names = ", ".join(misnamed[:_MAX_NAMES_IN_MESSAGE]) + (", …" if len(misnamed) > _MAX_NAMES_IN_MESSAGE else "")
        problem = (
            "is not an archive, despite its name" if len(misnamed) == 1 else "are not archives, despite their names"
        )
        context.emit_notice("unpack", f"{names} in {job_input.folder} {problem}; not unpacked")


def _input_files(job_input: Input, folder: Path) -> Iterator[Path]:
    if job_input.prefix is None:
        return (folder / remote_file.name for remote_file in job_input.files)
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _archive_kind(path: Path) -> str | None:
    if not may_be_archive(path):
        return None
    from packtrain.transfer.archive.unpack import detect_format

    return detect_format(path)


def _unpack_archive(
    context: AttemptContext, job_input: Input, path: Path, progress: StageProgress, stats: StageStats
) -> None:
    from packtrain.transfer.archive.unpack import unpack

    archive = _move_to_staging(context, path)
    result = unpack(
        archive,
        path.parent,
        nested=job_input.nested,
        max_bytes=max_unpacked_bytes(context, stats["bytes"]),
        check_cancelled=context.stop.check,
        on_progress=progress.start_part(path.name),
    )
    archive.unlink()
    progress.finish_part(result.bytes)
    stats.update(bytes=stats["bytes"] + result.bytes, files=stats["files"] + result.files)


def _move_to_staging(context: AttemptContext, path: Path) -> Path:
    """Move an archive out of its folder, because it may have a member with its own name."""
    staged = context.sandbox.tmp / "unpack" / path.name
    staged.parent.mkdir(exist_ok=True)
    return path.replace(staged)


def max_unpacked_bytes(context: AttemptContext, used_bytes: int) -> int:
    """Return how many bytes the next archive, or file whose size is not announced, may take.

    Args:
        context: The execution.
        used_bytes: What other inputs have taken so far, counted against the job's `limits.disk`.
    """
    disk_bytes = int(free_bytes(context.sandbox.root) * _MAX_DISK_SHARE)
    limit_bytes = context.job.limits.disk_bytes
    return disk_bytes if limit_bytes is None else min(disk_bytes, max(limit_bytes - used_bytes, 0))


def _chmod_recursive(folder: Path, mode: int) -> None:
    """Like `chmod -R`, but children first: a folder may lose its own x bit."""
    for parent, folders, files in os.walk(folder, topdown=False):
        for path in (Path(parent, name) for name in (*files, *folders)):
            if not path.is_symlink():
                path.chmod(mode)
    folder.chmod(mode)
