"""A per-thread hook that cancels blocking calls.

Code that waits on a socket cannot be interrupted from another thread. So it wakes up several times a second and calls
`check_cancelled`, which runs the check of the innermost `cancellation_scope` of the current thread. That check raises
to end the wait: because the user cancelled, or because the caller knows better than a fixed timeout that waiting
longer is useless.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")
CancelCheck = Callable[[], None]
"""Returns, or raises to cancel the operation that calls it."""


class TimeLimitError(OSError):
    """The time limit of a network operation passed, although data may still arrive."""


class _ThreadState(threading.local):
    check: CancelCheck = staticmethod(lambda: None)
    handles_read_timeout = False


_thread_state = _ThreadState()


@contextlib.contextmanager
def cancellation_scope(check: CancelCheck, handles_read_timeout: bool = False) -> Iterator[None]:
    """Call `check` several times a second from every blocking call that this thread makes inside the block.

    Args:
        check: Raises to cancel the call.
        handles_read_timeout: `check` also ends reads from a silent server, so the fixed read timeout does not apply.
    """
    before = _thread_state.check, _thread_state.handles_read_timeout
    _thread_state.check, _thread_state.handles_read_timeout = check, handles_read_timeout
    try:
        yield
    finally:
        _thread_state.check, _thread_state.handles_read_timeout = before


@contextlib.contextmanager
def time_limit(get_ends_at: Callable[[], float]) -> Iterator[None]:
    """Raise TimeLimitError from blocking calls inside the block after the time `get_ends_at`, even if data arrives."""
    outer_check = _thread_state.check

    def check() -> None:
        outer_check()
        if time.monotonic() > get_ends_at():
            raise TimeLimitError("the time limit passed")

    with cancellation_scope(check, _thread_state.handles_read_timeout):
        yield


def inherit_scope(task: Callable[[], T]) -> Callable[[], T]:
    """Return `task` for another thread, where it runs in the scope of this thread."""
    check, handles_read_timeout = _thread_state.check, _thread_state.handles_read_timeout

    def run() -> T:
        with cancellation_scope(check, handles_read_timeout):
            return task()

    return run


def check_cancelled() -> None:
    """Run the check of this thread's innermost scope; does nothing outside of one."""
    _thread_state.check()


def scope_handles_read_timeout() -> bool:
    """Return whether this thread's scope ends silent reads itself."""
    return _thread_state.handles_read_timeout
