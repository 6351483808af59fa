"""Allocates the CPUs, memory and GPUs of this machine to attempts. Pure: nothing is started here."""

from __future__ import annotations

from dataclasses import dataclass, field

from packtrain.plan import Resources


@dataclass(frozen=True)
class SlotAllocation:
    """The part of the machine that one attempt uses."""

    cpus: int
    memory_mb: int
    gpus: tuple[int, ...] = ()  # indexes into the list of this machine's GPUs


@dataclass
class SlotAllocator:
    """The resources of the machine and their allocations.

    A job that requests more CPUs or memory than the machine has gets all of them, and runs alone.
    """

    cpus: int
    memory_mb: int
    gpus: int = 0
    _allocations: list[SlotAllocation] = field(default_factory=list)

    def allocate(self, requested: Resources) -> SlotAllocation | None:
        """Allocate resources, or return None while not enough of them are free."""
        cpus, memory = min(requested.cpus, self.cpus), min(requested.memory_mb, self.memory_mb)
        free_gpus = self._available_gpus()
        n_gpus = min(requested.gpus, self.gpus)
        if cpus > self._available("cpus") or memory > self._available("memory_mb") or n_gpus > len(free_gpus):
            return None
        allocation = SlotAllocation(cpus, memory, free_gpus[:n_gpus])
        self._allocations.append(allocation)
        return allocation

    def release(self, allocation: SlotAllocation) -> None:
        """Free the resources of an allocation."""
        self._allocations.remove(allocation)

    def _available(self, resource: str) -> int:
        return int(getattr(self, resource) - sum(getattr(used, resource) for used in self._allocations))

    def _available_gpus(self) -> tuple[int, ...]:
        used_gpus = {gpu for used in self._allocations for gpu in used.gpus}
        return tuple(gpu for gpu in range(self.gpus) if gpu not in used_gpus)
