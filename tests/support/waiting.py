"""Wait for something that another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

TIMEOUT_S = 90  # generous, for a machine under load; a passing test never waits this long
_T = TypeVar("_T")


def wait_until(condition: Callable[[], _T], timeout_s: float = TIMEOUT_S, interval_s: float = 0.01) -> _T:
    """Call `condition` until it returns something true, and return that."""
    deadline = time.monotonic() + timeout_s
    while True:
        result = condition()
        if result:
            return result
        assert time.monotonic() < deadline, f"the condition did not become true within {timeout_s} s"
        time.sleep(interval_s)
