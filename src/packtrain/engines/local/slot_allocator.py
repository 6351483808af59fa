"""What of the machine is free. Pure: take and give, nothing is started here."""

from __future__ import annotations

from dataclasses import dataclass, field

from packtrain.plan import Resources


@dataclass(frozen=True)
class SlotAllocation:
    cpus: int
    memory_mb: int
    gpus: tuple[int, ...] = ()


@dataclass
class SlotAllocator:
    """A job that asks for more CPUs or memory than there are gets all of them, alone."""

    cpus: int
    memory_mb: int
    gpus: int = 0
    _allocations: list[SlotAllocation] = field(default_factory=list)

    def allocate(self, requested: Resources) -> SlotAllocation | None:
        """A share for the job, or None while there is no room."""
        cpus, memory = min(requested.cpus, self.cpus), min(requested.memory_mb, self.memory_mb)
        free = self._available_gpus()
        wanted = min(requested.gpus, self.gpus)
        if cpus > self._available("cpus") or memory > self._available("memory_mb") or wanted > len(free):
            return None
        share = SlotAllocation(cpus, memory, free[:wanted])
        self._allocations.append(share)
        return share

    def release(self, allocation: SlotAllocation) -> None:
        self._allocations.remove(allocation)

    def _available(self, resource: str) -> int:
        return int(getattr(self, resource) - sum(getattr(share, resource) for share in self._allocations))

    def _available_gpus(self) -> tuple[int, ...]:
        taken = {gpu for share in self._allocations for gpu in share.gpus}
        return tuple(gpu for gpu in range(self.gpus) if gpu not in taken)
