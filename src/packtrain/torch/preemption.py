"""Detect that the program must stop: SIGTERM, the agent's stop file, or a near deadline."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType
from typing import Any

_MIN_MARGIN_S = 5.0


class PreemptionMonitor:
    """Watches for a stop request.

    Installs a handler of SIGTERM until `close` if it is created in the main thread. An earlier handler is still called.
    """

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
        """Return whether the program must save and exit. Once true, it stays true.

        Args:
            save_duration_s: How long a save takes, in seconds. The deadline is near when twice this time is left.
        """
        self._stop_requested = self._stop_requested or _stop_file_exists() or _is_deadline_near(save_duration_s)
        return self._stop_requested

    def close(self) -> None:
        """Restore the earlier handler of SIGTERM, unless the program has installed another one since."""
        if self._is_installed and signal.getsignal(signal.SIGTERM) == self._on_sigterm:
            signal.signal(signal.SIGTERM, signal.SIG_DFL if self._previous_handler is None else self._previous_handler)
        self._is_installed = False


def _stop_file_exists() -> bool:
    return os.path.exists(os.environ.get("PACKTRAIN_STOP", ""))  # noqa: PTH110 (called in each step: no Path objects)


def _is_deadline_near(save_duration_s: float) -> bool:
    """Return whether $PACKTRAIN_DEADLINE leaves less than twice the longest save."""
    try:
        deadline = float(os.environ["PACKTRAIN_DEADLINE"])
    except (KeyError, ValueError):
        return False
    return time.time() >= deadline - max(_MIN_MARGIN_S, 2 * save_duration_s)
