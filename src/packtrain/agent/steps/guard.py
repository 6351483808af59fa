"""A process that outlives the agent by a moment: were the agent killed (SIGKILL), its steps must not live on.

It is forked at the agent's start and reads one line a message from a pipe:

    +PGID   a process group lives        -PGID   it is gone        quit   the agent ends in good order

The end of the pipe without `quit` means that the agent is dead. Then every group that still lives is killed.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import NoReturn

_BLOCKED_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_KILL_TIMEOUT_S = 5.0  # for killed processes to be really gone


class Guard:
    """The agent's end of the pipe."""

    def __init__(self, pid: int, pipe: int) -> None:
        self._pid, self._pipe = pid, pipe

    @classmethod
    def start(cls, keep_fds: Iterable[int] = ()) -> Guard:
        """Fork it, before the agent has any thread. It holds the descriptors `keep` open as long as it lives:
        the claim's lock is not free until the last step of a dead agent is gone."""
        reader, writer = os.pipe()
        # Blocked before the fork, and in the guard for good: there is no moment at which they could end it.
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
        """The agent ends and has ended its steps."""
        self._send("quit")
        os.close(self._pipe)
        os.waitpid(self._pid, 0)

    def _send(self, message: str) -> None:
        # Somebody may have killed the guard. The steps go on without it.
        with suppress(BrokenPipeError):
            os.write(self._pipe, f"{message}\n".encode())


def _run_guard(pipe: int, keep_fds: set[int]) -> NoReturn:
    # Never back into the agent's code, whatever happens.
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
    """The groups to kill when the pipe has ended."""
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
    """The process groups of this machine. Zombies do not count: they do nothing any more, and who reaps them
    may take its time."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError), open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            state, _, group = file.read().rpartition(")")[2].split()[:3]
            if state not in "ZX":
                found.add(int(group))
    return found
