"""Count the batches that a training has received, as a small dict from which any number of processes can resume.

An epoch may start with two workers and end with five. Each change of the configuration starts a new *phase*, which
splits the samples that the earlier phases have not delivered. The state of a phase is its configuration and the number
of delivered batches.
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

STATE_VERSION = 3
CursorState = dict[str, Any]


class Cursor:
    """The position of a training in the samples of an index.

    Args:
        index: The index.
        config: How the epoch is split.
        seed: Decides the order, together with the epoch.
        indices: Sorted numbers of the samples to use. Default: all.

    Attributes:
        epoch: The current epoch, counted from 0.
        batches_done: Number of batches that each rank has received in the current phase.

    Raises:
        UsageError: There are too few samples for the ranks.
    """

    def __init__(
        self, index: Index, config: PartitionConfig, seed: int = 0, indices: Sequence[int] | None = None
    ) -> None:
        self._index, self._config, self.seed = index, config, seed
        self._indices: Sequence[int] = range(len(index))
        self._fingerprint = index.samples_fingerprint
        if indices is not None:
            self._indices = selected = array("Q", indices)
            self._fingerprint += f"-{zlib.crc32(selected):08x}"
        self.epoch = 0
        self._finished_phases: list[tuple[PartitionConfig, int]] = []  # of this epoch, with the batches of each
        self.batches_done = 0
        self._partition: SamplePartition | None = None
        self._epoch_groups: ReadGroups | None = None  # of a whole epoch; the same for each epoch
        min_samples = config.world_size * (config.batch_size if config.drop_last else 1)
        if len(self._indices) < min_samples:
            unit = f" in full batches of {config.batch_size}" if config.drop_last else ""
            raise UsageError(f"{len(self._indices)} samples cannot be split over {config.world_size} processes{unit}")

    def partition(self) -> SamplePartition:
        """Return how the current phase splits its samples."""
        if self._partition is None:
            self._partition = self._make_partition(self._remaining_samples(), self._config, len(self._finished_phases))
        return self._partition

    @property
    def batches_left(self) -> int:
        """Number of batches left in this epoch."""
        return self.partition().n_batches - self.batches_done

    def advance(self, n_batches: int = 1) -> None:
        """Count received batches. After the last batch of an epoch the next epoch starts."""
        self.batches_done += n_batches
        if self.batches_done >= self.partition().n_batches:
            self.epoch, self.batches_done, self._partition, self._finished_phases = self.epoch + 1, 0, None, []

    def state_dict(self) -> CursorState:
        """Return the position, as plain types."""
        phases = [*self._finished_phases, (self._config, self.batches_done)]
        return {
            "version": STATE_VERSION,
            "samples_fingerprint": self._fingerprint,
            "seed": self.seed,
            "epoch": self.epoch,
            "phases": [{**asdict(config), "batches_done": count} for config, count in phases],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved position.

        Args:
            state: The result of `state_dict`, possibly of a cursor with another configuration.

        Raises:
            UsageError: The state belongs to other samples or to another seed.
        """
        self._check_compatible(state)
        phases = [_parse_phase(phase) for phase in state["phases"]]
        last_config, count = phases.pop()
        if last_config != self._config and count:
            phases, count = [*phases, (last_config, count)], 0
        self.epoch, self.batches_done, self._finished_phases, self._partition = int(state["epoch"]), count, phases, None
        if self._finished_phases and not self.partition().n_batches:  # too few samples are left for all ranks
            self.epoch, self._finished_phases, self._partition = self.epoch + 1, [], None

    def _check_compatible(self, state: Mapping[str, Any]) -> None:
        if state.get("version") != STATE_VERSION:
            raise UsageError(
                f"the state of the loader has version {state.get('version')}, and this packtrain reads {STATE_VERSION}"
            )
        changes = describe_changes(state, {"samples_fingerprint": self._fingerprint, "seed": self.seed})
        if changes:
            raise UsageError(
                f"the position was counted with {changes}: it does not fit; "
                "resume with the old settings, or start from the beginning"
            )

    def _remaining_samples(self) -> Sequence[int]:
        """Return the samples that no earlier phase has delivered."""
        remaining: Sequence[int] = self._indices
        for phase, (config, n_batches) in enumerate(self._finished_phases):
            is_delivered = bytearray(len(self._index))
            for sample in self._make_partition(remaining, config, phase).delivered_samples(n_batches):
                is_delivered[sample] = 1
            remaining = array("Q", (sample for sample in remaining if not is_delivered[sample]))
        return remaining

    def _make_partition(self, samples: Sequence[int], config: PartitionConfig, phase: int) -> SamplePartition:
        if phase or config.read_bytes != self._config.read_bytes:
            return SamplePartition(
                ReadGroups(self._index, samples, config.read_bytes), config, self.seed, self.epoch, phase
            )
        if self._epoch_groups is None:
            self._epoch_groups = ReadGroups(self._index, samples, config.read_bytes)
        return SamplePartition(self._epoch_groups, config, self.seed, self.epoch, 0)


def describe_changes(saved: Mapping[str, Any], current: Mapping[str, Any]) -> str:
    """Return `seed 1, now 2 and …` for settings that differ from the saved ones; an empty string if none does."""
    changes = [(name, value) for name, value in current.items() if saved.get(name) != value]
    return " and ".join(f"{name} {saved.get(name)}, now {value}" for name, value in changes)


def _parse_phase(state: Mapping[str, Any]) -> tuple[PartitionConfig, int]:
    fields = dict(state)
    batches_done = int(fields.pop("batches_done"))
    return PartitionConfig(**fields), batches_done
