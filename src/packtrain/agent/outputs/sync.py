"""Stage sync: upload the output folder to its destination, at the end and optionally while the steps run.

An attempt writes only below prefixes of its own, so that one that was frozen and continues late can replace nothing
that was accepted. Outputs of a failed attempt go below `.packtrain/EMITTER/` of the destination: they may be useful,
but must not be taken for results.
"""

from __future__ import annotations

import os
import queue
import shutil
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

from packtrain.agent.cleanup import remove_tree
from packtrain.agent.context import AttemptContext, StageStats, has_checkpoint_store
from packtrain.agent.live.progress import StageProgress
from packtrain.agent.outputs.symlinks import resolve_links
from packtrain.agent.watched_files import FileVersion, file_version, walk_files
from packtrain.errors import FailedError
from packtrain.fileutil import atomic_write, durable_mkdir, is_temporary_name, sync_folder, sync_tree, temporary_path
from packtrain.plan import ManifestEntry, Output, OutputManifest
from packtrain.plan.output_manifest import MANIFEST_NAME, SYNC_LIST_NAME, staged_name, staging_folder
from packtrain.transfer.integrity.digests import sha256_file
from packtrain.transfer.urls import redact_url

if TYPE_CHECKING:
    from packtrain.transfer.upload import UploadResult

_POLL_INTERVAL_S = 5.0
_MAX_NOTICES = 5


def failed_prefix(context: AttemptContext) -> str:
    return f".packtrain/{context.journal.emitter}/"


def requeue_prefix(context: AttemptContext) -> str:
    """Return the prefix for outputs of a requeued attempt; the next attempt downloads them."""
    from packtrain.agent.checkpoints.record import requeue_folder

    return f"{requeue_folder(context.journal.emitter)}/"


def stage_outputs(context: AttemptContext, entries: list[dict[str, Any]], stats: StageStats) -> None:
    """Store the outputs of a successful attempt below its own prefix, and last the manifest that makes them complete.

    The supervisor publishes those of the attempt that it accepts. A job without a destination has none to publish to:
    the engine returns the attempt's folder, and moves the outputs.
    """
    if context.job.output is None:
        sync_outputs(context, "", stats)
        return
    run, job, emitter = context.journal.run, context.job.id, context.journal.emitter
    listed = tuple(ManifestEntry(entry["path"], entry["bytes"], entry["sha256"]) for entry in entries)
    sync_outputs(context, staged_name(run, job, emitter, ""), stats, OutputManifest(run, job, emitter, listed))


def sync_outputs(
    context: AttemptContext, prefix: str, stats: StageStats, manifest: OutputManifest | None = None
) -> None:
    """Upload everything once, at the end. If that fails, the outputs are kept in the attempt's folder.

    They also stay there if the destination is an http URL, which has no room for the outputs of several attempts.
    """
    if not context.sandbox.output.is_dir():
        raise FailedError("output_missing", "there are no outputs: a step removed the output folder")
    output = context.job.output
    if output is None or not has_checkpoint_store(context.job):
        stats["files"] = sum(1 for _ in walk_files(context.sandbox.output))
        keep_in_attempt_folder(context, prefix)
        if manifest is not None:
            atomic_write(context.sandbox.attempt_folder.output / manifest.name, manifest.to_text(), durable=True)
        return
    try:
        _upload_with_deadline(context, output, prefix, stats, manifest)
    except Exception:
        keep_in_attempt_folder(context, failed_prefix(context))
        raise


def _upload_with_deadline(
    context: AttemptContext, output: Output, prefix: str, stats: StageStats, manifest: OutputManifest | None
) -> None:
    """Upload in a thread, and abandon it when the time is up: an upload that hangs cannot be interrupted."""
    results: queue.SimpleQueue[UploadResult | Exception] = queue.SimpleQueue()

    def upload() -> None:
        try:
            results.put(_upload_all(context, output, prefix, manifest))
        except Exception as error:
            results.put(error)

    thread = threading.Thread(target=upload, name="sync", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.1)
        context.check_upload_time()
    result = results.get()
    if isinstance(result, Exception):
        raise result
    stats.update(files=result.files, bytes=result.bytes, source=redact_url(output.location.url))


def _upload_all(context: AttemptContext, output: Output, prefix: str, manifest: OutputManifest | None) -> UploadResult:
    from packtrain.transfer.upload import upload_file, upload_folder

    resolve_secret, check, timeout_s = (
        context.secrets.resolve_secret,
        context.check_upload_time,
        context.upload_retry_timeout_s,
    )
    result = upload_folder(
        context.sandbox.output,
        output,
        resolve_secret,
        prefix=prefix,
        check_cancelled=check,
        on_progress=StageProgress(context.journal, "sync", None).start_part(""),
        retry_timeout_s=timeout_s,
        adopt_uploads=False,  # only this process writes to these names
    )
    if manifest is not None:
        path = context.sandbox.tmp / MANIFEST_NAME
        path.write_text(manifest.to_text(), encoding="utf-8")
        upload_file(path, output, manifest.name, resolve_secret, retry_timeout_s=timeout_s, check_cancelled=check)
    return result


def keep_in_attempt_folder(context: AttemptContext, prefix: str) -> None:
    """Move the output folder to the attempt's folder, complete or not at all."""
    move_outputs(context, prefix, context.sandbox.attempt_folder.output)


