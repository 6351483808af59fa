"""Whether an agent lives: it holds a lock on its claim file, which the kernel frees when it dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import time
from pathlib import Path
from typing import BinaryIO

from packtrain.plan import AttemptFolder

_LOCKING_S = 5.0  # more than any agent needs between making its claim and locking it


def exists(attempt: AttemptFolder) -> bool:
    return attempt.claim.exists()


def is_held(attempt: AttemptFolder) -> bool:
    """True while the agent, or the guard that ends its steps, is alive."""
    try:
        with open(attempt.claim, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return _is_being_locked(file)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return holder(attempt) is not None


def _is_being_locked(claim: BinaryIO) -> bool:
    """An agent writes into its claim once it has locked it; before, the claim is empty."""
    about = os.fstat(claim.fileno())
    return about.st_size == 0 and time.time() - about.st_mtime < _LOCKING_S


def holder(attempt: AttemptFolder) -> int | None:
    """The agent's process id, the first number in its claim; None where it cannot be told for certain."""
    try:
        found = re.search(rb"\d+", attempt.claim.read_bytes())
        pid = int(found[0]) if found else 0
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    return pid if os.fsencode(attempt.root) in words else None


def send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
