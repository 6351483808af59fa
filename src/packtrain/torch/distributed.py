"""Exchange values between the processes (ranks) of a distributed training."""

from __future__ import annotations

import os
from typing import Any

from packtrain.errors import UsageError


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

    return (dist.get_rank(), dist.get_world_size()) if _has_process_group() else (0, 1)


def _has_process_group() -> bool:
    import torch.distributed as dist

    return dist.is_available() and dist.is_initialized()


def resolve_rank(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Return the rank of this process and the number of ranks, for splitting samples.

    Args:
        rank: The rank if the program passes it; None: use torch's process group.
        world_size: The number of ranks, likewise.

    Raises:
        UsageError: There are several processes, but no process group yet.
    """
    if rank is not None and world_size is not None:
        if not 0 <= rank < world_size:
            raise UsageError(f"rank must be from 0 to {world_size - 1} with world_size {world_size}, not {rank}")
        return rank, world_size
    if rank is not None or world_size is not None:
        raise UsageError("pass both `rank` and `world_size`, or neither")
    found, variable = rank_and_world_size(), os.environ.get("WORLD_SIZE", "1")
    if not _has_process_group() and variable.isdigit() and int(variable) > 1:
        raise UsageError(
            f"there are {variable} processes (WORLD_SIZE), but no process group yet: each would get all samples; "
            "call init_process_group first, or pass `rank` and `world_size`"
        )
    return found
