"""Stage sync: the output folder to where the plan wants it, while the steps run and at the end.

What a failed attempt leaves goes below `.packtrain/EMITTER/` of the destination: worth keeping,
but never where the user looks for results.
"""

from __future__ import annotations

import os
import queue
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from packtrain.agent.cleanup import remove_tree
from packtrain.agent.context import AttemptContext, StageStats
from packtrain.agent.live.progress import StageProgress
from packtrain.agent.outputs.inventory import walk_files
from packtrain.agent.outputs.symlinks import resolve_links
from packtrain.agent.watched_files import FileVersion, file_version, is_temporary_name
from packtrain.errors import FailedError
from packtrain.plan import Output
from packtrain.transfer.urls import redact_url

if TYPE_CHECKING:
    from packtrain.transfer.upload import UploadResult

_POLL_INTERVAL_S = 5.0
_MAX_NOTICES = 5


def failed_prefix(context: AttemptContext) -> str:
    return f".packtrain/{context.journal.emitter}/"


def requeue_prefix(context: AttemptContext) -> str:
    """Of an attempt that left in time: its successor brings them back."""
    from packtrain.agent.checkpoints.record import requeue_folder

    return f"{requeue_folder(context.journal.emitter)}/"


def sync_outputs(context: AttemptContext, prefix: str, stats: StageStats) -> None:
    """Copy everything, once and finally. Where that fails, the outputs stay in the attempt's folder."""
    if not context.sandbox.output.is_dir():
        raise FailedError("output_missing", "there are no outputs: a step removed the output folder itself")
    if context.job.output is None:
        stats["files"] = sum(1 for _ in walk_files(context.sandbox.output))
        keep_in_attempt_folder(context, prefix)
        return
    try:
        _upload_with_deadline(context, context.job.output, prefix, stats)
    except Exception:
        keep_in_attempt_folder(context, failed_prefix(context))
        raise


def _upload_with_deadline(context: AttemptContext, output: Output, prefix: str, stats: StageStats) -> None:
    """In a thread that is left behind when time is up: a put that hangs cannot be told to stop."""
    outcome: queue.SimpleQueue[UploadResult | Exception] = queue.SimpleQueue()
    hurry = make_grace_check(context)

    def upload() -> None:
        try:
            outcome.put(_upload_all(context, output, prefix, hurry))
        except Exception as error:
            outcome.put(error)

    thread = threading.Thread(target=upload, name="sync", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.1)
        hurry()
    done = outcome.get()
    if isinstance(done, Exception):
        raise done
    stats.update(files=done.files, bytes=done.bytes, source=redact_url(output.location.url))


def _upload_all(
    context: AttemptContext, output: Output, prefix: str, check_cancelled: Callable[[], None]
) -> UploadResult:
    from packtrain.agent.checkpoints.store import write_completion_marker
    from packtrain.transfer.upload import upload_folder

    if not prefix:
        write_completion_marker(context)
    return upload_folder(
        context.sandbox.output,
        output,
        context.secrets.resolve_secret,
        prefix=prefix,
        check_cancelled=check_cancelled,
        on_progress=StageProgress(context.journal, "sync", None).start_part(""),
        retry_timeout_s=context.job.retry_timeout_s if output.retry_timeout_s is None else output.retry_timeout_s,
    )


def make_grace_check(context: AttemptContext) -> Callable[[], None]:
    """For copying that goes on after TERM: the steps have the grace period, and all copying has it once more.
    Ahead of a limit it has the time up to that: this is what it was reserved for."""

    def check() -> None:
        since = context.stop.requested_at
        if since is not None and time.monotonic() > max(since + 2 * context.job.limits.grace_s, context.stop.deadline):
            _raise_not_all_copied(context)

    return check


def _raise_not_all_copied(context: AttemptContext) -> None:
    """The reason for the stop is the reason for what was left undone."""
    try:
        context.stop.check()
    except FailedError as error:
        left = f"the outputs could not all be copied in time (the grace period is {context.job.limits.grace_s:g} s)"
        raise FailedError(error.kind, f"{error.detail}; {left}") from error


