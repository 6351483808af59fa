"""The processes of one distributed training, and how they agree. A process alone agrees with itself."""

from __future__ import annotations

from typing import Any


class Ranks:
    """Every method but the properties must be called by all processes, in the same order."""

    def __init__(self) -> None:
        self.rank, self.world = rank_and_world()
        self._group: Any = None
        if self.world > 1:
            import torch.distributed as dist

            # Of its own, by way of the CPU: asking each step would otherwise stop the GPUs each step.
            self._group = dist.new_group(backend="gloo")

    @property
    def first(self) -> bool:
        return self.rank == 0

    def any(self, mine: bool) -> bool:
        """Whether it is so for one of them: the same answer everywhere."""
        if self._group is None:
            return mine
        import torch
        import torch.distributed as dist

        votes = torch.tensor([int(mine)])
        dist.all_reduce(votes, group=self._group)
        return bool(votes.item() > 0)

    def gathered(self, mine: Any) -> list[Any]:
        """Everybody's, by rank."""
        if self._group is None:
            return [mine]
        import torch.distributed as dist

        found: list[Any] = [None] * self.world
        dist.all_gather_object(found, mine, group=self._group)
        return found

    def from_first(self, mine: Any) -> Any:
        """What rank 0 has; the others may run where they do not see its files."""
        if self._group is None:
            return mine
        import torch.distributed as dist

        box = [mine if self.first else None]
        dist.broadcast_object_list(box, src=0, group=self._group)
        return box[0]


def rank_and_world() -> tuple[int, int]:
    """Of this process, in torch's process group; 0 of 1 without one."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1
