"""What of the machine is free. Pure: take and give, nothing is started here."""

from __future__ import annotations

from dataclasses import dataclass, field

from packtrain.plan import Resources


@dataclass(frozen=True)
class Share:
    cpus: int
    memory_mb: int
    gpus: tuple[int, ...] = ()


@dataclass
class Slots:
    """A job that asks for more CPUs or memory than there are gets all of them, alone."""

    cpus: int
    memory_mb: int
    gpus: int = 0
    _taken: list[Share] = field(default_factory=list)

    def take(self, need: Resources) -> Share | None:
        """A share for the job, or None while there is no room."""
        cpus, memory = min(need.cpus, self.cpus), min(need.memory_mb, self.memory_mb)
        free = self._free_gpus()
        wanted = min(need.gpus, self.gpus)
        if cpus > self._free("cpus") or memory > self._free("memory_mb") or wanted > len(free):
            return None
        share = Share(cpus, memory, free[:wanted])
        self._taken.append(share)
        return share

    def give(self, share: Share) -> None:
        self._taken.remove(share)

    def _free(self, what: str) -> int:
        return int(getattr(self, what) - sum(getattr(share, what) for share in self._taken))

    def _free_gpus(self) -> tuple[int, ...]:
        taken = {gpu for share in self._taken for gpu in share.gpus}
        return tuple(gpu for gpu in range(self.gpus) if gpu not in taken)