def keep_in_attempt_folder(context: AttemptContext, prefix: str) -> None:
    """Move the output folder to the attempt's folder, complete or not at all."""
    move_outputs(context, prefix, context.sandbox.attempt_folder.output)


def move_outputs(context: AttemptContext, prefix: str, folder: Path) -> None:
    target = folder / prefix
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(target.name + ".new")
    try:
        shutil.move(os.fspath(context.sandbox.output), temporary)
        remove_tree(target)  # what a pool brought along of a start before this one
        temporary.replace(target)
    except shutil.Error as error:
        raise FailedError("upload_failed", f"the outputs could not be moved to {target}: {error}") from error


def clean_outputs(context: AttemptContext) -> None:
    """Before they are counted: what is left is what leaves."""
    remove_temporary_files(context.sandbox.output)
    left_out = resolve_links(context.sandbox.output)
    for sentence in left_out[:_MAX_NOTICES]:
        context.emit_notice("sync", sentence)
    if len(left_out) > _MAX_NOTICES:
        context.emit_notice("sync", f"{len(left_out) - _MAX_NOTICES} more outputs are left out")


def remove_temporary_files(folder: Path) -> None:
    """What a program that was killed had not finished writing."""
    for path in [path for path in walk_files(folder) if is_temporary_name(path.name)]:
        with suppress(OSError):
            path.unlink()


class ContinuousSync:
    """Copies finished files while the steps run: those that did not change between two looks.

    A file is copied aside first and sent only if it did not change meanwhile, so that no half-written
    file ever stands at the destination. Errors are told once and tried again at the next look.
    """

    def __init__(self, context: AttemptContext, output: Output, poll_interval_s: float = _POLL_INTERVAL_S) -> None:
        self._context, self._output, self._poll_interval_s = context, output, poll_interval_s
        self._last_versions: dict[Path, FileVersion] = {}
        self._uploaded_versions: dict[Path, FileVersion] = {}
        self._reported_errors: set[str] = set()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="continuous-sync", daemon=True)

    def __enter__(self) -> ContinuousSync:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Wait for the file that is on its way: landing later, it would replace a newer one."""
        self._done.set()
        hurry = make_grace_check(self._context)
        while self._thread.is_alive():
            self._thread.join(0.2)
            hurry()

    def _run(self) -> None:
        while not self._done.wait(self._poll_interval_s):
            now = self._scan_versions()
            quiet = [
                p
                for p, version in now.items()
                if self._last_versions.get(p) == version != self._uploaded_versions.get(p)
            ]
            self._last_versions = now
            for path in quiet:
                if not self._done.is_set():
                    self._try_upload(path, now[path])

    def _scan_versions(self) -> dict[Path, FileVersion]:
        """Checkpoints have a way of their own."""
        from packtrain.agent.checkpoints.detection import matching_names

        folder, wanted = self._context.sandbox.output, self._context.job.checkpoint
        apart = {folder / name for name in matching_names(wanted.path, folder)} if wanted else set()
        found = {}
        for path in walk_files(folder):
            with suppress(OSError):  # removed meanwhile, or a link to nowhere
                if path not in apart and not is_temporary_name(path.name):
                    found[path] = file_version(path)
        return found

    def _try_upload(self, path: Path, version: FileVersion) -> None:
        try:
            self._upload_if_unchanged(path, version)
        except FileNotFoundError:  # the program removed or renamed it
            pass
        except Exception as error:  # whatever it is, the steps go on and the final sync will tell
            self._report_once(str(error))

    def _upload_if_unchanged(self, path: Path, version: FileVersion) -> None:
        copy = self._context.sandbox.tmp / "continuous-sync"
        shutil.copyfile(path, copy)
        if file_version(path) != version:
            return
        from packtrain.transfer.upload import upload_file

        name = path.relative_to(self._context.sandbox.output).as_posix()
        upload_file(copy, self._output, name, self._context.secrets.resolve_secret)
        self._uploaded_versions[path] = version

    def _report_once(self, message: str) -> None:
        if message not in self._reported_errors:
            self._reported_errors.add(message)
            self._context.emit_notice("sync", f"continuous sync will try again: {message}")
