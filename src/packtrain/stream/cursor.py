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
from packtrain.stream.read_groups import ReadGroups
from packtrain.stream.shuffle import PartitionConfig, SamplePartition

STATE_VERSION = 1
CursorState = dict[str, Any]


class Cursor:
    """`only`: sorted numbers of the samples that are meant; all, if not given."""

    def __init__(
        self, index: Index, config: PartitionConfig, seed: int = 0, indices: Sequence[int] | None = None
    ) -> None:
        self._index, self._config, self.seed = index, config, seed
        chosen = None if indices is None else array("Q", indices)
        self._indices: Sequence[int] = range(len(index)) if chosen is None else chosen
        some = "" if chosen is None else f"-{zlib.crc32(chosen):08x}"
        self._fingerprint, self._legacy_fingerprint = index.samples_fingerprint + some, index.fingerprint + some
        self.epoch = 1
        self._finished_phases: list[
            tuple[PartitionConfig, int]
        ] = []  # phases of this epoch that are over, and batches of each
        self.batches_done = 0  # batches delivered of the present phase
        self._partition: SamplePartition | None = None
        self._epoch_groups: ReadGroups | None = None  # of an epoch that begins: the same each time

    def partition(self) -> SamplePartition:
        """What is dealt out in the present phase."""
        if self._partition is None:
            self._partition = self._make_partition(self._remaining_samples(), self._config, len(self._finished_phases))
        return self._partition

    @property
    def batches_left(self) -> int:
        """Batches that are to come in this epoch."""
        return self.partition().n_batches - self.batches_done

    def advance(self, n_batches: int = 1) -> None:
        """So many more. The last of an epoch leads to the next one."""
        self.batches_done += n_batches
        if self.batches_done >= self.partition().n_batches:
            self.epoch, self.batches_done, self._partition, self._finished_phases = self.epoch + 1, 0, None, []

    def state_dict(self) -> CursorState:
        phases = [*self._finished_phases, (self._config, self.batches_done)]
        return {
            "version": STATE_VERSION,
            "index": self._fingerprint,
            "seed": self.seed,
            "epoch": self.epoch,
            "phases": [{**asdict(split), "delivered": count} for split, count in phases],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises UsageError if it was of other samples or another seed. The split may be another."""
        self._check_compatible(state)
        phases = [_parse_phase(one) for one in state["phases"]]
        last, count = phases.pop()
        if last != self._config and count:
            phases, count = [*phases, (last, count)], 0
        self.epoch, self.batches_done, self._finished_phases, self._partition = int(state["epoch"]), count, phases, None
        if self._finished_phases and not self.partition().n_batches:  # too little is left for all ranks
            self.epoch, self._finished_phases, self._partition = self.epoch + 1, [], None

    def _check_compatible(self, state: Mapping[str, Any]) -> None:
        if state.get("version") != STATE_VERSION:
            raise UsageError(
                f"the position has version {state.get('version')}, and this packtrain reads {STATE_VERSION}"
            )
        mark = (
            self._legacy_fingerprint if state.get("index") == self._legacy_fingerprint else self._fingerprint
        )  # as packtrain wrote it once
        mine = {"index": mark, "seed": self.seed}
        other = [f"{name} {state.get(name)}, now {value}" for name, value in mine.items() if state.get(name) != value]
        if other:
            raise UsageError(
                f"the position was counted with {' and '.join(other)}: it does not fit; "
                "go on with the old settings, or start anew"
            )

    def _remaining_samples(self) -> Sequence[int]:
        """The samples that no earlier phase delivered."""
        left: Sequence[int] = self._indices
        for number, (split, batches) in enumerate(self._finished_phases):
            gone = bytearray(len(self._index))
            for sample in self._make_partition(left, split, number).delivered_samples(batches):
                gone[sample] = 1
            left = array("Q", (sample for sample in left if not gone[sample]))
        return left

    def _make_partition(self, samples: Sequence[int], config: PartitionConfig, phase: int) -> SamplePartition:
        if phase or config.read_bytes != self._config.read_bytes:
            return SamplePartition(
                ReadGroups(self._index, samples, config.read_bytes), config, self.seed, self.epoch, phase
            )
        if self._epoch_groups is None:
            self._epoch_groups = ReadGroups(self._index, samples, config.read_bytes)
        return SamplePartition(self._epoch_groups, config, self.seed, self.epoch, 0)


def _parse_phase(state: Mapping[str, Any]) -> tuple[PartitionConfig, int]:
    fields = dict(state)
    count = int(fields.pop("delivered"))
    return PartitionConfig(**fields), count
