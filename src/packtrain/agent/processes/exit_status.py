"""The way a program ended: as a message, a shell's status or an exception, and whether the kernel killed for memory."""

from __future__ import annotations

import re
import signal
from pathlib import Path

from packtrain.errors import FailedError

_SIGNAL_STATUS_BASE = 128  # a shell's status for a program ended by a signal: 128 + the signal's number
_SIGKILL_HINT = "often a sign of too little memory"
_OOM_KILL_COUNTER = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)
# By the controllers named in /proc/self/cgroup; version 2 names none.
_OOM_COUNTER_FILES = {"": "sys/fs/cgroup{}/memory.events", "memory": "sys/fs/cgroup/memory{}/memory.oom_control"}


class StepError(FailedError):
    """A step failed. `status` is the DEEPSQUARE_ERROR_CODE of its `catch` steps."""

    def __init__(self, kind: str, detail: str, status: int) -> None:
        super().__init__(kind, detail)
        self.status = status


class CheckpointExit(StepError):
    """A step's program saved a checkpoint and exited on purpose (with `checkpoint.exitCode`, mostly 85)."""


def is_checkpoint_exit(error: BaseException) -> bool:
    """Return whether a step saved a checkpoint and exited, even if a stop request replaced that error."""
    return any(isinstance(e, CheckpointExit) for e in (error, error.__context__))


def to_shell_status(exit_code: int) -> int:
    """Convert an exit code, or minus the number of a signal, to the status that a shell reports."""
    return exit_code if exit_code >= 0 else _SIGNAL_STATUS_BASE - exit_code


def describe_exit(exit_code: int) -> str:
    """Return the predicate of a sentence that begins with `step "train"`."""
    if exit_code < 0:
        name = _signal_name(-exit_code)
        return f"was killed by signal {name}" + (f", {_SIGKILL_HINT}" if name == "SIGKILL" else "")
    if exit_code == _SIGNAL_STATUS_BASE + signal.SIGKILL:
        return f"ended with exit code {exit_code}: a program was killed by signal SIGKILL, {_SIGKILL_HINT}"
    return f"ended with exit code {exit_code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return str(number)


def count_oom_kills(root: Path = Path("/")) -> int:
    """Return how many processes of this process's cgroups the kernel killed for memory; 0 where it does not count.

    Args:
        root: Contains `proc` and `sys`; another folder in tests.
    """
    lines = _read_text(root / "proc/self/cgroup").splitlines()
    entries = (line.split(":", 2)[1:] for line in lines if line.count(":") >= 2)
    return sum(
        _read_oom_counter(root, _OOM_COUNTER_FILES[controllers], path.rstrip("/"))
        for controllers, path in entries
        if controllers in _OOM_COUNTER_FILES
    )


def _read_oom_counter(root: Path, file: str, path: str) -> int:
    # In a container the path may be the host's; then the counter is in the top folder.
    text = _read_text(root / file.format(path)) or _read_text(root / file.format(""))
    return sum(int(count) for count in _OOM_KILL_COUNTER.findall(text))


def _read_text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
