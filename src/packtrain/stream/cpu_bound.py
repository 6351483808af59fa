"""Whether the processor is what limits reading, or waiting for a network. Pure: told what each piece took."""

from __future__ import annotations

_OLD_SHARE, _BUSY = 0.95, 0.3  # the share: a moment in which others have the processor is no network
_BUSY_HERE = 0.1  # of what a server on this machine gives: while it is waited for, it has the processor, or others have
_KNOWN_AFTER = 4  # pieces


class Effort:
    """`here`: the server is on this machine."""

    def __init__(self, here: bool) -> None:
        self._here = here
        self._cpu_s = self._seconds = 0.0
        self._count = 0

    def told(self, cpu_s: float, seconds: float) -> None:
        self._cpu_s = _OLD_SHARE * self._cpu_s + cpu_s
        self._seconds = _OLD_SHARE * self._seconds + seconds
        self._count += 1

    @property
    def busy(self) -> bool:
        if self._count < _KNOWN_AFTER:
            return self._here
        return self._cpu_s >= (_BUSY_HERE if self._here else _BUSY) * self._seconds
