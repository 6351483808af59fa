"""Whether the processor is what limits reading, or waiting for a network. Pure: told what each piece took."""

from __future__ import annotations

_DECAY, _CPU_BOUND_SHARE = 0.95, 0.3  # the share: a moment in which others have the processor is no network
_LOCAL_CPU_BOUND_SHARE = (
    0.1  # of what a server on this machine gives: while it is waited for, it has the processor, or others have
)
_MIN_READS = 4  # pieces


class CpuBoundDetector:
    """`here`: the server is on this machine."""

    def __init__(self, is_local: bool) -> None:
        self._is_local = is_local
        self._cpu_s = self._elapsed_s = 0.0
        self._n_reads = 0

    def record_read(self, cpu_s: float, elapsed_s: float) -> None:
        self._cpu_s = _DECAY * self._cpu_s + cpu_s
        self._elapsed_s = _DECAY * self._elapsed_s + elapsed_s
        self._n_reads += 1

    @property
    def is_cpu_bound(self) -> bool:
        if self._n_reads < _MIN_READS:
            return self._is_local
        return self._cpu_s >= (_LOCAL_CPU_BOUND_SHARE if self._is_local else _CPU_BOUND_SHARE) * self._elapsed_s
