"""Whether the program was asked to leave: by SIGTERM, by the agent's file, or by the wall clock."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType
from typing import Any

_LEAST_MARGIN_S = 5.0


class Stopping:
    """Listens for SIGTERM until `close`, if made in the main thread; an earlier handler is still called."""

    def __init__(self) -> None:
        self._told = False
        self._before: Any = None
        self._listening = threading.current_thread() is threading.main_thread()
        if self._listening:
            self._before = signal.signal(signal.SIGTERM, self._hear)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self._told = True
        if callable(self._before):
            self._before(number, frame)

    def asked(self, save_takes_s: float) -> bool:
        """Once true, always true."""
        self._told = self._told or _file_says_so() or _time_is_up(save_takes_s)
        return self._told

    def close(self) -> None:
        """Leave the signal as it was found, unless somebody else has taken it meanwhile."""
        if self._listening and signal.getsignal(signal.SIGTERM) == self._hear:
            signal.signal(signal.SIGTERM, signal.SIG_DFL if self._before is None else self._before)
        self._listening = False


def _file_says_so() -> bool:
    return os.path.exists(os.environ.get("PACKTRAIN_STOP", ""))  # noqa: PTH110 (each step asks: no Path objects)


def _time_is_up(save_takes_s: float) -> bool:
    """Early enough that a save still fits, also one that takes twice as long as any before."""
    try:
        deadline = float(os.environ["PACKTRAIN_DEADLINE"])
    except (KeyError, ValueError):
        return False
    return time.time() >= deadline - max(_LEAST_MARGIN_S, 2 * save_takes_s)
