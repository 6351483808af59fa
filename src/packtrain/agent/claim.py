"""Who runs an attempt: the process that made its claim file, and no other.

The lock tells from outside whether the agent or its guard still lives; the file alone tells that
somebody once started. Both survive a crash of whoever asks.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Optional


def take(path: Path) -> Optional[int]:
    """The locked file's descriptor, to be kept open; None if somebody was here before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        claim = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except FileExistsError:
        return None
    with suppress(OSError):  # a file system without locks: the probe says so
        fcntl.flock(claim, fcntl.LOCK_EX)
    os.write(claim, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode() + b"\n")
    return claim