def move_outputs(context: AttemptContext, prefix: str, folder: Path) -> None:
    """Move the output folder to `folder / prefix`, complete or not at all.

    It survives a power cut, unless the pool returns the outputs: then this machine keeps nothing.
    """
    target = folder / prefix
    durable_mkdir(target.parent)
    temporary = temporary_path(target)
    try:
        shutil.move(os.fspath(context.sandbox.output), temporary)
        if context.job.output is not None:
            sync_tree(temporary)
        remove_tree(target)  # HTCondor may have transferred it from an earlier execution
        temporary.replace(target)
        if context.job.output is not None:
            sync_folder(target.parent)
    except shutil.Error as error:
        raise FailedError("upload_failed", f"the outputs could not be moved to {target}: {error}") from error


def clean_outputs(context: AttemptContext) -> None:
    """Remove temporary files and resolve links, so that the rest can be listed and uploaded."""
    remove_temporary_files(context.sandbox.output)
    problems = resolve_links(context.sandbox.output)
    for problem in problems[:_MAX_NOTICES]:
        context.emit_notice("sync", problem)
    if len(problems) > _MAX_NOTICES:
        context.emit_notice("sync", f"{len(problems) - _MAX_NOTICES} more outputs are left out")


def remove_temporary_files(folder: Path) -> None:
    """Remove files that a killed program had not finished writing."""
    for path in [path for path in walk_files(folder) if is_temporary_name(path.name)]:
        with suppress(OSError):
            path.unlink()


class ContinuousSync:
    """Upload files below the attempt's own prefix while the steps run, once they did not change between two polls.

    A file is copied first and uploaded only if it did not change meanwhile, so that no partially written file ever
    exists at the destination. A list of the uploaded files follows, from which the supervisor shows those of the newest
    attempt under the user's path. Each error is reported once, and the upload is retried at the next poll.
    """

    def __init__(self, context: AttemptContext, output: Output, poll_interval_s: float = _POLL_INTERVAL_S) -> None:
        self._context, self._output, self._poll_interval_s = context, output, poll_interval_s
        self._last_versions: dict[Path, FileVersion] = {}
        self._uploaded_versions: dict[Path, FileVersion] = {}
        self._uploaded_entries: dict[str, ManifestEntry] = {}
        self._listed_entries: dict[str, ManifestEntry] = {}
        self._reported_errors: set[str] = set()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="continuous-sync", daemon=True)

    def __enter__(self) -> ContinuousSync:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Wait for the current upload: finishing later, it would overwrite a newer file."""
        self._done.set()
        while self._thread.is_alive():
            self._thread.join(0.2)
            self._context.check_upload_time()

    def _run(self) -> None:
        while not self._done.wait(self._poll_interval_s):
            versions = self._scan_versions()
            stable = [
                path
                for path, version in versions.items()
                if self._last_versions.get(path) == version != self._uploaded_versions.get(path)
            ]
            self._last_versions = versions
            for path in stable:
                if not self._done.is_set():
                    self._try(partial(self._upload_if_unchanged, path, versions[path]))
            if self._uploaded_entries != self._listed_entries and not self._done.is_set():
                self._try(self._upload_list)

    def _scan_versions(self) -> dict[Path, FileVersion]:
        """Return the versions of all outputs except checkpoints, which the checkpoint uploader handles."""
        from packtrain.agent.checkpoints.detection import matching_names

        folder, checkpoint = self._context.sandbox.output, self._context.job.checkpoint
        paths = checkpoint.paths if checkpoint and checkpoint.is_in_output else ()
        excluded = {folder / name for path in paths for name in matching_names(path, folder)}
        versions = {}
        for path in walk_files(folder):
            with suppress(OSError):  # removed meanwhile, or a dangling link
                if path not in excluded and not is_temporary_name(path.name):
                    versions[path] = file_version(path)
        return versions

    def _try(self, upload: Callable[[], None]) -> None:
        try:
            upload()
        except FileNotFoundError:  # the program removed or renamed the file
            pass
        except Exception as error:  # it must not stop the steps; the final sync fails if it persists
            self._report_once(str(error))

    def _upload_if_unchanged(self, path: Path, version: FileVersion) -> None:
        copy = self._context.sandbox.tmp / "continuous-sync"
        shutil.copyfile(path, copy)
        if file_version(path) != version:
            return
        name = path.relative_to(self._context.sandbox.output).as_posix()
        entry = ManifestEntry(name, copy.stat().st_size, sha256_file(copy))
        journal = self._context.journal
        self._upload(copy, staged_name(journal.run, self._context.job.id, journal.emitter, name))
        self._uploaded_versions[path], self._uploaded_entries[name] = version, entry

    def _upload_list(self) -> None:
        run, job, emitter = self._context.journal.run, self._context.job.id, self._context.journal.emitter
        entries = dict(self._uploaded_entries)
        path = self._context.sandbox.tmp / SYNC_LIST_NAME
        path.write_text(OutputManifest(run, job, emitter, tuple(entries.values())).to_text(), encoding="utf-8")
        self._upload(path, f"{staging_folder(run, job, emitter)}/{SYNC_LIST_NAME}")
        self._listed_entries = entries

    def _upload(self, path: Path, name: str) -> None:
        from packtrain.transfer.upload import upload_file

        upload_file(path, self._output, name, self._context.secrets.resolve_secret, adopt_uploads=False)

    def _report_once(self, message: str) -> None:
        if message not in self._reported_errors:
            self._reported_errors.add(message)
            self._context.emit_notice("sync", f"continuous sync failed and will be retried: {message}")
