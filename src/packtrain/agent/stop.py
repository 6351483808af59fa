"""When to leave: TERM, INT or a limit set it once; whoever works asks it."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType

from packtrain.errors import FailedError


class Stop:
    """Set once. The first reason counts."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._error: FailedError | None = None
        self.since: float | None = None  # by the monotonic clock
        self.here = True  # whether the job may go on in this place; True also while there is no request
        self._gentle = False

    def request(self, kind: str, detail: str, here: bool = False, gentle: bool = False) -> None:
        """`gentle`: the steps are asked to leave, ahead of time; who has come to the end of them goes on."""
        self._gentle = gentle and (self._error is None or self._gentle)
        if self._error is None:
            self._error, self.since, self.here = FailedError(kind, detail), time.monotonic(), here
        self._event.set()

    def steps_are_done(self) -> None:
        """They came to their end: a gentle request has no meaning any more."""
        if self._gentle:
            self._event.clear()
            self._error, self.since, self.here, self._gentle = None, None, True, False

    @property
    def requested(self) -> bool:
        return self._event.is_set()

    @property
    def kind(self) -> str:
        """Of the request; "" while there is none."""
        return self._error.kind if self._error else ""

    def wait(self, timeout: float) -> bool:
        """Wait at most so long; whether a stop was requested."""
        return self._event.wait(timeout)

    def check(self) -> None:
        """Raises the FailedError of the request, if there was one."""
        if self._error is not None:
            raise self._error

    def listen(self) -> None:
        """Let TERM and INT request a stop. Main thread only."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.request("terminated", f"the agent received {signal.Signals(number).name}")
