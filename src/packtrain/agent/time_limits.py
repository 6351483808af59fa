"""Time limits: when to ask the steps to checkpoint and exit, and how to classify an attempt that did.

There are two limits. After the workflow's `limits.wallTime` the job resumes in place (exit code 85). After the engine's
own limit (`--deadline`) it resumes elsewhere (exit code 86), as it does after SIGTERM.
An engine that transfers checkpoints does so whenever the job exits with 85, and then starts the job again in place.
There the agent exits with 85 before either limit, and as soon as there is a new checkpoint after each
`checkpoint.minInterval` (one hour by default).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packtrain.agent.context import AttemptContext
from packtrain.agent.processes.exit_status import is_checkpoint_exit
from packtrain.agent.watched_files import file_version
from packtrain.errors import EXIT_REQUEUE, EXIT_RESUME_IN_PLACE, FailedError

if TYPE_CHECKING:
    from packtrain.agent.checkpoints.uploader import CheckpointUploader

_SAFETY_MARGIN_S = 5.0
_POLL_INTERVAL_S = 0.5
_CHECKPOINT_TRANSFER_INTERVAL_S = 3600.0


class RequeueRequested(Exception):
    """The execution ends on purpose and another one resumes from training step `step`. This is not a failure."""

    def __init__(self, exit_code: int, step: int, detail: str) -> None:
        super().__init__(detail)
        self.exit_code, self.step = exit_code, step


@dataclass(frozen=True)
class TimeLimit:
    """A point in time by which the job must have ended."""

    expires_at: float  # by the monotonic clock
    limit_s: float  # seconds from the agent's start to the limit
    stop_kind: str  # failure kind of the stop request
    detail: str  # reason given with the stop request
    resume_in_place: bool = False  # the job resumes on this machine afterwards

    def stop_request_at(self, reserve_s: float) -> float:
        """Return when to request the stop: `reserve_s` before the limit, but not before half of it has passed."""
        return self.expires_at - min(reserve_s, self.limit_s / 2)


def time_limits(context: AttemptContext) -> list[TimeLimit]:
    limits, started_at = [], context.started_at
    wall_time_s = context.job.limits.wall_time_s
    if wall_time_s is not None:
        detail = f"the job was stopped at its `limits.wallTime` of {wall_time_s:g} s"
        limits.append(TimeLimit(started_at + wall_time_s, wall_time_s, "wall_time", detail, resume_in_place=True))
    if context.deadline_at is not None:
        expires_at = time.monotonic() + context.deadline_at - time.time()
        limits.append(
            TimeLimit(
                expires_at,
                max(0.0, expires_at - started_at),
                "terminated",
                "the engine's own time limit was near",
                resume_in_place=context.transferred_checkpoint is not None,
            )
        )
    return limits


def shutdown_reserve_s(context: AttemptContext, limit: TimeLimit, steps_running: bool) -> float:
    """Return how long before the limit to request a stop, in seconds.

    A program that saves checkpoints gets the grace period, twice the time that the last upload took, and a margin.
    Other programs and stages may use the wall time to its last second. Once the steps have finished, only a margin
    before the engine's limit is reserved, so that the outputs can still be uploaded.
    """
    if context.stop.steps_finished:
        return 0.0 if limit.stop_kind == "wall_time" else _SAFETY_MARGIN_S
    if limit.stop_kind == "wall_time" and not (steps_running and context.job.checkpoint):
        return 0.0
    return context.job.limits.grace_s + 2 * context.checkpoint_state.upload_s + _SAFETY_MARGIN_S


class TimeLimitMonitor:
    """Requests a stop before the first limit is reached.

    It runs until the attempt ends, because the steps may finish in spite of a graceful request, which withdraws it.
    """

    def __init__(self, context: AttemptContext) -> None:
        self._context, self._limits = context, time_limits(context)
        self._done = threading.Event()
        self.steps_running = False
        self._thread = threading.Thread(target=self._watch, name="limits", daemon=True)
        if self._limits or context.transferred_checkpoint is not None:
            self._thread.start()

    def stop(self) -> None:
        self._done.set()

    def _watch(self) -> None:
        while not self._done.wait(self._poll_delay_s()):
            if not self._context.stop.is_requested:
                self._check_limits(time.monotonic())

    def _check_limits(self, now: float) -> None:
        stop = self._context.stop
        due = [limit for limit in self._limits if self._stop_request_at(limit) <= now]
        if due:
            limit = min(due, key=self._stop_request_at)
            graceful = now < limit.expires_at and not stop.steps_finished
            deadline = limit.expires_at if graceful else 0.0
            stop.request(limit.stop_kind, limit.detail, limit.resume_in_place, graceful, deadline)
        elif self.steps_running and is_checkpoint_transfer_due(self._context):
            stop.request("wall_time", "the engine transfers its checkpoint", resume_in_place=True, graceful=True)

    def _poll_delay_s(self) -> float:
        if self._context.stop.is_requested:
            return _POLL_INTERVAL_S
        remaining_s = [self._stop_request_at(limit) - time.monotonic() for limit in self._limits]
        return max(0.0, min([*remaining_s, _POLL_INTERVAL_S]))

    def _stop_request_at(self, limit: TimeLimit) -> float:
        return limit.stop_request_at(shutdown_reserve_s(self._context, limit, self.steps_running))


def is_checkpoint_transfer_due(context: AttemptContext) -> bool:
    """Return whether to exit so that the engine transfers the checkpoint.

    The agent waits for a new checkpoint after the interval, so that the restart loses little of the training.
    """
    checkpoint, committed_at = context.job.checkpoint, context.checkpoint_state.committed_at
    if context.transferred_checkpoint is None or checkpoint is None or committed_at is None:
        return False
    interval_s = _CHECKPOINT_TRANSFER_INTERVAL_S if checkpoint.min_interval_s is None else checkpoint.min_interval_s
    return committed_at >= context.started_at + interval_s


def attempt_variables(context: AttemptContext) -> Mapping[str, str]:
    """Return the variables that name the restored checkpoint and the time by which the steps must have exited."""
    variables: dict[str, str] = {}
    if context.checkpoint_state.restored_path:
        variables["PACKTRAIN_RESUME"] = str(context.checkpoint_state.restored_path)
    deadlines = [limit.expires_at - min(_SAFETY_MARGIN_S, limit.limit_s / 10) for limit in time_limits(context)]
    if deadlines:
        variables["PACKTRAIN_DEADLINE"] = f"{time.time() + min(deadlines) - time.monotonic():.3f}"
    return variables


def classify_exit(context: AttemptContext, uploader: CheckpointUploader | None, error: FailedError) -> Exception:
    """Return RequeueRequested if the steps checkpointed and exited, or else the failure.

    The steps must have been asked to stop or have exited with the checkpoint's exit code, and an uploaded checkpoint
    must be beyond the one that the execution resumed from.
    """
    checkpoint_exit = is_checkpoint_exit(error)
    if uploader is None or not (checkpoint_exit or context.stop.is_requested):
        return error
    step = uploader.max_step
    if step is not None and step > context.checkpoint_state.restored_step:
        return _make_requeue(context, step, error)
    if uploader.last_error is not None and checkpoint_exit:
        detail = f"the steps checkpointed and exited, but the checkpoint could not be uploaded: {uploader.last_error}"
        return FailedError("upload_failed", detail)
    return error if context.stop.is_requested else _no_progress_error(context, error)


def _make_requeue(context: AttemptContext, step: int, error: FailedError) -> RequeueRequested:
    in_place = context.stop.resume_in_place
    reason = error.detail if context.stop.is_requested else "the program asked to be requeued"
    detail = f"checkpointed at training step {step}, to resume {'in place' if in_place else 'elsewhere'}: {reason}"
    return RequeueRequested(EXIT_RESUME_IN_PLACE if in_place else EXIT_REQUEUE, step, detail)


def _no_progress_error(context: AttemptContext, error: FailedError) -> FailedError:
    restored_step = context.checkpoint_state.restored_step
    progress = f"beyond step {restored_step} was saved" if restored_step >= 0 else "was saved"
    return FailedError(error.kind, f"{error.detail}; this code means “checkpointed”, but no checkpoint {progress}")


def discard_uploaded_files(context: AttemptContext) -> None:
    """Remove outputs that were uploaded completely and have not changed since."""
    for name, version in context.checkpoint_state.uploaded_versions.items():
        path = context.checkpoint_folder / name
        with suppress(OSError):
            if file_version(path) == version:
                path.unlink()
