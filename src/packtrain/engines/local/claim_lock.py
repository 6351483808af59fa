"""Whether an agent lives: it holds a lock on its claim file, which the kernel frees when it dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
from pathlib import Path

from packtrain.plan import AttemptFolder


def exists(attempt_folder: AttemptFolder) -> bool:
    return attempt_folder.claim.exists()


def is_held(attempt_folder: AttemptFolder) -> bool:
    """True while the agent, or the guard that ends its steps, is alive."""
    try:
        with open(attempt_folder.claim, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return holder_pid(attempt_folder) is not None
    return False


def holder_pid(attempt_folder: AttemptFolder) -> int | None:
    """The agent's process id, the first word of its claim; None where it cannot be told for certain."""
    try:
        pid = int(attempt_folder.claim.read_text(encoding="utf-8").split()[0])
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError, IndexError):
        return None
    return pid if os.fsencode(attempt_folder.root) in words else None


def send_signal(pid: int, signum: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signum)
