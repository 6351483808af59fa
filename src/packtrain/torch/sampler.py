"""Decide which samples form which batch, from the seed and the epoch alone, so that training can resume mid-epoch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from packtrain.torch import distributed
from packtrain.torch.training_state import CheckpointError


class ResumableBatchSampler:
    """A new shuffled order of all samples in each epoch, split into batches and over the ranks of the training.

    The number of ranks changes neither the steps nor the samples of a batch, so a training may resume with more or
    fewer ranks. The batches of an epoch differ in size by at most one sample. Pass the sampler to the checkpoint
    (`Checkpoint(..., sampler=sampler)`): a batch number is only valid in the order in which it was counted.

    Args:
        num_samples: Number of samples in the dataset.
        batch_size: Maximum number of samples of a batch, over all ranks.
        seed: Decides the order, together with the epoch.
        shuffle: Whether to shuffle; otherwise samples come in the order of their numbers.
        rank_and_world_size: This process's rank and the number of ranks. Default: those of torch's process group.

    Raises:
        CheckpointError: The batches are too small for the number of ranks.
    """

    def __init__(
        self,
        num_samples: int,
        batch_size: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        rank_and_world_size: tuple[int, int] | None = None,
    ) -> None:
        self.num_samples, self.batch_size, self.seed, self._shuffle = num_samples, batch_size, seed, shuffle
        self._rank, self._world_size = rank_and_world_size or distributed.rank_and_world_size()
        if min(num_samples, batch_size) < 1 or num_samples // len(self) < self._world_size:
            raise CheckpointError(
                f"{num_samples} samples in batches of {batch_size} cannot be split over {self._world_size} processes: "
                "use larger batches or fewer processes"
            )

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        return -(-self.num_samples // self.batch_size)

    def samples_in_batch(self, batch: int) -> int:
        """Return the number of samples of a batch, over all ranks.

        Args:
            batch: The batch, counted from 0.
        """
        smaller, n_larger = divmod(self.num_samples, len(self))
        return smaller + (batch < n_larger)

    def batches(self, epoch: int, first_batch: int = 0) -> Iterator[Any]:
        """Yield this rank's share of each batch as a tensor of sample numbers.

        Args:
            epoch: The epoch, counted from 1.
            first_batch: The batch to start with, counted from 0.
        """
        import torch

        numbers = torch.arange(self.num_samples)
        if self._shuffle:
            numbers = torch.randperm(self.num_samples, generator=_seeded_generator(self.seed, epoch))
        for batch in torch.tensor_split(numbers, len(self))[first_batch:]:
            yield torch.tensor_split(batch, self._world_size)[self._rank]

    def generator(self, epoch: int, batch: int) -> Any:
        """Return a torch.Generator for this rank's share of a batch (random crops, flips), the same after a resume.

        Args:
            epoch: The epoch, counted from 1.
            batch: The batch, counted from 0.
        """
        return _seeded_generator(self.seed, epoch, batch, self._rank)

    def state_dict(self) -> dict[str, int]:
        """Return the settings that decide the order."""
        return {"num_samples": self.num_samples, "batch_size": self.batch_size, "seed": self.seed}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Check that a checkpoint was made in the same order.

        Args:
            state: The result of `state_dict`.

        Raises:
            CheckpointError: The checkpoint was made with other settings.
        """
        current = self.state_dict()
        changes = [
            f"{name} {state.get(name)}, now {value}" for name, value in current.items() if state.get(name) != value
        ]
        if changes:
            raise CheckpointError(
                f"the checkpoint was made with {' and '.join(changes)}: its position does not fit; "
                "resume with the old settings, or start in an empty output folder"
            )


def _seeded_generator(*seeds: int) -> Any:
    """Return a torch.Generator seeded by all numbers. Neighbouring numbers give unrelated generators."""
    import torch

    digest = hashlib.sha256(" ".join(map(str, seeds)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
