"""Who runs an attempt: the process that made its claim file, and no other.

The lock tells from outside whether the agent or its guard still lives; the file alone tells that
somebody once started. Both survive a crash of whoever asks.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from pathlib import Path


def take(path: Path) -> int | None:
    """The locked file's descriptor, to be kept open; None if somebody was here before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        claim = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except FileExistsError:
        return None
    with suppress(OSError):  # a file system without locks: the probe says so
        fcntl.flock(claim, fcntl.LOCK_EX)
    os.write(claim, json.dumps({"pid": os.getpid(), "host": os.uname().nodename}).encode() + b"\n")
    return claim
