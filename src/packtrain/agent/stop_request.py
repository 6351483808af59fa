"""When to leave: TERM, INT or a limit set it once; whoever works asks it.

Python calls a handler in the main thread only, between two of its own operations. A signal that comes just before that
thread waits for a program would be heard at the program's end; but the pipe of `listen` has it at once, and any thread
that asks looks there.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from types import FrameType

from packtrain.errors import FailedError

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stop:
    """Set once. The first reason counts."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.RLock()  # a signal's handler may come while its own thread holds it
        self._error: FailedError | None = None
        self.since: float | None = None  # by the monotonic clock
        self.by = 0.0  # the same clock: the limit that a gentle request is ahead of
        self.here = True  # whether the job may go on in this place; True also while there is no request
        self.gentle = False
        self.past_steps = False
        self._pipe: int | None = None

    def request(self, kind: str, detail: str, here: bool = False, gentle: bool = False, by: float = 0.0) -> None:
        """`gentle`: the steps are asked to leave, ahead of time (of `by`, if there is a limit); who has come to the end
        of them goes on, and once they are done it means nothing."""
        with self._lock:
            if gentle and self.past_steps:
                return
            if self._error is None:
                self._error, self.here, self.gentle = FailedError(kind, detail), here, gentle
                self.since, self.by = time.monotonic(), by
            elif self.gentle and not gentle:  # from now on time is short
                self.since, self.by, self.gentle = time.monotonic(), 0.0, False
            self._event.set()

    def steps_are_done(self) -> None:
        """They came to their end: a gentle request has no meaning any more."""
        with self._lock:
            self.past_steps = True
            if self.gentle:
                self._event.clear()
                self._error, self.since, self.by, self.here, self.gentle = None, None, 0.0, True, False

    @property
    def requested(self) -> bool:
        self._hear()
        return self._event.is_set()

    @property
    def kind(self) -> str:
        """Of the request; "" while there is none."""
        return self._error.kind if self._error else ""

    def wait(self, timeout: float) -> bool:
        """Wait at most so long; whether a stop was requested."""
        return self._event.wait(timeout) or self.requested

    def check(self) -> None:
        """Raises the FailedError of the request, if there was one."""
        self._hear()
        if self._error is not None:
            raise self._error

    def listen(self) -> None:
        """Let TERM and INT request a stop. Main thread only."""
        self._pipe, entry = os.pipe()
        for end in (self._pipe, entry):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(entry, warn_on_full_buffer=False)
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None = None) -> None:
        self.request("terminated", f"the agent received {signal.Signals(number).name}")

    def _hear(self) -> None:
        if self._pipe is None:
            return
        with suppress(BlockingIOError):
            for number in os.read(self._pipe, 64):
                if number in _SIGNALS:
                    self._on_signal(number)
