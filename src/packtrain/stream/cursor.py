"""Where a training stands in the stream of samples: a small dict, from which any number of processes can go on.

An epoch may be begun by two workers and ended by five: each change begins a new phase, which deals out what the phases
before it left. A phase is known by its split and how many batches of it were delivered.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from packtrain.errors import UsageError
from packtrain.stream.index import Index
from packtrain.stream.read_groups import Runs
from packtrain.stream.shuffle import Dealt, Split

VERSION = 1
State = dict[str, Any]


class Cursor:
    """`only`: sorted numbers of the samples that are meant; all, if not given."""

    def __init__(self, index: Index, split: Split, seed: int = 0, only: Sequence[int] | None = None) -> None:
        self._index, self._split, self.seed = index, split, seed
        chosen = None if only is None else array("Q", only)
        self._only: Sequence[int] = range(len(index)) if chosen is None else chosen
        some = "" if chosen is None else f"-{zlib.crc32(chosen):08x}"
        self._mark, self._old_mark = index.mark + some, index.stamp + some
        self.epoch = 1
        self._earlier: list[tuple[Split, int]] = []  # phases of this epoch that are over, and batches of each
        self.batch = 0  # batches delivered of the present phase
        self._dealt: Dealt | None = None
        self._whole: Runs | None = None  # of an epoch that begins: the same each time

    def dealt(self) -> Dealt:
        """What is dealt out in the present phase."""
        if self._dealt is None:
            self._dealt = self._deal(self._left(), self._split, len(self._earlier))
        return self._dealt

    @property
    def left(self) -> int:
        """Batches that are to come in this epoch."""
        return self.dealt().batches - self.batch

    def delivered(self, batches: int = 1) -> None:
        """So many more. The last of an epoch leads to the next one."""
        self.batch += batches
        if self.batch >= self.dealt().batches:
            self.epoch, self.batch, self._dealt, self._earlier = self.epoch + 1, 0, None, []

    def state_dict(self) -> State:
        phases = [*self._earlier, (self._split, self.batch)]
        return {
            "version": VERSION,
            "index": self._mark,
            "seed": self.seed,
            "epoch": self.epoch,
            "phases": [{**asdict(split), "delivered": count} for split, count in phases],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises UsageError if it was of other samples or another seed. The split may be another."""
        self._check(state)
        phases = [_phase(one) for one in state["phases"]]
        last, count = phases.pop()
        if last != self._split and count:
            phases, count = [*phases, (last, count)], 0
        self.epoch, self.batch, self._earlier, self._dealt = int(state["epoch"]), count, phases, None
        if self._earlier and not self.dealt().batches:  # too little is left for all ranks
            self.epoch, self._earlier, self._dealt = self.epoch + 1, [], None

    def _check(self, state: Mapping[str, Any]) -> None:
        if state.get("version") != VERSION:
            raise UsageError(f"the position has version {state.get('version')}, and this packtrain reads {VERSION}")
        mark = self._old_mark if state.get("index") == self._old_mark else self._mark  # as packtrain wrote it once
        mine = {"index": mark, "seed": self.seed}
        other = [f"{name} {state.get(name)}, now {value}" for name, value in mine.items() if state.get(name) != value]
        if other:
            raise UsageError(
                f"the position was counted with {' and '.join(other)}: it does not fit; "
                "go on with the old settings, or start anew"
            )

    def _left(self) -> Sequence[int]:
        """The samples that no earlier phase delivered."""
        left: Sequence[int] = self._only
        for number, (split, batches) in enumerate(self._earlier):
            gone = bytearray(len(self._index))
            for sample in self._deal(left, split, number).delivered(batches):
                gone[sample] = 1
            left = array("Q", (sample for sample in left if not gone[sample]))
        return left

    def _deal(self, samples: Sequence[int], split: Split, phase: int) -> Dealt:
        if phase or split.span != self._split.span:
            return Dealt(Runs(self._index, samples, split.span), split, self.seed, self.epoch, phase)
        if self._whole is None:
            self._whole = Runs(self._index, samples, split.span)
        return Dealt(self._whole, split, self.seed, self.epoch, 0)


def _phase(state: Mapping[str, Any]) -> tuple[Split, int]:
    fields = dict(state)
    count = int(fields.pop("delivered"))
    return Split(**fields), count
