"""Exchange values between the processes (ranks) of a distributed training."""

from __future__ import annotations

from typing import Any


class RankGroup:
    """The ranks of one training. Without a process group there is one rank, and every method returns at once.

    All ranks must call the same methods in the same order.

    Attributes:
        rank: The number of this process, from 0.
        world_size: The number of processes.
    """

    def __init__(self) -> None:
        self.rank, self.world_size = rank_and_world_size()
        self._group: Any = None
        if self.world_size > 1:
            import torch.distributed as dist

            # A separate group on the CPU: a collective on the GPU would make the GPUs wait in every step.
            self._group = dist.new_group(backend="gloo")

    @property
    def is_rank_zero(self) -> bool:
        """Whether this process is rank 0, which writes the files."""
        return self.rank == 0

    def any_rank(self, value: bool) -> bool:
        """Return whether `value` is true on at least one rank; the result is the same on all ranks.

        Args:
            value: The value of this rank.
        """
        if self._group is None:
            return value
        import torch
        import torch.distributed as dist

        votes = torch.tensor([int(value)])
        dist.all_reduce(votes, group=self._group)
        return bool(votes.item() > 0)

    def all_gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks, by rank.

        Args:
            value: The value of this rank. Must be picklable.
        """
        if self._group is None:
            return [value]
        import torch.distributed as dist

        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value, group=self._group)
        return values

    def broadcast(self, value: Any) -> Any:
        """Return the value of rank 0. Other ranks may run on nodes that do not have its files.

        Args:
            value: The value on rank 0; ignored on other ranks.
        """
        if self._group is None:
            return value
        import torch.distributed as dist

        values = [value if self.is_rank_zero else None]
        dist.broadcast_object_list(values, src=0, group=self._group)
        return values[0]


def rank_and_world_size() -> tuple[int, int]:
    """Return the rank of this process and the number of ranks in torch's process group; (0, 1) without a group."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1
