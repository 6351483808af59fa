"""Upload checkpoints while the steps run. At the destination a checkpoint is complete or invisible.

One thread detects saves and another uploads them, so that neither a slow server nor a large file delays the training or
the detection of newer saves. The upload planner decides what to do next, the upload executor does it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Callable

from packtrain.agent.checkpoints.detection import (
    SaveNotice,
    SaveNoticeReader,
    StableFiles,
    StagingDir,
    WholeCheckpoint,
)
from packtrain.agent.checkpoints.record import MAX_GENERATIONS, CheckpointRecord
from packtrain.agent.checkpoints.store import RecordRejectedError, checkpoint_destination, open_checkpoint_store
from packtrain.agent.checkpoints.upload_executor import FileChangedError, SupersededError, UploadExecutor
from packtrain.agent.checkpoints.upload_planner import (
    CheckpointSnapshot,
    CommitGeneration,
    DeleteGeneration,
    UploadAction,
    UploadPlanner,
)
from packtrain.agent.context import AttemptContext
from packtrain.agent.processes.exit_status import is_checkpoint_exit
from packtrain.agent.watched_files import FileVersion
from packtrain.errors import FailedError
from packtrain.events import kinds
from packtrain.plan import CheckpointConfig, Output

_POLL_INTERVAL_S = 0.2  # between two reads of $PACKTRAIN_CHECKPOINTS
_SCAN_INTERVAL_S = 5.0  # between two scans for files that are not announced

CurrentStep = Callable[[], "int | None"]
"""Returns the latest training step that the program reported, or None."""


class _UploadCancelled(Exception):
    """The attempt ended, and the current upload is no longer needed."""


def make_checkpoint_uploader(context: AttemptContext, current_step: CurrentStep) -> CheckpointUploader | None:
    """Return an uploader, or None if the workflow has no checkpoint or there is no destination for it."""
    checkpoint, output = context.job.checkpoint, checkpoint_destination(context)
    if checkpoint is None or output is None:
        return None
    return CheckpointUploader(context, output, checkpoint, current_step)


class CheckpointUploader:
    """Upload checkpoints for the duration of a `with` block that runs the steps.

    If the steps succeed, pending uploads are dropped, because the outputs are uploaded next. If they fail, the newest
    save is still uploaded, within the retry timeout and the grace period.

    Args:
        context: The attempt.
        output: The destination of the checkpoints.
        checkpoint: The checkpoint settings of the workflow.
        current_step: Returns the latest reported training step.
        scan_interval_s: Time between two scans for files that are not announced, in seconds.
    """

    def __init__(
        self,
        context: AttemptContext,
        output: Output,
        checkpoint: CheckpointConfig,
        current_step: CurrentStep,
        scan_interval_s: float = _SCAN_INTERVAL_S,
    ) -> None:
        sandbox = context.sandbox
        self._context, self._current_step, self._scan_interval_s = context, current_step, scan_interval_s
        self._store = open_checkpoint_store(context, output)
        self._executor = UploadExecutor(self._store, sandbox.checkpoint_staging / "record.json", self._check_cancelled)
        min_interval_s, max_generations = checkpoint.min_interval_s, MAX_GENERATIONS
        if context.transferred_checkpoint is not None:
            # The engine transfers the whole folder, and `minInterval` limits its transfers instead of these copies.
            min_interval_s, max_generations = None, 1
        self._planner = UploadPlanner(
            min_interval_s, single_file=not self._store.can_list, max_generations=max_generations
        )
        self._notices = SaveNoticeReader(sandbox.checkpoints_file)
        self._has_notices = False
        folder, restored_versions = context.checkpoint_folder, context.checkpoint_state.restored_versions
        self._stable_files = StableFiles(checkpoint.paths, folder, restored_versions)
        self._when = checkpoint.when
        self._whole = WholeCheckpoint(checkpoint.paths, folder, restored_versions) if self._when != "saved" else None
        self._staging = StagingDir(folder, sandbox.checkpoint_staging)
        self._last_step = context.checkpoint_state.restored_step
        self._reported_kinds: set[str] = set()
        self._others_deleted = False
        self._condition = threading.Condition()
        self._steps_done, self._ending, self._cancelled = threading.Event(), False, False
        self._first_failure_at: float | None = None
        self.last_error: Exception | None = None  # why the newest save is not uploaded
        self._detector_thread = threading.Thread(target=self._detect_loop, name="checkpoints", daemon=True)
        self._upload_thread = threading.Thread(target=self._upload_loop, name="checkpoint-upload", daemon=True)

    def __enter__(self) -> CheckpointUploader:
        self._detector_thread.start()
        self._upload_thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._steps_done.set()
        self._detector_thread.join()
        if error is None:
            self._cancelled = True
        elif self._whole is not None:
            whole = self._whole
            self._try_detect(lambda: self._stage_whole(whole, error))
        else:
            self._detect_last(0.0 if is_checkpoint_exit(error) else self._scan_interval_s)
        self._finish()
        self._report_ignored()

    @property
    def max_step(self) -> int | None:
        """The highest training step that this attempt uploaded completely; None if there is none."""
        return self._planner.max_step

    # Detection

    def _detect_loop(self) -> None:
        next_scan_at = time.monotonic() + self._scan_interval_s
        while self._whole is None and not self._steps_done.wait(_POLL_INTERVAL_S):
            self._try_detect(self._stage_noticed)
            if time.monotonic() >= next_scan_at:
                self._try_detect(lambda: self._stage_stable(self._stable_files.poll()))
                next_scan_at = time.monotonic() + self._scan_interval_s

    def _detect_last(self, stable_s: float) -> None:
        """Detect what the steps saved last, once no step runs any more."""
        self._try_detect(self._stage_noticed)
        self._try_detect(lambda: self._stage_stable(self._stable_files.final_poll(stable_s)))

    def _stage_whole(self, whole: WholeCheckpoint, error: BaseException) -> None:
        """Stage the complete checkpoint of a program that exited to be continued, or was stopped."""
        is_evicted = self._when == "exitOrEvict" and self._context.stop.is_requested
        if not (is_checkpoint_exit(error) or is_evicted):
            return
        for name in whole.missing_names() if is_checkpoint_exit(error) else ():
            missing = FailedError("object_missing", f"there is no {name!r} in the working folder")
            self._report_once(missing, "a file of the checkpoint is missing", "the job continues without it")
        versions = whole.changed_files()
        snapshot = self._staging.stage_stable(versions, self._next_step()) if versions else None
        if snapshot is not None:
            self._add_snapshot(snapshot)

    def _try_detect(self, detect: Callable[[], None]) -> None:
        try:
            detect()
        except Exception as error:  # for example a full disk: it must not stop the training
            self._report_once(error, "a checkpoint could not be copied to the staging folder", "training continues")

    def _stage_noticed(self) -> None:
        notices = self._notices.read()
        self._has_notices |= bool(notices)
        for notice in reversed(notices):  # the newest one whose file still exists
            snapshot = self._staging.stage_noticed(notice)
            if snapshot is not None:
                self._add_snapshot(snapshot)
                return
            self._report_once(
                _missing_file_error(notice), "the announced checkpoint does not exist", "training continues"
            )

    def _stage_stable(self, versions: Mapping[str, FileVersion]) -> None:
        """Stage the files of a program that announces nothing."""
        if not versions or self._has_notices:
            return
        snapshot = self._staging.stage_stable(versions, self._next_step())
        if snapshot is not None:
            self._stable_files.mark_taken(versions)
            self._add_snapshot(snapshot)

    def _next_step(self) -> int:
        reported = self._current_step()
        return reported if reported is not None and reported > self._last_step else self._last_step + 1

    def _add_snapshot(self, snapshot: CheckpointSnapshot) -> None:
        self._last_step = self._context.checkpoint_state.last_saved_step = max(self._last_step, snapshot.step)
        with self._condition:
            self._planner.add(snapshot)
            self._condition.notify_all()
        self._remove_garbage()  # not only after uploads: while the upload thread backs off, the disk would fill

    # Upload

    def _upload_loop(self) -> None:
        while True:
            action = self._wait_for_action()
            if action is None:
                return
            self._execute(action)
            self._remove_garbage()

    def _wait_for_action(self) -> UploadAction | None:
        """Wait for the next action and return it; None when the attempt ends and nothing remains to do."""
        with self._condition:
            if not self._ending and self._planner.backoff_s:
                self._condition.wait_for(lambda: self._ending, self._planner.backoff_s)
            elif self._planner.backoff_s:
                self._condition.wait(min(1.0, self._planner.backoff_s))
            while True:
                if self._cancelled:
                    self._planner.cancel()
                action = self._planner.next_action(time.monotonic())
                if action is not None or (self._ending and self._planner.is_idle):
                    return action
                self._condition.wait(_POLL_INTERVAL_S)

    def _execute(self, action: UploadAction) -> None:
        try:
            record = self._executor.execute(action)
            if record is not None and isinstance(action, CommitGeneration):
                self._emit_saved(record, action.snapshot)
                self._delete_others()
        except _UploadCancelled:
            with self._condition:
                self._planner.cancel()
        except Exception as error:  # no error of an upload may stop the training
            self._record_error(error, action, self._planner.discard if _is_final(error) else self._planner.mark_failed)
        else:
            with self._condition:
                self._planner.mark_done(action)
                self._first_failure_at = self.last_error = None

    def _record_error(self, error: Exception, action: UploadAction, mark: Callable[[UploadAction], None]) -> None:
        with self._condition:
            mark(action)
            if isinstance(action, DeleteGeneration):  # an old generation may exist a little longer
                return
            self.last_error = error
            self._first_failure_at = self._first_failure_at or time.monotonic()
        consequence = "training continues" if _is_final(error) else "the upload will be retried, and training continues"
        which = f"the checkpoint of step {action.snapshot.step}"
        if isinstance(error, RecordRejectedError):
            self._report_once(error, f"{which} was uploaded, but it cannot be used to resume", consequence)
        else:
            self._report_once(error, f"{which} could not be uploaded", consequence)

    def _emit_saved(self, record: CheckpointRecord, snapshot: CheckpointSnapshot) -> None:
        duration_s, state = time.monotonic() - snapshot.noticed_at, self._context.checkpoint_state
        state.upload_s = duration_s
        if record.step > state.restored_step:
            state.committed_at = time.monotonic()
        state.uploaded_versions = dict(zip(snapshot.names, snapshot.versions))
        self._context.journal.emit(
            kinds.CHECKPOINT_SAVED,
            generation=record.generation,
            step=record.step,
            epoch=record.epoch,
            path=record.path,
            bytes=record.total_bytes,
            seconds=round(duration_s, 3),
            sha256=record.files[0].sha256 if len(record.files) == 1 else "",
        )

    def _delete_others(self) -> None:
        """Delete the generations of earlier executions once, where the engine transfers the folder."""
        if self._context.transferred_checkpoint is None or self._others_deleted:
            return
        self._others_deleted = True
        try:
            self._store.delete_other_generations()
        except FailedError as error:
            self._context.log.write(f"steps: older checkpoints could not be deleted: {error}")

    def _check_cancelled(self) -> None:
        if self._cancelled:
            raise _UploadCancelled

    def _remove_garbage(self) -> None:
        with self._condition:
            garbage, self._planner.garbage = self._planner.garbage, []
        for snapshot in garbage:
            self._staging.remove(snapshot)
            self._executor.forget_digests(snapshot)

    def _report_once(self, error: Exception, problem: str, consequence: str) -> None:
        """Emit a notice for the first error of each kind; later ones only go to the agent's log."""
        kind = error.kind if isinstance(error, FailedError) else type(error).__name__
        if kind in self._reported_kinds:
            self._context.log.write(f"steps: {problem}: {error}")
            return
        self._reported_kinds.add(kind)
        try:
            self._context.emit_notice("steps", f"{problem}: {error}; {consequence}")
        except OSError as write_error:
            self._context.log.write(f"steps: a notice could not be written: {write_error}")

    # End of the attempt

    def _finish(self) -> None:
        """Wait for the upload thread until it is done or the time is up."""
        with self._condition:
            self._ending = True
            self._planner.flush()
            self._first_failure_at = None
            self._condition.notify_all()
        while self._upload_thread.is_alive():
            self._upload_thread.join(0.05)
            if self._is_time_up():
                self._cancelled = True
                return

    def _is_time_up(self) -> bool:
        first_failure_at = self._first_failure_at
        try:
            self._context.check_upload_time()
        except FailedError as error:
            self.last_error = self.last_error or error
            return True
        timeout_s = self._context.upload_retry_timeout_s
        return first_failure_at is not None and time.monotonic() - first_failure_at > timeout_s

    def _report_ignored(self) -> None:
        n_ignored = self._notices.n_ignored
        if n_ignored:
            self._context.log.write(f"steps: ignored {n_ignored} invalid lines of $PACKTRAIN_CHECKPOINTS")


def _is_final(error: Exception) -> bool:
    """Return whether retrying the upload of this snapshot is useless."""
    unsupported = isinstance(error, FailedError) and error.kind == "unsupported"
    return unsupported or isinstance(error, (FileChangedError, SupersededError, RecordRejectedError, FileNotFoundError))


def _missing_file_error(notice: SaveNotice) -> FailedError:
    return FailedError("object_missing", f"there is no file {notice.path!r} below the output folder")
