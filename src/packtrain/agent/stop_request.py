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

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """Set once. The first reason counts."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.RLock()  # a signal's handler may come while its own thread holds it
        self._error: FailedError | None = None
        self.requested_at: float | None = None  # by the monotonic clock
        self.deadline = 0.0  # the same clock: the limit that a gentle request is ahead of
        self.resume_in_place = True  # whether the job may go on in this place; True also while there is no request
        self.graceful = False
        self.steps_finished = False
        self._signal_pipe: int | None = None

    def request(
        self, kind: str, detail: str, resume_in_place: bool = False, graceful: bool = False, deadline: float = 0.0
    ) -> None:
        """`gentle`: the steps are asked to leave, ahead of time (of `by`, if there is a limit); who has come to the end
        of them goes on, and once they are done it means nothing."""
        with self._lock:
            if graceful and self.steps_finished:
                return
            if self._error is None:
                self._error, self.resume_in_place, self.graceful = FailedError(kind, detail), resume_in_place, graceful
                self.requested_at, self.deadline = time.monotonic(), deadline
            elif self.graceful and not graceful:  # from now on time is short
                self.requested_at, self.deadline, self.graceful = time.monotonic(), 0.0, False
            self._event.set()

    def mark_steps_finished(self) -> None:
        """They came to their end: a gentle request has no meaning any more."""
        with self._lock:
            self.steps_finished = True
            if self.graceful:
                self._event.clear()
                self._error, self.requested_at, self.deadline, self.resume_in_place, self.graceful = (
                    None,
                    None,
                    0.0,
                    True,
                    False,
                )

    @property
    def is_requested(self) -> bool:
        self._read_signal_pipe()
        return self._event.is_set()

    @property
    def kind(self) -> str:
        """Of the request; "" while there is none."""
        return self._error.kind if self._error else ""

    def wait(self, timeout_s: float) -> bool:
        """Wait at most so long; whether a stop was requested."""
        return self._event.wait(timeout_s) or self.is_requested

    def check(self) -> None:
        """Raises the FailedError of the request, if there was one."""
        self._read_signal_pipe()
        if self._error is not None:
            raise self._error

    def install_signal_handlers(self) -> None:
        """Let TERM and INT request a stop. Main thread only."""
        self._signal_pipe, entry = os.pipe()
        for end in (self._signal_pipe, entry):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(entry, warn_on_full_buffer=False)
        for number in _STOP_SIGNALS:
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None = None) -> None:
        self.request("terminated", f"the agent received {signal.Signals(number).name}")

    def _read_signal_pipe(self) -> None:
        if self._signal_pipe is None:
            return
        with suppress(BlockingIOError):
            for number in os.read(self._signal_pipe, 64):
                if number in _STOP_SIGNALS:
                    self._on_signal(number)
