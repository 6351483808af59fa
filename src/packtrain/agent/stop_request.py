"""The request to stop: set once by SIGTERM, SIGINT, SIGUSR1 or a time limit, and checked by every thread that works.

SIGTERM ends the execution. SIGUSR1 announces that the pool will end it: Slurm sends it before the time limit.

Python runs a signal handler only in the main thread, between two bytecode instructions. A signal that arrives just
before the main thread waits for a program would be handled only after that program ends. The wakeup pipe receives the
signal at once, so every check also reads the pipe, in whichever thread it runs.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from types import FrameType

from packtrain.errors import FailedError

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


class StopRequest:
    """A request to stop the attempt. It is set once; the first reason counts.

    Args:
        announced_s: How long before the end of the execution SIGUSR1 announces it.
    """

    def __init__(self, announced_s: float = 0.0) -> None:
        self._announced_s = announced_s
        self._event = threading.Event()
        self._lock = threading.RLock()  # a signal handler may run while its own thread holds the lock
        self._error: FailedError | None = None
        self.requested_at: float | None = None  # by the monotonic clock
        self.deadline = 0.0  # monotonic time of the limit that a graceful request precedes; 0: none
        self.resume_in_place = True  # the job may resume on this machine; True also while there is no request
        self.graceful = False
        self.steps_finished = False
        self._signal_pipe: int | None = None

    def request(
        self, kind: str, detail: str, resume_in_place: bool = False, graceful: bool = False, deadline: float = 0.0
    ) -> None:
        """Request a stop.

        Args:
            kind: Failure kind of the request, "terminated" or "wall_time".
            detail: The reason, for the failure message.
            resume_in_place: The job may resume on this machine.
            graceful: Ask the steps to checkpoint and exit before `deadline`. Ignored once all steps have finished.
            deadline: When the limit is reached, by the monotonic clock; 0 if there is none.
        """
        with self._lock:
            if graceful and self.steps_finished:
                return
            if self._error is None:
                self._error, self.resume_in_place, self.graceful = FailedError(kind, detail), resume_in_place, graceful
                self.requested_at, self.deadline = time.monotonic(), deadline
            elif self.graceful and not graceful:  # the grace period starts now
                self.requested_at, self.deadline, self.graceful = time.monotonic(), 0.0, False
            self._event.set()

    def mark_steps_finished(self) -> None:
        """Record that all steps have finished, and withdraw a graceful request."""
        with self._lock:
            self.steps_finished = True
            if self.graceful:
                self._event.clear()
                self._error, self.requested_at, self.deadline = None, None, 0.0
                self.resume_in_place, self.graceful = True, False

    @property
    def is_requested(self) -> bool:
        self._read_signal_pipe()
        return self._event.is_set()

    @property
    def kind(self) -> str:
        """The failure kind of the request, "" if there is none."""
        return self._error.kind if self._error else ""

    def wait(self, timeout_s: float) -> bool:
        """Wait at most `timeout_s` seconds and return whether a stop is requested."""
        return self._event.wait(timeout_s) or self.is_requested

    def check(self) -> None:
        """Raise the FailedError of the request, if there is one."""
        self._read_signal_pipe()
        if self._error is not None:
            raise self._error

    def install_signal_handlers(self) -> None:
        """Let SIGTERM, SIGINT and SIGUSR1 request a stop. Call it in the main thread."""
        self._signal_pipe, write_end = os.pipe()
        for end in (self._signal_pipe, write_end):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        for number in _STOP_SIGNALS:
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None = None) -> None:
        if number == signal.SIGUSR1 and self._announced_s:
            deadline = time.monotonic() + self._announced_s
            self.request("terminated", "the pool announced the end of the job", graceful=True, deadline=deadline)
        else:
            self.request("terminated", f"the agent received {signal.Signals(number).name}")

    def _read_signal_pipe(self) -> None:
        if self._signal_pipe is None:
            return
        with suppress(BlockingIOError):
            for number in os.read(self._signal_pipe, 64):
                if number in _STOP_SIGNALS:
                    self._on_signal(number)
