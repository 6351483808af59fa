"""Leaving in time: when to ask the steps to save and go, and what an attempt that left is worth.

The workflow's `limits.wallTime`, after which the job goes on here (exit code 85); the engine's own limit
(`--deadline`), after which it goes on elsewhere (86), as it does after TERM.
Where the engine carries the checkpoints, which it does whenever the job leaves with 85 and starts it again in place,
the job leaves so in time for both limits, and after each hour (or `checkpoint.minInterval`) that has a new checkpoint.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packtrain.agent.context import AttemptContext
from packtrain.agent.file_versions import file_version
from packtrain.agent.steps.exit_status import is_checkpoint_exit
from packtrain.errors import EXIT_REQUEUE, EXIT_RESUME_IN_PLACE, FailedError

if TYPE_CHECKING:
    from packtrain.agent.checkpoints.uploader import CheckpointUploader

_SAFETY_MARGIN_S = 5.0
_POLL_INTERVAL_S = 0.5
_CHECKPOINT_TRANSFER_INTERVAL_S = 3600.0


class RequeueRequested(Exception):
    """No failure: the attempt ends on purpose, and another one goes on from training step `step`."""

    def __init__(self, exit_code: int, step: int, detail: str) -> None:
        super().__init__(detail)
        self.exit_code, self.step = exit_code, step


@dataclass(frozen=True)
class TimeLimit:
    expires_at: float  # by the monotonic clock
    limit_s: float  # from the agent's start
    stop_kind: str
    detail: str
    resume_in_place: bool = False  # where the job goes on afterwards

    def stop_request_at(self, reserve_s: float) -> float:
        """So much earlier; but a short limit is not spent on leaving."""
        return self.expires_at - min(reserve_s, self.limit_s / 2)


def time_limits(context: AttemptContext) -> list[TimeLimit]:
    found, started = [], context.started_at
    wall = context.job.limits.wall_time_s
    if wall is not None:
        detail = f"the job was stopped at its `limits.wallTime` of {wall:g} s"
        found.append(TimeLimit(started + wall, wall, "wall_time", detail, resume_in_place=True))
    if context.deadline_at is not None:
        at = time.monotonic() + context.deadline_at - time.time()
        detail, carried = "the engine's own time limit was near", context.transferred_checkpoint is not None
        found.append(TimeLimit(at, max(0.0, at - started), "terminated", detail, resume_in_place=carried))
    return found


def shutdown_reserve_s(context: AttemptContext, limit: TimeLimit, steps_running: bool) -> float:
    """The grace period to save in, twice what the last generation took to be carried away, and some to spare.
    A program that saves nothing, and the other stages, have the wall time to its last second; a training that has ended
    is brought home until the engine's limit is very near."""
    if context.stop.steps_finished:
        return 0.0 if limit.stop_kind == "wall_time" else _SAFETY_MARGIN_S
    if limit.stop_kind == "wall_time" and not (steps_running and context.job.checkpoint):
        return 0.0
    return context.job.limits.grace_s + 2 * context.checkpoint_state.upload_s + _SAFETY_MARGIN_S


class TimeLimitMonitor:
    """Requests a stop before the first limit is reached, for as long as the attempt runs: also after a request that the
    steps had no need to heed."""

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
        reached = [limit for limit in self._limits if self._stop_request_at(limit) <= now]
        if reached:
            first = min(reached, key=self._stop_request_at)
            gentle = now < first.expires_at and not stop.steps_finished
            stop.request(
                first.stop_kind,
                first.detail,
                first.resume_in_place,
                gentle,
                deadline=first.expires_at if gentle else 0.0,
            )
        elif self.steps_running and is_checkpoint_transfer_due(self._context):
            stop.request(
                "wall_time", "its checkpoint is carried away by the engine", resume_in_place=True, graceful=True
            )

    def _poll_delay_s(self) -> float:
        if self._context.stop.is_requested:
            return _POLL_INTERVAL_S
        left = [self._stop_request_at(limit) - time.monotonic() for limit in self._limits]
        return max(0.0, min([*left, _POLL_INTERVAL_S]))

    def _stop_request_at(self, limit: TimeLimit) -> float:
        return limit.stop_request_at(shutdown_reserve_s(self._context, limit, self.steps_running))


def is_checkpoint_transfer_due(context: AttemptContext) -> bool:
    """Whether it is time to leave for the engine to carry the checkpoint: no sooner than when there is a new one, so
    that leaving costs the training little, and always brings it further."""
    wanted, sealed = context.job.checkpoint, context.checkpoint_state.committed_at
    if context.transferred_checkpoint is None or wanted is None or sealed is None:
        return False
    every_s = _CHECKPOINT_TRANSFER_INTERVAL_S if wanted.min_interval_s is None else wanted.min_interval_s
    return sealed >= context.started_at + every_s


def attempt_variables(context: AttemptContext) -> Mapping[str, str]:
    """What the steps are told: where the restored checkpoint lies, and by when they must have left."""
    found = (
        {"PACKTRAIN_RESUME": str(context.checkpoint_state.restored_path)}
        if context.checkpoint_state.restored_path
        else {}
    )
    ends = [limit.expires_at - min(_SAFETY_MARGIN_S, limit.limit_s / 10) for limit in time_limits(context)]
    if ends:
        found["PACKTRAIN_DEADLINE"] = f"{time.time() + min(ends) - time.monotonic():.3f}"
    return found


def classify_exit(context: AttemptContext, uploader: CheckpointUploader | None, error: FailedError) -> Exception:
    """What the end of the steps means: they left in time if they were asked to, or said so by exit code 85, and the
    training is further now, safely, than it was at the start."""
    left = is_checkpoint_exit(error)
    if uploader is None or not (left or context.stop.is_requested):
        return error
    step = uploader.max_step
    if step is not None and step > context.checkpoint_state.restored_step:
        return _make_requeue(context, step, error)
    if uploader.last_error is not None and left:
        words = f"the steps left with a checkpoint, which could not be carried away: {uploader.last_error}"
        return FailedError("upload_failed", words)
    return error if context.stop.is_requested else _no_progress_error(context, error)


def _make_requeue(context: AttemptContext, step: int, error: FailedError) -> RequeueRequested:
    here = context.stop.resume_in_place
    why = error.detail if context.stop.is_requested else "the program asked to go on later"
    words = f"left at training step {step}, to go on {'here' if here else 'elsewhere'}: {why}"
    return RequeueRequested(EXIT_RESUME_IN_PLACE if here else EXIT_REQUEUE, step, words)


def _no_progress_error(context: AttemptContext, error: FailedError) -> FailedError:
    start = context.checkpoint_state.restored_step
    words = f"{error.detail}; that means “checkpointed”, but no checkpoint beyond "
    return FailedError(error.kind, words + (f"step {start} was saved" if start >= 0 else "the beginning was saved"))


def discard_uploaded_files(context: AttemptContext) -> None:
    """What stands complete at the destination need not be copied once more."""
    for name, version in context.checkpoint_state.uploaded_versions.items():
        path = context.sandbox.output / name
        with suppress(OSError):
            if file_version(path) == version:
                path.unlink()
