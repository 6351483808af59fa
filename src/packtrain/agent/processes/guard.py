"""The guard: a process that outlives the agent for a moment and kills its programs if the agent dies (SIGKILL).

The agent forks it at the start and writes one message per line to a pipe:

    +PGID   a process group was started    -PGID   it has ended    quit   the agent ends and has ended its programs

If the pipe is closed without `quit`, the agent is dead, and the guard kills every group that is still alive.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NoReturn

_BLOCKED_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_KILL_TIMEOUT_S = 5.0  # how long to wait until killed processes have ended


class Guard:
    """The agent's end of the pipe."""

    def __init__(self, pid: int, pipe: int) -> None:
        self._pid, self._pipe = pid, pipe

    @classmethod
    def start(cls, keep_fds: Iterable[int] = ()) -> Guard:
        """Fork the guard. Call it before the agent starts any thread.

        Args:
            keep_fds: Descriptors that the guard keeps open while it lives. The lock on the claim file is among them,
                so it is not freed before the last program of a dead agent has ended.
        """
        reader, writer = os.pipe()
        # Block the signals before the fork, so that there is no moment at which they could end the guard.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED_SIGNALS)
        pid = os.fork()
        if pid == 0:
            _run_guard(reader, {reader, *keep_fds})
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(reader)
        return cls(pid, writer)

    def add_group(self, pgid: int) -> None:
        self._send(f"+{pgid}")

    def remove_group(self, pgid: int) -> None:
        self._send(f"-{pgid}")

    def quit(self) -> None:
        """End the guard. The agent must have ended its programs."""
        self._send("quit")
        os.close(self._pipe)
        os.waitpid(self._pid, 0)

    def _send(self, message: str) -> None:
        # The guard may have been killed. The programs continue without it.
        with suppress(BrokenPipeError):
            os.write(self._pipe, f"{message}\n".encode())


def _run_guard(pipe: int, keep_fds: set[int]) -> NoReturn:
    # The guard must never return to the agent's code, whatever happens.
    try:
        _detach(keep_fds)
        _kill_groups(_read_groups_to_kill(pipe))
    finally:
        os._exit(0)


def _detach(keep_fds: set[int]) -> None:
    os.setsid()
    os.chdir("/")
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in keep_fds:
            with suppress(OSError):
                os.close(int(name))


def _read_groups_to_kill(pipe: int) -> set[int]:
    """Read messages until the pipe is closed and return the groups to kill."""
    groups: set[int] = set()
    with open(pipe, encoding="ascii") as messages:
        for message in messages:
            if message == "quit\n":
                return set()
            (groups.add if message[0] == "+" else groups.discard)(int(message[1:]))
    return groups


def _kill_groups(groups: set[int]) -> None:
    deadline = time.monotonic() + _KILL_TIMEOUT_S
    while groups and time.monotonic() < deadline:
        for group in groups:
            with suppress(OSError):
                os.killpg(group, signal.SIGKILL)
        groups &= live_process_groups()


def live_process_groups() -> set[int]:
    """Return the process groups of this machine, without zombies, which have ended but may be reaped much later."""
    return {group for _, group in _live_processes()}


def live_processes_in(group: int) -> list[int]:
    """Return the processes of a group."""
    return [pid for pid, process_group in _live_processes() if process_group == group]


def _live_processes() -> Iterator[tuple[int, int]]:
    """Yield the id and the group of each process of this machine, without zombies."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError), open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            state, _, group = file.read().rpartition(")")[2].split()[:3]
            if state not in "ZX":
                yield int(pid), int(group)
