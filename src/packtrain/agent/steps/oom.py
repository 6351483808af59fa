"""Whether the kernel killed for memory: the counters of the control groups that this process is in."""

from __future__ import annotations

import re
from pathlib import Path

_OOM_KILL_COUNTER = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)
# By the controllers named in /proc/self/cgroup: version 2 names none.
_COUNTER_FILES = {"": "sys/fs/cgroup{}/memory.events", "memory": "sys/fs/cgroup/memory{}/memory.oom_control"}


def count_oom_kills(root: Path = Path("/")) -> int:
    """How many processes were killed so far; 0 where nobody counts."""
    lines = _read_text(root / "proc/self/cgroup").splitlines()
    entries = (line.split(":", 2)[1:] for line in lines if line.count(":") >= 2)
    counts = [
        _read_counter(root, _COUNTER_FILES[kind], path.rstrip("/")) for kind, path in entries if kind in _COUNTER_FILES
    ]
    return sum(counts)


def _read_counter(root: Path, file: str, path: str) -> int:
    # In a container the path may be the host's; the counter is then at the top.
    text = _read_text(root / file.format(path)) or _read_text(root / file.format(""))
    return sum(int(count) for count in _OOM_KILL_COUNTER.findall(text))


def _read_text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
