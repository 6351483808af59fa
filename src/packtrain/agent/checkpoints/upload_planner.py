"""What to do next with the checkpoints that a program saves. Pure: it is told what happened, and says what to do.

    offer(save) → Send each file → Seal (write the record) → Show (the user's own path) → Drop what is too old
    at one address that lists nothing:  offer(save) → Show → Seal

A save that comes while another is on its way waits; of several that wait the newest wins. One that is on its way is
given up only if it failed and a newer one waits: a slow line still completes every generation that it began.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Union

from packtrain.agent.checkpoints.record import MAX_GENERATIONS
from packtrain.agent.watched_files import FileVersion

_MIN_BACKOFF_S, _BACKOFF_FACTOR, _MAX_BACKOFF_S = 0.5, 2.0, 60.0


@dataclass(frozen=True)
class CheckpointSnapshot:
    """What the program saved, lying aside under the names that it has below the output folder."""

    folder: Path
    names: tuple[str, ...]
    path: str  # what was announced: a file, or a folder of files
    step: int
    epoch: int | None = None
    versions: tuple[FileVersion, ...] = ()  # of the files as they were then
    noticed_at: float = 0.0  # by the monotonic clock


@dataclass(frozen=True)
class UploadFile:
    generation: int
    snapshot: CheckpointSnapshot
    name: str


@dataclass(frozen=True)
class CommitGeneration:
    generation: int
    snapshot: CheckpointSnapshot


@dataclass(frozen=True)
class PublishGeneration:
    generation: int
    snapshot: CheckpointSnapshot


@dataclass(frozen=True)
class DeleteGeneration:
    """Remove a generation: one that is too old, or will never be complete."""

    generation: int
    names: tuple[str, ...]


UploadAction = Union[UploadFile, CommitGeneration, PublishGeneration, DeleteGeneration]


class UploadPlanner:
    """Of one attempt. `every_s` is the least time between the beginnings of two generations, `kept` how many complete
    ones stay; at one address each takes the place of the one before, and nothing is ever removed."""

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
        self._complete_generations: list[DeleteGeneration] = []  # what will remove them when newer ones are complete
        self._stale_generations: list[DeleteGeneration] = []
        self.garbage: list[CheckpointSnapshot] = []  # saves that nobody needs any more
        self.max_step: int | None = None  # the highest training step of a complete generation

    def add(self, snapshot: CheckpointSnapshot) -> None:
        """Take it up; one that waited before it is not sent."""
        if self._pending is not None:
            self.garbage.append(self._pending)
        self._pending = snapshot

    def flush(self) -> None:
        """The attempt ends: nothing waits for its time, and what cannot be removed at once stays."""
        self._min_interval_s, self._n_failures, self._flushing = 0.0, 0, True

    def cancel(self) -> None:
        """Nothing of what was saved needs to be carried any more."""
        if self._pending is not None:
            self.garbage.append(self._pending)
            self._pending = None
        if self._current is not None:
            self._abandon_current()

    @property
    def is_idle(self) -> bool:
        """Whether everything that was saved is complete there, and shown."""
        return self._pending is None and self._current is None

    @property
    def backoff_s(self) -> float:
        """How long to wait before the next act: longer after each failure."""
        if not self._n_failures:
            return 0.0
        return float(min(_MAX_BACKOFF_S, _MIN_BACKOFF_S * _BACKOFF_FACTOR ** min(self._n_failures - 1, 10)))

    def next_action(self, now: float) -> UploadAction | None:
        """What is too old goes right after a success, before the next save: else a program that saves all the time
        would fill the destination. While there is trouble, or little time, saves come first."""
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
        """The record comes after the bytes that it names."""
        seal, show = CommitGeneration(self._generation, snapshot), PublishGeneration(self._generation, snapshot)
        if self._single_file:
            return show, seal
        return *(UploadFile(self._generation, snapshot, name) for name in snapshot.names), seal, show

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
        """It will be tried again, unless a newer save waits."""
        self._n_failures += 1
        self._delete_first = False
        if isinstance(action, DeleteGeneration):
            self._stale_generations = self._stale_generations[1:] + ([] if self._flushing else [action])
        elif self._pending is not None:
            self._abandon_current()

    def discard(self, action: UploadAction) -> None:
        """What lies aside is not what was saved: it is never sent again."""
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
