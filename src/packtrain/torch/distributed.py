"""The processes of one distributed training, and how they agree. A process alone agrees with itself."""

from __future__ import annotations

from typing import Any


class RankGroup:
    """Every method but the properties must be called by all processes, in the same order."""

    def __init__(self) -> None:
        self.rank, self.world_size = rank_and_world_size()
        self._group: Any = None
        if self.world_size > 1:
            import torch.distributed as dist

            # Of its own, by way of the CPU: asking each step would otherwise stop the GPUs each step.
            self._group = dist.new_group(backend="gloo")

    @property
    def is_rank_zero(self) -> bool:
        return self.rank == 0

    def any_rank(self, value: bool) -> bool:
        """Whether it is so for one of them: the same answer everywhere."""
        if self._group is None:
            return value
        import torch
        import torch.distributed as dist

        votes = torch.tensor([int(value)])
        dist.all_reduce(votes, group=self._group)
        return bool(votes.item() > 0)

    def all_gather(self, value: Any) -> list[Any]:
        """Everybody's, by rank."""
        if self._group is None:
            return [value]
        import torch.distributed as dist

        found: list[Any] = [None] * self.world_size
        dist.all_gather_object(found, value, group=self._group)
        return found

    def broadcast(self, value: Any) -> Any:
        """What rank 0 has; the others may run where they do not see its files."""
        if self._group is None:
            return value
        import torch.distributed as dist

        box = [value if self.is_rank_zero else None]
        dist.broadcast_object_list(box, src=0, group=self._group)
        return box[0]


def rank_and_world_size() -> tuple[int, int]:
    """Of this process, in torch's process group; 0 of 1 without one."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1
