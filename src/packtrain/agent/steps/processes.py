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

from packtrain.agent.steps.guard import Guard, live_process_groups
from packtrain.agent.steps.logs import OutputCapture, PipePump

_DRAIN_TIMEOUT_S = 0.5  # for what is still in the pipes after a program's end
_POLL_INTERVAL_S = 0.02  # how often a group that was told to end is looked at
_KILL_TIMEOUT_S = 5.0  # for a killed group to be gone


class ProcessTreeClosedError(Exception):
    """Nothing more is started here: the stop was requested, or the level that it belongs to has ended."""


@dataclass(frozen=True)
class ProcessSpec:
    """What is started."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)  # has secrets
    work_dir: Path


class ProcessTree:
    """Programs that are ended together; those of its descendants belong to it too."""

    def __init__(self, parent: ProcessTree | None = None) -> None:
        self._parent = parent
        self._closed = False

    def self_and_ancestors(self) -> Iterator[ProcessTree]:
        member: ProcessTree | None = self
        while member is not None:
            yield member
            member = member._parent

    def close(self) -> None:
        self._closed = True

    @property
    def is_closed(self) -> bool:
        return any(member._closed for member in self.self_and_ancestors())


class _GuardedPopen(subprocess.Popen[bytes]):
    """A process that the guard knows at every moment."""

    def __init__(self, spec: ProcessSpec, guard: Guard) -> None:
        try:
            super().__init__(
                spec.argv,
                env=spec.env,
                cwd=spec.work_dir,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                restore_signals=False,
                preexec_fn=lambda: _before_exec(guard),
            )
        except OSError:
            guard.remove_group(getattr(self, "pid", 0))
            raise


def _before_exec(guard: Guard) -> None:
    """The new process itself tells the guard: whenever the agent dies, the guard knows all of its programs.
    Between fork and exec it must touch no lock that a thread may hold: nothing else belongs here."""
    guard.add_group(os.getpid())
    # What `restore_signals` does; not before, or a guard that is gone would end the program by SIGPIPE.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)


class ChildProcess:
    """One program. Who started it waits for it."""

    def __init__(
        self, processes: ProcessTable, popen: subprocess.Popen[bytes], process_tree: ProcessTree, pump: PipePump
    ) -> None:
        self.process_tree = process_tree
        self._processes, self._popen, self._pump = processes, popen, pump

    def wait(self) -> int:
        """Its exit code, or minus the signal's number. What it left in the background is killed."""
        # Not reaped yet, it keeps the group's number from being given to others.
        os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOWAIT)
        if self.process_tree.is_closed:
            self._wait_for_group()
        self._pump.wait_until_closed(_DRAIN_TIMEOUT_S)
        self.send_signal(signal.SIGKILL)
        self._pump.wait_until_closed(_DRAIN_TIMEOUT_S)
        self._pump.abort()
        self._processes.remove(self, self._popen.pid)
        with self._popen:  # closes the pipes and reaps
            pass
        return self._popen.returncode

    def _wait_for_group(self) -> None:
        """A signal ends a shell at once, while the training below it still saves: the whole group has the grace
        period. `Processes.end` kills it afterwards."""
        while self._popen.pid in live_process_groups():
            time.sleep(_POLL_INTERVAL_S)

    def send_signal(self, signal_number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal_number)


class ProcessTable:
    """Every process group that lives."""

    def __init__(self, guard: Guard, grace_s: float) -> None:
        self._guard, self._grace_s = guard, grace_s
        self._children: set[ChildProcess] = set()
        self._condition = threading.Condition()
        self.root_tree = ProcessTree()

    def start(
        self, spec: ProcessSpec, out: OutputCapture, err: OutputCapture, process_tree: ProcessTree | None = None
    ) -> ChildProcess:
        """The captures are closed when the program's pipes end, or at once if it does not start.

        Raises EndedError, or OSError if there is no such program or folder."""
        try:
            return self._start(spec, out, err, process_tree or self.root_tree)
        except BaseException:
            out.close()
            err.close()
            raise

    def _start(
        self, spec: ProcessSpec, out: OutputCapture, err: OutputCapture, process_tree: ProcessTree
    ) -> ChildProcess:
        with self._condition:
            if process_tree.is_closed:
                raise ProcessTreeClosedError
            popen = _GuardedPopen(spec, self._guard)
            assert popen.stdout is not None
            assert popen.stderr is not None
            pump = PipePump({popen.stdout.fileno(): out, popen.stderr.fileno(): err})
            child = ChildProcess(self, popen, process_tree, pump)
            self._children.add(child)
        pump.start()
        return child

    def remove(self, child: ChildProcess, pgid: int) -> None:
        with self._condition:
            self._guard.remove_group(pgid)
            self._children.discard(child)
            self._condition.notify_all()

    def terminate(self, process_tree: ProcessTree, first_signal: int = signal.SIGTERM) -> None:
        """Start nothing more of this family. The signal to each of its groups, the grace period, then KILL."""
        with self._condition:
            process_tree.close()
            self._send_signal(process_tree, first_signal)
            if not self._condition.wait_for(lambda: not self._children_in(process_tree), self._grace_s):
                self._send_signal(process_tree, signal.SIGKILL)
                self._condition.wait_for(lambda: not self._children_in(process_tree), _KILL_TIMEOUT_S)

    def terminate_all(self) -> None:
        """TERM, the grace period, KILL, for all; nothing can be started afterwards."""
        self.terminate(self.root_tree)

    def _children_in(self, process_tree: ProcessTree) -> list[ChildProcess]:
        return [child for child in self._children if process_tree in child.process_tree.self_and_ancestors()]

    def _send_signal(self, process_tree: ProcessTree, signal_number: int) -> None:
        for child in self._children_in(process_tree):
            child.send_signal(signal_number)
