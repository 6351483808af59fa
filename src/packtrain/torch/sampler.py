"""Decide which samples form which batch, from the seed and the epoch alone, so that training can resume mid-epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sized
from typing import Any

import torch
from torch.utils.data import Sampler

from packtrain.errors import UsageError
from packtrain.stream.cursor import describe_changes
from packtrain.torch.distributed import resolve_rank
from packtrain.torch.rng_state import seeded_generator
from packtrain.torch.training_state import CheckpointError


class ResumableBatchSampler(Sampler[list[int]]):
    """The batches of this process: a new shuffled order of all samples in each epoch, split over all processes.

        sampler = ResumableBatchSampler(dataset, batch_size=64, seed=1)
        loader = DataLoader(dataset, batch_sampler=sampler, generator=torch.Generator())

    A DataLoader draws a random number whenever an epoch starts or resumes. With a generator of its own, it does not
    change the random numbers of the training (dropout), which therefore resumes exactly.
    Every sample comes once per epoch, and the batches of an epoch differ in size by at most one sample. Training may
    resume with more or fewer processes if `batch_size` times their number stays the same: then no step changes.

    Args:
        num_samples: The number of samples, or the dataset.
        batch_size: Maximum number of samples of a batch of one process.
        seed: Decides the order, together with the epoch.
        shuffle: Whether to shuffle; otherwise samples come in the order of their numbers.
        drop_last: Whether all batches have exactly `batch_size` samples; samples that fill no batch are dropped.
        rank: The number of this process, from 0. Default: that of torch's process group.
        world_size: The number of processes. Default: that of torch's process group.

    Attributes:
        epoch: The current epoch, counted from 0.
        first_batch: The batch with which the next iteration starts, counted from 0; not 0 in a resumed epoch.

    Raises:
        UsageError: The samples cannot be split over the processes.
    """

    def __init__(
        self,
        num_samples: int | Sized,
        batch_size: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        self._rank, self._world_size = resolve_rank(rank, world_size)
        self.num_samples = len(num_samples) if isinstance(num_samples, Sized) else int(num_samples)
        self.batch_size, self.seed, self.shuffle, self.drop_last = batch_size, seed, shuffle, drop_last
        self.epoch = self.first_batch = 0
        self._batches_drawn = 0  # in the current epoch, including those before `first_batch`
        if min(self.num_samples, batch_size) < 1 or not len(self) or self._smallest_batch() < self._world_size:
            raise UsageError(
                f"{self.num_samples} samples in batches of {batch_size} cannot be split over {self._world_size} "
                "processes: use other batches or fewer processes"
            )

    def set_epoch(self, epoch: int) -> None:
        """Start an epoch at its first batch, or where training resumes if `load_state_dict` restored this epoch.

        Args:
            epoch: The epoch, counted from 0.
        """
        if epoch != self.epoch:
            self.epoch, self.first_batch, self._batches_drawn = epoch, 0, 0

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch."""
        global_batch_size = self.batch_size * self._world_size
        return self.num_samples // global_batch_size if self.drop_last else -(-self.num_samples // global_batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the sample numbers of each batch of this process. The next iteration starts at the first batch."""
        first, self.first_batch = self.first_batch, 0
        numbers = torch.arange(self.num_samples)
        if self.shuffle:
            numbers = torch.randperm(self.num_samples, generator=seeded_generator(self.seed, self.epoch))
        if self.drop_last:
            numbers = numbers[: len(self) * self.batch_size * self._world_size]
        for batch, all_numbers in enumerate(torch.tensor_split(numbers, len(self))[first:], first):
            self._batches_drawn = batch + 1
            yield torch.tensor_split(all_numbers, self._world_size)[self._rank].tolist()

    def samples_in_batch(self, batch: int) -> int:
        """Return the number of samples of a batch over all processes.

        Args:
            batch: The batch, counted from 0.
        """
        if self.drop_last:
            return self.batch_size * self._world_size
        smaller, n_larger = divmod(self.num_samples, len(self))
        return smaller + (batch < n_larger)

    def generator(self, epoch: int, batch: int) -> Any:
        """Return a torch.Generator for a batch of this process (random crops, flips), the same after a resume.

        Args:
            epoch: The epoch, counted from 0.
            batch: The batch, counted from 0.
        """
        return seeded_generator(self.seed, epoch, batch, self._rank)

    def state_dict(self) -> dict[str, Any]:
        """Return the settings that decide the order, the epoch, and the number of batches that were drawn from it.

        The workers of a DataLoader draw batches before the training receives them. `Checkpoint.save` therefore
        replaces `batch` by the number of batches that the training has completed.
        """
        return {**self._order_settings(), "epoch": self.epoch, "batch": self._batches_drawn}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume at a saved position.

        Args:
            state: The result of `state_dict`.

        Raises:
            CheckpointError: The position was counted with other settings.
        """
        changes = describe_changes(state, self._order_settings())
        if changes:
            raise CheckpointError(
                f"the checkpoint was made with {changes}: its position does not fit; "
                "resume with the old settings, or start in an empty output folder"
            )
        self.epoch = state["epoch"]
        self.first_batch = self._batches_drawn = state["batch"]

    def _smallest_batch(self) -> int:
        return self.samples_in_batch(len(self) - 1)

    def _order_settings(self) -> dict[str, Any]:
        return {
            "num_samples": self.num_samples,
            "global_batch_size": self.batch_size * self._world_size,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
        }
