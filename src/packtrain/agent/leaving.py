"""Leaving in time: when to ask the steps to save and go, and what an attempt that left is worth.

Two limits: the workflow's `limits.wallTime`, after which the job goes on here (exit code 85), and the engine's own
(`--deadline`), after which it goes on elsewhere (86), as it does after TERM.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from packtrain.agent.checkpoint import Checkpoints
from packtrain.agent.context import Context
from packtrain.agent.exits import has_left
from packtrain.agent.saves import version_of
from packtrain.errors import EXIT_CONTINUE_ELSEWHERE, EXIT_CONTINUE_HERE, FailedError

_SPARE_S = 5.0
_GLANCE_S = 0.5


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

    def ask_at(self, reserve_s: float) -> float:
        """So much earlier; but a short limit is not spent on leaving."""
        return self.at - min(reserve_s, self.total_s / 2)


def limits_of(context: Context) -> list[Limit]:
    found, started = [], context.started
    wall = context.job.limits.wall_time_s
    if wall is not None:
        detail = f"the job was stopped at its `limits.wallTime` of {wall:g} s"
        found.append(Limit(started + wall, wall, "wall_time", detail))
    if context.deadline is not None:
        at = time.monotonic() + context.deadline - time.time()
        found.append(Limit(at, max(0.0, at - started), "terminated", "the engine's own time limit was near"))
    return found


def reserve_s(context: Context, limit: Limit, in_steps: bool) -> float:
    """The grace period to save in, twice what the last generation took to be carried away, and some to spare.
    A program that saves nothing, and the other stages, have the wall time to its last second."""
    if limit.kind == "wall_time" and not (in_steps and context.job.checkpoint):
        return 0.0
    return context.job.limits.grace_s + 2 * context.saved.sync_s + _SPARE_S


class LimitWatch:
    """Requests a stop before the first limit is reached, for as long as the attempt runs."""

    def __init__(self, context: Context) -> None:
        self._context, self._limits = context, limits_of(context)
        self._over = threading.Event()
        self.in_steps = False
        self._thread = threading.Thread(target=self._watch, name="limits", daemon=True)
        if self._limits:
            self._thread.start()

    def end(self) -> None:
        self._over.set()

    def _watch(self) -> None:
        while not self._context.stop.requested:
            first = min(self._limits, key=self._ask_at)
            left = self._ask_at(first) - time.monotonic()
            if left <= 0:
                self._context.stop.request(first.kind, first.detail)
            elif self._over.wait(min(left, _GLANCE_S)):
                return

    def _ask_at(self, limit: Limit) -> float:
        return limit.ask_at(reserve_s(self._context, limit, self.in_steps))


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
    here = context.stop.kind in ("", "wall_time")
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
