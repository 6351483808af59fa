"""Programs of steps: each in a process group of its own, ended as a whole, known to the guard."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from packtrain.agent.steps.guard import Guard, living_groups
from packtrain.agent.steps.logs import Capture, Pump

_LINGER_S = 0.5  # for what is still in the pipes after a program's end
_GLANCE_S = 0.02  # how often a group that was told to end is looked at
_KILLED_S = 5.0  # for a killed group to be gone


class EndedError(Exception):
    """Nothing more is started here: the stop was requested, or the level that it belongs to has ended."""


@dataclass(frozen=True)
class Program:
    """What is started."""

    argv: tuple[str, ...]
    variables: Mapping[str, str] = field(repr=False)  # has secrets
    folder: Path


class Family:
    """Programs that are ended together; those of its descendants belong to it too."""

    def __init__(self, parent: Family | None = None) -> None:
        self._parent = parent
        self._closed = False

    def lineage(self) -> Iterator[Family]:
        member: Family | None = self
        while member is not None:
            yield member
            member = member._parent

    def close(self) -> None:
        self._closed = True

    @property
    def closed(self) -> bool:
        return any(member._closed for member in self.lineage())


class _Watched(subprocess.Popen[bytes]):
    """A process that the guard knows at every moment."""

    def __init__(self, program: Program, guard: Guard) -> None:
        try:
            super().__init__(
                program.argv,
                env=program.variables,
                cwd=program.folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                restore_signals=False,
                preexec_fn=lambda: _before_exec(guard),
            )
        except OSError:
            guard.forget(getattr(self, "pid", 0))
            raise


def _before_exec(guard: Guard) -> None:
    """The new process itself tells the guard: whenever the agent dies, the guard knows all of its programs.
    Between fork and exec it must touch no lock that a thread may hold: nothing else belongs here."""
    guard.watch(os.getpid())
    # What `restore_signals` does; not before, or a guard that is gone would end the program by SIGPIPE.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)


class Child:
    """One program. Who started it waits for it."""

    def __init__(self, processes: Processes, popen: subprocess.Popen[bytes], family: Family, pump: Pump) -> None:
        self.family = family
        self._processes, self._popen, self._pump = processes, popen, pump

    def wait(self) -> int:
        """Its exit code, or minus the signal's number. What it left in the background is killed."""
        # Not reaped yet, it keeps the group's number from being given to others.
        os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOWAIT)
        if self.family.closed:
            self._outlast()
        self._pump.finish(_LINGER_S)
        self.signal(signal.SIGKILL)
        self._pump.finish(_LINGER_S)
        self._pump.abandon()
        self._processes.forget(self, self._popen.pid)
        with self._popen:  # closes the pipes and reaps
            pass
        return self._popen.returncode

    def _outlast(self) -> None:
        """A signal ends a shell at once, while the training below it still saves: the whole group has the grace
        period. `Processes.end` kills it afterwards."""
        while self._popen.pid in living_groups():
            time.sleep(_GLANCE_S)

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, number)


class Processes:
    """Every process group that lives."""

    def __init__(self, guard: Guard, grace_s: float) -> None:
        self._guard, self._grace_s = guard, grace_s
        self._live: set[Child] = set()
        self._changed = threading.Condition()
        self.root = Family()

    def start(self, program: Program, out: Capture, err: Capture, family: Family | None = None) -> Child:
        """The captures are closed when the program's pipes end, or at once if it does not start.

        Raises EndedError, or OSError if there is no such program or folder."""
        try:
            return self._start(program, out, err, family or self.root)
        except BaseException:
            out.close()
            err.close()
            raise

    def _start(self, program: Program, out: Capture, err: Capture, family: Family) -> Child:
        with self._changed:
            if family.closed:
                raise EndedError
            popen = _Watched(program, self._guard)
            assert popen.stdout is not None
            assert popen.stderr is not None
            pump = Pump({popen.stdout.fileno(): out, popen.stderr.fileno(): err})
            child = Child(self, popen, family, pump)
            self._live.add(child)
        pump.start()
        return child

    def forget(self, child: Child, group: int) -> None:
        with self._changed:
            self._guard.forget(group)
            self._live.discard(child)
            self._changed.notify_all()

    def end(self, family: Family, first: int = signal.SIGTERM) -> None:
        """Start nothing more of this family. The signal to each of its groups, the grace period, then KILL."""
        with self._changed:
            family.close()
            self._signal(family, first)
            if not self._changed.wait_for(lambda: not self._members(family), self._grace_s):
                self._signal(family, signal.SIGKILL)
                self._changed.wait_for(lambda: not self._members(family), _KILLED_S)

    def terminate_all(self) -> None:
        """TERM, the grace period, KILL, for all; nothing can be started afterwards."""
        self.end(self.root)

    def _members(self, family: Family) -> list[Child]:
        return [child for child in self._live if family in child.family.lineage()]

    def _signal(self, family: Family, number: int) -> None:
        for child in self._members(family):
            child.signal(number)
