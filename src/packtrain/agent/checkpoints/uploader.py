"""Checkpoints while the steps run: noticed, set aside, carried away, each complete or invisible.

One thread notices, another carries, so that neither a slow sink nor a large file holds up the training or the notice
of a newer save. `carrying` decides what is done next, `porter` does it, `saves` looks at the disk, `shelf` speaks with
the sink.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Callable

from packtrain.agent.checkpoints.detection import SaveNotice, SaveNoticeReader, StableFiles, StagingDir
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
from packtrain.agent.outputs.sync import make_grace_check
from packtrain.agent.processes.exit_status import is_checkpoint_exit
from packtrain.agent.watched_files import FileVersion
from packtrain.errors import FailedError
from packtrain.events import kinds
from packtrain.plan import CheckpointConfig, Output

_POLL_INTERVAL_S = 0.2  # between two looks for announcements
_SCAN_INTERVAL_S = 5.0  # and for files that nobody announced

CurrentStep = Callable[[], "int | None"]
"""The newest training step that the program reported."""


class _UploadCancelled(Exception):
    """The attempt no longer wants what is being sent."""


def make_checkpoint_uploader(context: AttemptContext, current_step: CurrentStep) -> CheckpointUploader | None:
    """None if the workflow names no checkpoint, or there is no place to carry it to."""
    wanted, place = context.job.checkpoint, checkpoint_destination(context)
    if wanted is None or place is None:
        return None
    return CheckpointUploader(context, place, wanted, current_step)


class CheckpointUploader:
    """`with Checkpoints(…): run the steps`. When they end well the rest is dropped, since the outputs follow; when
    they do not, the newest save is carried away, as long as the patience and the grace period allow."""

    def __init__(
        self,
        context: AttemptContext,
        output: Output,
        checkpoint: CheckpointConfig,
        current_step: CurrentStep,
        scan_interval_s: float = _SCAN_INTERVAL_S,
    ) -> None:
        box, carried = context.sandbox, context.transferred_checkpoint is not None
        self._context, self._output, self._current_step, self._scan_interval_s = (
            context,
            output,
            current_step,
            scan_interval_s,
        )
        self._store = open_checkpoint_store(context, output)
        self._executor = UploadExecutor(self._store, box.checkpoint_staging / "record.json", self._check_cancelled)
        # In a folder that the engine carries, `every` is for the carrying, and each generation too many is carried.
        every_s, kept = (None, 1) if carried else (checkpoint.min_interval_s, MAX_GENERATIONS)
        self._planner = UploadPlanner(every_s, single_file=not self._store.can_list, max_generations=kept)
        self._notices = SaveNoticeReader(box.checkpoints_file)
        self._has_notices = False
        self._stable_files = StableFiles(checkpoint.path, box.output, context.checkpoint_state.restored_versions)
        self._staging = StagingDir(box.output, box.checkpoint_staging)
        self._last_step = context.checkpoint_state.restored_step
        self._reported_kinds: set[str] = set()
        self._others_deleted = False
        self._condition = threading.Condition()
        self._steps_done, self._ending, self._cancelled = threading.Event(), False, False
        self._first_failure_at: float | None = None
        self.last_error: Exception | None = None  # why the newest save did not get there
        self._detector_thread = threading.Thread(target=self._detect_loop, name="checkpoints", daemon=True)
        self._upload_thread = threading.Thread(target=self._upload_loop, name="checkpoint-carrier", daemon=True)

    def __enter__(self) -> CheckpointUploader:
        self._detector_thread.start()
        self._upload_thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._steps_done.set()
        self._detector_thread.join()
        if error is None:
            self._cancelled = True
        else:
            self._detect_last(0.0 if is_checkpoint_exit(error) else self._scan_interval_s)
        self._finish()
        self._report_ignored()

    @property
    def max_step(self) -> int | None:
        """The highest training step that stands complete at the destination, of this attempt."""
        return self._planner.max_step

    # Noticing

    def _detect_loop(self) -> None:
        look_at = time.monotonic() + self._scan_interval_s
        while not self._steps_done.wait(_POLL_INTERVAL_S):
            self._try_detect(self._stage_noticed)
            if time.monotonic() >= look_at:
                self._try_detect(lambda: self._stage_stable(self._stable_files.poll()))
                look_at = time.monotonic() + self._scan_interval_s

    def _detect_last(self, stable_s: float) -> None:
        """No step runs any more."""
        self._try_detect(self._stage_noticed)
        self._try_detect(lambda: self._stage_stable(self._stable_files.final_poll(stable_s)))

    def _try_detect(self, detect: Callable[[], None]) -> None:
        try:
            detect()
        except Exception as error:  # a full disk, say: the training goes on
            self._report_once(error, "a checkpoint could not be set aside", "the training goes on")

    def _stage_noticed(self) -> None:
        said = self._notices.read()
        self._has_notices |= bool(said)
        for one in reversed(said):  # the newest that is still there
            save = self._staging.stage_noticed(one)
            if save is not None:
                self._add_snapshot(save)
                return
            self._report_once(_missing_file_error(one), "a checkpoint was announced in vain", "the training goes on")

    def _stage_stable(self, versions: Mapping[str, FileVersion]) -> None:
        """Of programs that announce nothing."""
        save = self._staging.stage_stable(versions, self._next_step()) if versions and not self._has_notices else None
        if save is not None:
            self._stable_files.mark_taken(versions)
            self._add_snapshot(save)

    def _next_step(self) -> int:
        reported = self._current_step()
        return reported if reported is not None and reported > self._last_step else self._last_step + 1

    def _add_snapshot(self, snapshot: CheckpointSnapshot) -> None:
        self._last_step = self._context.checkpoint_state.last_saved_step = max(self._last_step, snapshot.step)
        with self._condition:
            self._planner.add(snapshot)
            self._condition.notify_all()
        self._remove_garbage()  # now: while the sink is in trouble the carrier sleeps, and the disk fills

    # Carrying

    def _upload_loop(self) -> None:
        while True:
            act = self._wait_for_action()
            if act is None:
                return
            self._execute(act)
            self._remove_garbage()

    def _wait_for_action(self) -> UploadAction | None:
        """The next thing to do, once its time has come; None when the attempt ends and nothing is left."""
        with self._condition:
            if not self._ending and self._planner.backoff_s:
                self._condition.wait_for(lambda: self._ending, self._planner.backoff_s)
            elif self._planner.backoff_s:
                self._condition.wait(min(1.0, self._planner.backoff_s))
            while True:
                if self._cancelled:
                    self._planner.cancel()
                act = self._planner.next_action(time.monotonic())
                if act is not None or (self._ending and self._planner.is_idle):
                    return act
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
        except Exception as error:  # whatever it is, the training goes on
            self._record_error(error, action, self._planner.discard if _is_final(error) else self._planner.mark_failed)
        else:
            with self._condition:
                self._planner.mark_done(action)
                self._first_failure_at = self.last_error = None

    def _record_error(self, error: Exception, action: UploadAction, mark: Callable[[UploadAction], None]) -> None:
        with self._condition:
            mark(action)
            if isinstance(action, DeleteGeneration):  # what is too old may stay a little longer
                return
            self.last_error = error
            self._first_failure_at = self._first_failure_at or time.monotonic()
        further = "the training goes on" if _is_final(error) else "it is tried again, and the training goes on"
        which = f"the checkpoint of step {action.snapshot.step}"
        if isinstance(error, RecordRejectedError):
            self._report_once(error, f"{which} is shown, but nobody can go on from it", further)
        else:
            self._report_once(error, f"{which} could not be carried away", further)

    def _emit_saved(self, record: CheckpointRecord, snapshot: CheckpointSnapshot) -> None:
        seconds = time.monotonic() - snapshot.noticed_at
        self._context.checkpoint_state.upload_s = seconds
        if record.step > self._context.checkpoint_state.restored_step:
            self._context.checkpoint_state.committed_at = time.monotonic()
        self._context.checkpoint_state.uploaded_versions = dict(zip(snapshot.names, snapshot.versions))
        self._context.journal.emit(
            kinds.CHECKPOINT_SAVED,
            generation=record.generation,
            step=record.step,
            epoch=record.epoch,
            path=record.path,
            bytes=record.total_bytes,
            seconds=round(seconds, 3),
            sha256=record.files[0].sha256 if len(record.files) == 1 else "",
        )

    def _delete_others(self) -> None:
        """Earlier starts', where nobody else needs them."""
        if self._context.transferred_checkpoint is None or self._others_deleted:
            return
        self._others_deleted = True
        try:
            self._store.delete_other_generations()
        except FailedError as error:
            self._context.log.write(f"steps: older checkpoints could not be removed: {error}")

    def _check_cancelled(self) -> None:
        if self._cancelled:
            raise _UploadCancelled

    def _remove_garbage(self) -> None:
        with self._condition:
            litter, self._planner.garbage = self._planner.garbage, []
        for save in litter:
            self._staging.remove(save)
            self._executor.forget_digests(save)

    def _report_once(self, error: Exception, problem: str, consequence: str) -> None:
        """Once for each kind of trouble; the rest is in the agent's log."""
        kind = error.kind if isinstance(error, FailedError) else type(error).__name__
        if kind in self._reported_kinds:
            self._context.log.write(f"steps: {problem}: {error}")
            return
        self._reported_kinds.add(kind)
        try:
            self._context.emit_notice("steps", f"{problem}: {error}; {consequence}")
        except OSError as full:
            self._context.log.write(f"steps: no notice could be written: {full}")

    # The end

    def _finish(self) -> None:
        """Wait for the carrier, but not for ever."""
        with self._condition:
            self._ending = True
            self._planner.flush()
            self._first_failure_at = None
            self._condition.notify_all()
        over = self._make_timeout_check()
        while self._upload_thread.is_alive():
            self._upload_thread.join(0.05)
            if over():
                self._cancelled = True
                return

    def _make_timeout_check(self) -> Callable[[], bool]:
        given = self._output.retry_timeout_s
        patience_s = self._context.job.retry_timeout_s if given is None else given
        hurry = make_grace_check(self._context)

        def is_expired() -> bool:
            since = self._first_failure_at
            try:
                hurry()
            except FailedError as error:
                self.last_error = self.last_error or error
                return True
            return since is not None and time.monotonic() - since > patience_s

        return is_expired

    def _report_ignored(self) -> None:
        if self._notices.n_ignored:
            text = f"{self._notices.n_ignored} lines of $PACKTRAIN_CHECKPOINTS are no announcements"
            self._context.log.write(f"steps: {text}")


def _is_final(error: Exception) -> bool:
    """Whether it is in vain to try this one again."""
    unsupported = isinstance(error, FailedError) and error.kind == "unsupported"
    return unsupported or isinstance(error, (FileChangedError, SupersededError, RecordRejectedError, FileNotFoundError))


def _missing_file_error(notice: SaveNotice) -> FailedError:
    return FailedError("object_missing", f"there is no file {notice.path!r} below the output folder")
