"""Decide what to do next with the checkpoints that a program saves. Pure: no threads, no I/O.

    add(snapshot) → UploadFile for each file → CommitGeneration (write the record) → DeleteGeneration for old ones

A snapshot that is added during an upload waits; of several waiting snapshots only the newest is uploaded. An upload is
abandoned only if it failed and a newer snapshot waits, so a slow connection still completes every generation that it
started.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Union

from packtrain.agent.checkpoints.record import MAX_GENERATIONS
from packtrain.agent.watched_files import FileVersion
from packtrain.backoff import Backoff

_BACKOFF = Backoff(initial_s=0.5, max_s=60.0)


@dataclass(frozen=True)
class CheckpointSnapshot:
    """A saved checkpoint in the staging folder, under the same names as below the output folder."""

    folder: Path
    names: tuple[str, ...]
    path: str  # what was announced, below the output folder: a file or a folder
    step: int
    epoch: int | None = None
    versions: tuple[FileVersion, ...] = ()  # of the original files when they were staged, in the order of names
    noticed_at: float = 0.0  # monotonic clock, seconds


@dataclass(frozen=True)
class UploadFile:
    """Upload one file of a generation."""

    generation: int
    snapshot: CheckpointSnapshot
    name: str


@dataclass(frozen=True)
class CommitGeneration:
    """Write the record of a generation, which makes it visible."""

    generation: int
    snapshot: CheckpointSnapshot


@dataclass(frozen=True)
class DeleteGeneration:
    """Delete a generation that is too old or will never be complete."""

    generation: int
    names: tuple[str, ...]


UploadAction = Union[UploadFile, CommitGeneration, DeleteGeneration]


class UploadPlanner:
    """The upload state of one attempt.

    Args:
        min_interval_s: Minimum time between the starts of two generations, in seconds; None means no minimum.
        single_file: The destination holds one file, so each generation replaces the one before and nothing is deleted.
        max_generations: How many complete generations are kept.
    """

    def __init__(
        self, min_interval_s: float | None = None, single_file: bool = False, max_generations: int = MAX_GENERATIONS
    ) -> None:
        self._min_interval_s, self._single_file, self._max_generations = (
            min_interval_s or 0.0,
            single_file,
            max_generations,
        )
        self._pending: CheckpointSnapshot | None = None
        self._current: CheckpointSnapshot | None = None
        self._started_at = float("-inf")
        self._generation = self._n_actions_done = self._n_failures = 0
        self._committed = self._delete_first = self._flushing = False
        self._complete_generations: list[DeleteGeneration] = []  # actions that will delete them once they are too old
        self._stale_generations: list[DeleteGeneration] = []
        self.garbage: list[CheckpointSnapshot] = []  # snapshots that can be removed from the staging folder
        self.max_step: int | None = None  # the highest training step of a complete generation

    def add(self, snapshot: CheckpointSnapshot) -> None:
        """Queue a snapshot; it replaces one that is still waiting."""
        if self._pending is not None:
            self.garbage.append(self._pending)
        self._pending = snapshot

    def flush(self) -> None:
        """Prepare for the end of the attempt: upload without delay, and do not retry failed deletions."""
        self._min_interval_s, self._n_failures, self._flushing = 0.0, 0, True

    def cancel(self) -> None:
        """Drop all snapshots that are not uploaded yet."""
        if self._pending is not None:
            self.garbage.append(self._pending)
            self._pending = None
        if self._current is not None:
            self._abandon_current()

    @property
    def is_idle(self) -> bool:
        """True if everything that was saved is uploaded."""
        return self._pending is None and self._current is None

    @property
    def backoff_s(self) -> float:
        """Seconds to wait before the next action; grows with each failure."""
        return _BACKOFF.delay_s(self._n_failures)

    def next_action(self, now: float) -> UploadAction | None:
        """Return the next action, or None if there is nothing to do yet.

        Old generations are deleted right after a success, before the next upload: else a program that saves all the
        time would fill the destination. After a failure and at the end of the attempt, uploads come first.
        """
        if self._current is None and self._stale_generations and self._delete_first and not self._flushing:
            return self._stale_generations[0]
        if self._current is None:
            self._start_next(now)
        if self._current is None:
            return self._stale_generations[0] if self._stale_generations else None
        return self._actions_for(self._current)[self._n_actions_done]

    def _start_next(self, now: float) -> None:
        if self._pending is None or now < self._started_at + self._min_interval_s:
            return
        self._current, self._pending = self._pending, None
        self._generation += 1
        self._n_actions_done, self._committed, self._started_at = 0, False, now

    def _actions_for(self, snapshot: CheckpointSnapshot) -> tuple[UploadAction, ...]:
        """Return all actions of a generation in order. The record follows the files that it names."""
        uploads = (UploadFile(self._generation, snapshot, name) for name in snapshot.names)
        return *uploads, CommitGeneration(self._generation, snapshot)

    def mark_done(self, action: UploadAction) -> None:
        self._n_failures = 0
        if isinstance(action, DeleteGeneration):
            self._stale_generations.remove(action)
            return
        if isinstance(action, CommitGeneration):
            self._record_commit(action)
        self._n_actions_done += 1
        if self._n_actions_done == len(self._actions_for(action.snapshot)):
            self._delete_first = True
            self._finish_current()

    def _record_commit(self, action: CommitGeneration) -> None:
        self._committed = True
        self.max_step = max(action.snapshot.step, -1 if self.max_step is None else self.max_step)
        if self._single_file:
            return
        self._complete_generations.append(DeleteGeneration(action.generation, action.snapshot.names))
        self._stale_generations += self._complete_generations[: -self._max_generations]
        self._complete_generations = self._complete_generations[-self._max_generations :]

    def mark_failed(self, action: UploadAction) -> None:
        """Schedule a retry, or abandon the generation if a newer snapshot waits."""
        self._n_failures += 1
        self._delete_first = False
        if isinstance(action, DeleteGeneration):
            self._stale_generations = self._stale_generations[1:] + ([] if self._flushing else [action])
        elif self._pending is not None:
            self._abandon_current()

    def discard(self, action: UploadAction) -> None:
        """Give up the current generation without a retry, because its snapshot cannot be uploaded."""
        if not isinstance(action, DeleteGeneration):
            self._abandon_current()

    def _abandon_current(self) -> None:
        if self._current is not None and not self._committed and not self._single_file:
            self._stale_generations.append(DeleteGeneration(self._generation, self._current.names))
        self._finish_current()

    def _finish_current(self) -> None:
        if self._current is not None:
            self.garbage.append(self._current)
        self._current = None
