"""Which samples come when: decided by the seed and the epoch alone, so that a training can go on in mid-epoch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from packtrain.torch import distributed
from packtrain.torch.training_state import CheckpointError


class ResumableBatchSampler:
    """A new shuffled order of all samples each epoch, in batches, each split over the processes of the training.

    `batch_size` is that of the whole batch, so the number of processes changes neither steps nor samples, and a
    training may go on with more or fewer of them. All batches of an epoch are equally large, give or take one sample,
    and at most `batch_size`. Give it to the Checkpoint (`order=order`): a position only means something in the order
    that it was counted in.
    """

    def __init__(
        self,
        num_samples: int,
        batch_size: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        rank_and_world_size: tuple[int, int] | None = None,  # default: of torch's process group
    ) -> None:
        self.num_samples, self.batch_size, self.seed, self._shuffle = num_samples, batch_size, seed, shuffle
        self._rank, self._world_size = rank_and_world_size or distributed.rank_and_world_size()
        if min(num_samples, batch_size) < 1 or num_samples // len(self) < self._world_size:
            raise CheckpointError(
                f"{num_samples} samples in batches of {batch_size} cannot be split over {self._world_size} processes: "
                "take larger batches, or fewer processes"
            )

    def __len__(self) -> int:
        """Batches of an epoch."""
        return -(-self.num_samples // self.batch_size)

    def samples_in_batch(self, batch: int) -> int:
        """Samples of the whole batch, over all processes; `batch` counts from 0."""
        least, more = divmod(self.num_samples, len(self))
        return least + (batch < more)

    def batches(self, epoch: int, first_batch: int = 0) -> Iterator[Any]:
        """This process's share of each batch from `first` on: tensors of sample numbers."""
        import torch

        numbers = torch.arange(self.num_samples)
        if self._shuffle:
            numbers = torch.randperm(self.num_samples, generator=_seeded_generator(self.seed, epoch))
        for whole in torch.tensor_split(numbers, len(self))[first_batch:]:
            yield torch.tensor_split(whole, self._world_size)[self._rank]

    def generator(self, epoch: int, batch: int) -> Any:
        """Random numbers for this process's share of a batch (crops, mirrors): the same after a resume."""
        return _seeded_generator(self.seed, epoch, batch, self._rank)

    def state_dict(self) -> dict[str, int]:
        return {"samples": self.num_samples, "batch_size": self.batch_size, "seed": self.seed}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Raises CheckpointError if the checkpoint was made in another order."""
        mine = self.state_dict()
        other = [f"{name} {state.get(name)}, now {value}" for name, value in mine.items() if state.get(name) != value]
        if other:
            raise CheckpointError(
                f"the checkpoint was made with {' and '.join(other)}: its position does not fit; "
                "go on with the old settings, or start in an empty output folder"
            )


def _seeded_generator(*seeds: int) -> Any:
    """Seeded by all the numbers; neighbouring ones give unrelated generators."""
    import torch

    digest = hashlib.sha256(" ".join(map(str, seeds)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
