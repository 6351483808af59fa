"""Programs of steps: each runs in a process group of its own, ends as a whole, and is registered with the guard."""

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

from packtrain.agent.processes.guard import Guard, live_process_groups, live_processes_in
from packtrain.agent.processes.output_capture import OutputCapture, PipePump

_DRAIN_TIMEOUT_S = 0.5  # how long to read the pipes after the program has ended
_POLL_INTERVAL_S = 0.02  # how often to check whether a signalled group has ended
_KILL_TIMEOUT_S = 5.0  # how long to wait until a killed group has ended


class ProcessTreeClosedError(Exception):
    """No program may be started in this tree: a stop was requested, or the level it belongs to has ended."""


@dataclass(frozen=True)
class ProcessSpec:
    """A program to start."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)  # contains secrets
    work_dir: Path
    stop_signal: str = ""  # announces the end, see `RunAction`


class ProcessTree:
    """Programs that are ended together, including those of descendant trees."""

    def __init__(self, parent: ProcessTree | None = None) -> None:
        self._parent = parent
        self._closed = False

    def self_and_ancestors(self) -> Iterator[ProcessTree]:
        tree: ProcessTree | None = self
        while tree is not None:
            yield tree
            tree = tree._parent

    def close(self) -> None:
        self._closed = True

    @property
    def is_closed(self) -> bool:
        return any(tree._closed for tree in self.self_and_ancestors())


class _GuardedPopen(subprocess.Popen[bytes]):
    """A process that is registered with the guard at every moment of its life."""

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
    """Register the new process with the guard, from within that process.

    So the guard knows all programs whenever the agent dies. Code between fork and exec must not use a lock that a
    thread may hold, so nothing else belongs here.
    """
    guard.add_group(os.getpid())
    # Do what `restore_signals` does, but after the message: if the guard is dead, SIGPIPE must not end the program.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)


class ChildProcess:
    """A running program. The caller that started it must call `wait`."""

    def __init__(
        self,
        processes: ProcessTable,
        popen: subprocess.Popen[bytes],
        process_tree: ProcessTree,
        pump: PipePump,
        stop_signal: str,
    ) -> None:
        self.process_tree = process_tree
        self._processes, self._popen, self._pump = processes, popen, pump
        self._stop_signal = stop_signal

    def wait(self) -> int:
        """Return the exit code, or minus the number of the signal. Background processes of the program are killed."""
        # Do not reap the process yet, so that the kernel does not give its group number to another process.
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
        """Wait until the whole group has ended.

        A signal ends a shell at once, while the training that it started still saves a checkpoint. The grace period
        applies to the whole group; `ProcessTable.terminate` kills it afterwards.
        """
        while self._popen.pid in live_process_groups():
            time.sleep(_POLL_INTERVAL_S)

    def send_signal(self, signal_number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal_number)

    def announce_end(self) -> None:
        """Send the stop signal of the program: with B: to its first process, else to those that this one started."""
        prefix, _, name = self._stop_signal.rpartition(":")
        leader = self._popen.pid
        if not name:
            self.send_signal(signal.SIGTERM)
            return
        for pid in [leader] if prefix else [pid for pid in live_processes_in(leader) if pid != leader]:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, getattr(signal, f"SIG{name}"))


class ProcessTable:
    """All process groups that are alive."""

    def __init__(self, guard: Guard, grace_s: float) -> None:
        self._guard, self._grace_s = guard, grace_s
        self._children: set[ChildProcess] = set()
        self._condition = threading.Condition()
        self.root_tree = ProcessTree()

    def start(
        self, spec: ProcessSpec, out: OutputCapture, err: OutputCapture, process_tree: ProcessTree | None = None
    ) -> ChildProcess:
        """Start a program. Raises ProcessTreeClosedError, or OSError if there is no such program or folder.

        The captures are closed when the program's pipes end, or at once if it does not start.
        """
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
            child = ChildProcess(self, popen, process_tree, pump, spec.stop_signal)
            self._children.add(child)
        pump.start()
        return child

    def remove(self, child: ChildProcess, pgid: int) -> None:
        with self._condition:
            self._guard.remove_group(pgid)
            self._children.discard(child)
            self._condition.notify_all()

    def terminate(
        self, process_tree: ProcessTree, first_signal: int = signal.SIGTERM, is_announced: bool = False
    ) -> None:
        """Close the tree, send `first_signal` to its groups, wait for the grace period, then send SIGKILL.

        Args:
            process_tree: The programs.
            first_signal: Sent first.
            is_announced: The end is only announced: send each program its own stop signal instead.
        """
        with self._condition:
            process_tree.close()
            if is_announced:
                for child in self._children_in(process_tree):
                    child.announce_end()
            else:
                self._send_signal(process_tree, first_signal)
            if not self._condition.wait_for(lambda: not self._children_in(process_tree), self._grace_s):
                self._send_signal(process_tree, signal.SIGKILL)
                self._condition.wait_for(lambda: not self._children_in(process_tree), _KILL_TIMEOUT_S)

    def terminate_all(self, is_announced: bool = False) -> None:
        """End all programs: SIGTERM, or their own stop signal if the end is only announced, the grace period, SIGKILL.

        No program can be started afterwards.
        """
        self.terminate(self.root_tree, is_announced=is_announced)

    def reopen(self) -> None:
        """Let programs be started again: the steps have finished, although their end was announced."""
        self.root_tree = ProcessTree()

    def _children_in(self, process_tree: ProcessTree) -> list[ChildProcess]:
        return [child for child in self._children if process_tree in child.process_tree.self_and_ancestors()]

    def _send_signal(self, process_tree: ProcessTree, signal_number: int) -> None:
        for child in self._children_in(process_tree):
            child.send_signal(signal_number)
