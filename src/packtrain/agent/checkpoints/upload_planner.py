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

from packtrain.agent.checkpoints.record import KEPT
from packtrain.agent.file_versions import Version

_FIRST_PAUSE_S, _FACTOR, _LONGEST_PAUSE_S = 0.5, 2.0, 60.0


@dataclass(frozen=True)
class Save:
    """What the program saved, lying aside under the names that it has below the output folder."""

    folder: Path
    names: tuple[str, ...]
    path: str  # what was announced: a file, or a folder of files
    step: int
    epoch: int | None = None
    versions: tuple[Version, ...] = ()  # of the files as they were then
    noticed: float = 0.0  # by the monotonic clock


@dataclass(frozen=True)
class Send:
    generation: int
    save: Save
    name: str


@dataclass(frozen=True)
class Seal:
    generation: int
    save: Save


@dataclass(frozen=True)
class Show:
    generation: int
    save: Save


@dataclass(frozen=True)
class Drop:
    """Remove a generation: one that is too old, or will never be complete."""

    generation: int
    names: tuple[str, ...]


Act = Union[Send, Seal, Show, Drop]


class Carrying:
    """Of one attempt. `every_s` is the least time between the beginnings of two generations, `kept` how many complete
    ones stay; at one address each takes the place of the one before, and nothing is ever removed."""

    def __init__(self, every_s: float | None = None, one_address: bool = False, kept: int = KEPT) -> None:
        self._every_s, self._one_address, self._kept = every_s or 0.0, one_address, kept
        self._waiting: Save | None = None
        self._current: Save | None = None
        self._begun_at = float("-inf")
        self._generation = self._done = self._failures = 0
        self._sealed = self._tidies = self._hurries = False
        self._complete: list[Drop] = []  # what will remove them when newer ones are complete
        self._stale: list[Drop] = []
        self.litter: list[Save] = []  # saves that nobody needs any more
        self.furthest: int | None = None  # the highest training step of a complete generation

    def offer(self, save: Save) -> None:
        """Take it up; one that waited before it is not sent."""
        if self._waiting is not None:
            self.litter.append(self._waiting)
        self._waiting = save

    def hurry(self) -> None:
        """The attempt ends: nothing waits for its time, and what cannot be removed at once stays."""
        self._every_s, self._failures, self._hurries = 0.0, 0, True

    def forget(self) -> None:
        """Nothing of what was saved needs to be carried any more."""
        if self._waiting is not None:
            self.litter.append(self._waiting)
            self._waiting = None
        if self._current is not None:
            self._give_up()

    @property
    def idle(self) -> bool:
        """Whether everything that was saved is complete there, and shown."""
        return self._waiting is None and self._current is None

    @property
    def pause_s(self) -> float:
        """How long to wait before the next act: longer after each failure."""
        if not self._failures:
            return 0.0
        return float(min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * _FACTOR ** min(self._failures - 1, 10)))

    def next(self, now: float) -> Act | None:
        """What is too old goes right after a success, before the next save: else a program that saves all the time
        would fill the destination. While there is trouble, or little time, saves come first."""
        if self._current is None and self._stale and self._tidies and not self._hurries:
            return self._stale[0]
        if self._current is None:
            self._begin(now)
        if self._current is None:
            return self._stale[0] if self._stale else None
        return self._acts_on(self._current)[self._done]

    def _begin(self, now: float) -> None:
        if self._waiting is None or now < self._begun_at + self._every_s:
            return
        self._current, self._waiting = self._waiting, None
        self._generation += 1
        self._done, self._sealed, self._begun_at = 0, False, now

    def _acts_on(self, save: Save) -> tuple[Act, ...]:
        """The record comes after the bytes that it names."""
        seal, show = Seal(self._generation, save), Show(self._generation, save)
        if self._one_address:
            return show, seal
        return *(Send(self._generation, save, name) for name in save.names), seal, show

    def done(self, act: Act) -> None:
        self._failures = 0
        if isinstance(act, Drop):
            self._stale.remove(act)
            return
        if isinstance(act, Seal):
            self._seal(act)
        self._done += 1
        if self._done == len(self._acts_on(act.save)):
            self._tidies = True
            self._end()

    def _seal(self, act: Seal) -> None:
        self._sealed = True
        self.furthest = max(act.save.step, -1 if self.furthest is None else self.furthest)
        if self._one_address:
            return
        self._complete.append(Drop(act.generation, act.save.names))
        self._stale += self._complete[: -self._kept]
        self._complete = self._complete[-self._kept :]

    def failed(self, act: Act) -> None:
        """It will be tried again, unless a newer save waits."""
        self._failures += 1
        self._tidies = False
        if isinstance(act, Drop):
            self._stale = self._stale[1:] + ([] if self._hurries else [act])
        elif self._waiting is not None:
            self._give_up()

    def spoilt(self, act: Act) -> None:
        """What lies aside is not what was saved: it is never sent again."""
        if not isinstance(act, Drop):
            self._give_up()

    def _give_up(self) -> None:
        if self._current is not None and not self._sealed and not self._one_address:
            self._stale.append(Drop(self._generation, self._current.names))
        self._end()

    def _end(self) -> None:
        if self._current is not None:
            self.litter.append(self._current)
        self._current = None
