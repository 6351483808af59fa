"""Leaving in time: when to ask the steps to save and go, and what an attempt that left is worth.

The workflow's `limits.wallTime`, after which the job goes on here (exit code 85); the engine's own limit
(`--deadline`), after which it goes on elsewhere (86), as it does after TERM.
Where the engine carries the checkpoints, which it does whenever the job leaves with 85 and starts it again in place,
the job leaves so in time for both limits, and after each hour (or `checkpoint.every`) that has a new checkpoint.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packtrain.agent.context import Context
from packtrain.agent.file_versions import version_of
from packtrain.agent.steps.exit_status import has_left
from packtrain.errors import EXIT_CONTINUE_ELSEWHERE, EXIT_CONTINUE_HERE, FailedError

if TYPE_CHECKING:
    from packtrain.agent.checkpoints.uploader import Checkpoints

_SPARE_S = 5.0
_GLANCE_S = 0.5
_CARRIED_EVERY_S = 3600.0


class LeftInTimeError(Exception):
    """No failure: the attempt ends on purpose, and another one goes on from training step `step`."""

    def __init__(self, exit_code: int, step: int, detail: str) -> None:
        super().__init__(detail)
        self.exit_code, self.step = exit_code, step


@dataclass(frozen=True)
class Limit:
    at: float  # by the monotonic clock
    total_s: float  # from the agent's start
    kind: str
    detail: str
    here: bool = False  # where the job goes on afterwards

    def ask_at(self, reserve_s: float) -> float:
        """So much earlier; but a short limit is not spent on leaving."""
        return self.at - min(reserve_s, self.total_s / 2)


def limits_of(context: Context) -> list[Limit]:
    found, started = [], context.started
    wall = context.job.limits.wall_time_s
    if wall is not None:
        detail = f"the job was stopped at its `limits.wallTime` of {wall:g} s"
        found.append(Limit(started + wall, wall, "wall_time", detail, here=True))
    if context.deadline is not None:
        at = time.monotonic() + context.deadline - time.time()
        detail, carried = "the engine's own time limit was near", context.carried is not None
        found.append(Limit(at, max(0.0, at - started), "terminated", detail, here=carried))
    return found


def reserve_s(context: Context, limit: Limit, in_steps: bool) -> float:
    """The grace period to save in, twice what the last generation took to be carried away, and some to spare.
    A program that saves nothing, and the other stages, have the wall time to its last second; a training that has ended
    is brought home until the engine's limit is very near."""
    if context.stop.past_steps:
        return 0.0 if limit.kind == "wall_time" else _SPARE_S
    if limit.kind == "wall_time" and not (in_steps and context.job.checkpoint):
        return 0.0
    return context.job.limits.grace_s + 2 * context.saved.sync_s + _SPARE_S


class LimitWatch:
    """Requests a stop before the first limit is reached, for as long as the attempt runs: also after a request that the
    steps had no need to heed."""

    def __init__(self, context: Context) -> None:
        self._context, self._limits = context, limits_of(context)
        self._over = threading.Event()
        self.in_steps = False
        self._thread = threading.Thread(target=self._watch, name="limits", daemon=True)
        if self._limits or context.carried is not None:
            self._thread.start()

    def end(self) -> None:
        self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(self._pause_s()):
            if not self._context.stop.requested:
                self._look(time.monotonic())

    def _look(self, now: float) -> None:
        stop = self._context.stop
        reached = [limit for limit in self._limits if self._ask_at(limit) <= now]
        if reached:
            first = min(reached, key=self._ask_at)
            gentle = now < first.at and not stop.past_steps
            stop.request(first.kind, first.detail, first.here, gentle, by=first.at if gentle else 0.0)
        elif self.in_steps and carries_now(self._context):
            stop.request("wall_time", "its checkpoint is carried away by the engine", here=True, gentle=True)

    def _pause_s(self) -> float:
        if self._context.stop.requested:
            return _GLANCE_S
        left = [self._ask_at(limit) - time.monotonic() for limit in self._limits]
        return max(0.0, min([*left, _GLANCE_S]))

    def _ask_at(self, limit: Limit) -> float:
        return limit.ask_at(reserve_s(self._context, limit, self.in_steps))


def carries_now(context: Context) -> bool:
    """Whether it is time to leave for the engine to carry the checkpoint: no sooner than when there is a new one, so
    that leaving costs the training little, and always brings it further."""
    wanted, sealed = context.job.checkpoint, context.saved.sealed_at
    if context.carried is None or wanted is None or sealed is None:
        return False
    every_s = _CARRIED_EVERY_S if wanted.every_s is None else wanted.every_s
    return sealed >= context.started + every_s


def variables_of(context: Context) -> Mapping[str, str]:
    """What the steps are told: where the restored checkpoint lies, and by when they must have left."""
    found = {"PACKTRAIN_RESUME": str(context.saved.path)} if context.saved.path else {}
    ends = [limit.at - min(_SPARE_S, limit.total_s / 10) for limit in limits_of(context)]
    if ends:
        found["PACKTRAIN_DEADLINE"] = f"{time.time() + min(ends) - time.monotonic():.3f}"
    return found


def verdict(context: Context, checkpoints: Checkpoints | None, error: FailedError) -> Exception:
    """What the end of the steps means: they left in time if they were asked to, or said so by exit code 85, and the
    training is further now, safely, than it was at the start."""
    left = has_left(error)
    if checkpoints is None or not (left or context.stop.requested):
        return error
    step = checkpoints.furthest
    if step is not None and step > context.saved.start_step:
        return _left_in_time(context, step, error)
    if checkpoints.trouble is not None and left:
        words = f"the steps left with a checkpoint, which could not be carried away: {checkpoints.trouble}"
        return FailedError("sink_failed", words)
    return error if context.stop.requested else _too_little(context, error)


def _left_in_time(context: Context, step: int, error: FailedError) -> LeftInTimeError:
    here = context.stop.here
    why = error.detail if context.stop.requested else "the program asked to go on later"
    words = f"left at training step {step}, to go on {'here' if here else 'elsewhere'}: {why}"
    return LeftInTimeError(EXIT_CONTINUE_HERE if here else EXIT_CONTINUE_ELSEWHERE, step, words)


def _too_little(context: Context, error: FailedError) -> FailedError:
    start = context.saved.start_step
    words = f"{error.detail}; that means “checkpointed”, but no checkpoint beyond "
    return FailedError(error.kind, words + (f"step {start} was saved" if start >= 0 else "the beginning was saved"))


def discard_carried(context: Context) -> None:
    """What stands complete at the destination need not be copied once more."""
    for name, version in context.saved.carried.items():
        path = context.box.output / name
        with suppress(OSError):
            if version_of(path) == version:
                path.unlink()
