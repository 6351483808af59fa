"""Whether the program was asked to leave: by SIGTERM, by the agent's file, or by the wall clock."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType
from typing import Any

_MIN_MARGIN_S = 5.0


class PreemptionMonitor:
    """Listens for SIGTERM until `close`, if made in the main thread; an earlier handler is still called."""

    def __init__(self) -> None:
        self._stop_requested = False
        self._previous_handler: Any = None
        self._is_installed = threading.current_thread() is threading.main_thread()
        if self._is_installed:
            self._previous_handler = signal.signal(signal.SIGTERM, self._on_sigterm)

    def _on_sigterm(self, signum: int, frame: FrameType | None) -> None:
        self._stop_requested = True
        if callable(self._previous_handler):
            self._previous_handler(signum, frame)

    def is_stop_requested(self, save_duration_s: float) -> bool:
        """Once true, always true."""
        self._stop_requested = self._stop_requested or _stop_file_exists() or _is_deadline_near(save_duration_s)
        return self._stop_requested

    def close(self) -> None:
        """Leave the signal as it was found, unless somebody else has taken it meanwhile."""
        if self._is_installed and signal.getsignal(signal.SIGTERM) == self._on_sigterm:
            signal.signal(signal.SIGTERM, signal.SIG_DFL if self._previous_handler is None else self._previous_handler)
        self._is_installed = False


def _stop_file_exists() -> bool:
    return os.path.exists(os.environ.get("PACKTRAIN_STOP", ""))  # noqa: PTH110 (each step asks: no Path objects)


def _is_deadline_near(save_duration_s: float) -> bool:
    """Early enough that a save still fits, also one that takes twice as long as any before."""
    try:
        deadline = float(os.environ["PACKTRAIN_DEADLINE"])
    except (KeyError, ValueError):
        return False
    return time.time() >= deadline - max(_MIN_MARGIN_S, 2 * save_duration_s)
