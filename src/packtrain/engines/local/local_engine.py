"""The engine that runs agents as processes on this machine.

Agents outlive the engine object: a later process finds them by their claim files.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import shlex
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packtrain.engines.api import SubmitRequest
from packtrain.engines.job_environment import job_environment
from packtrain.engines.local.resources import cache_options, capabilities, gpu_ids
from packtrain.engines.local.slot_allocator import SlotAllocation, SlotAllocator
from packtrain.engines.updates import AttemptUpdate, Gone, Running
from packtrain.events import FAILURE_KINDS
from packtrain.plan import AttemptFolder, RunFolder, claim

_ALREADY_CLAIMED = FAILURE_KINDS["already_claimed"].exit_code
_logger = logging.getLogger("packtrain.engines.local")


@dataclass
class _TrackedAttempt:
    """An attempt that this engine object submitted or recovered."""

    request: SubmitRequest
    folder: AttemptFolder
    allocation: SlotAllocation | None = None  # None while queued
    process: subprocess.Popen[bytes] | None = None  # None while queued, or if an earlier process started it
    has_started: bool = False
    kill_at: float | None = None  # monotonic time of SIGKILL; None unless cancelled
    start_error: str = ""  # why the agent could not be started

    @property
    def is_reportable(self) -> bool:
        """Whether it has started, or was cancelled before it could start."""
        return self.has_started or self.kill_at is not None


class LocalEngine:
    """Implements `packtrain.engines.api.Engine`.

    Args:
        folder: The folder of the run.
        user_env: The user's variables, of which jobs get some.
        kill_margin_s: Time before SIGKILL that a cancelled agent has in addition to its grace periods.
    """

    def __init__(
        self, folder: RunFolder, user_env: Mapping[str, str] | None = None, kill_margin_s: float = 10.0
    ) -> None:
        self.capabilities = capabilities()
        self._folder, self._kill_margin_s = folder, kill_margin_s
        self._user_env = os.environ if user_env is None else user_env
        self._slots = SlotAllocator(self.capabilities.cpus, self.capabilities.memory_mb, self.capabilities.gpus)
        self._tracked: dict[str, _TrackedAttempt] = {}

    def submit(self, requests: Sequence[SubmitRequest]) -> Mapping[str, str]:
        for request in requests:
            self._tracked.setdefault(request.attempt_id, _TrackedAttempt(request, self._attempt_folder(request)))
        self._start_queued()
        return {}

    def recover(self, requests: Sequence[SubmitRequest]) -> Sequence[AttemptUpdate]:
        for request in requests:
            folder = self._attempt_folder(request)
            if claim.is_claimed(folder) and request.attempt_id not in self._tracked:
                allocation = self._slots.allocate(request.job.resources)
                self._tracked[request.attempt_id] = _TrackedAttempt(request, folder, allocation, has_started=True)
        requested = [self._tracked[r.attempt_id] for r in requests if r.attempt_id in self._tracked]
        return self._poll_attempts(tracked for tracked in requested if tracked.is_reportable)

    def cancel(self, attempt_ids: Sequence[str]) -> None:
        for attempt_id in attempt_ids:
            tracked = self._tracked.get(attempt_id)
            if tracked and tracked.has_started and tracked.kill_at is None:
                # One grace period is for the steps, and another one for the outputs.
                tracked.kill_at = time.monotonic() + 2 * tracked.request.job.limits.grace_s + self._kill_margin_s
                self._send_signal(tracked, signal.SIGTERM)
            elif tracked and not tracked.has_started:
                tracked.kill_at = 0.0

    def release(self, attempt_ids: Sequence[str]) -> None:
        """Do nothing: this engine never holds an attempt."""

    def commit_outputs(self, requests: Sequence[SubmitRequest]) -> None:
        """Do nothing: the agent has already moved the outputs to their location."""

    def poll(self) -> Sequence[AttemptUpdate]:
        updates = self._poll_attempts(tracked for tracked in self._tracked.values() if tracked.is_reportable)
        self._start_queued()
        return updates

    def wait(self, timeout_s: float) -> None:
        processes = [tracked.process for tracked in self._tracked.values() if tracked.process]
        pidfds = [pidfd for process in processes if (pidfd := _open_pidfd(process)) is not None]
        try:
            select.select(pidfds, [], [], timeout_s)
        finally:
            for pidfd in pidfds:
                os.close(pidfd)

    def _attempt_folder(self, request: SubmitRequest) -> AttemptFolder:
        return self._folder.attempt_folder(request.job.id, request.attempt_id)

    def _poll_attempts(self, attempts: Iterable[_TrackedAttempt]) -> list[AttemptUpdate]:
        updates = [self._poll_attempt(tracked) for tracked in attempts]
        for update in updates:
            if isinstance(update, Gone):
                _logger.debug("attempt %s is gone: %s", update.attempt_id, update.detail)
                self._untrack(update.attempt_id)
        return updates

    def _poll_attempt(self, tracked: _TrackedAttempt) -> AttemptUpdate:
        ids = tracked.request.attempt_id, tracked.request.job.id
        if not tracked.has_started:
            return Gone(*ids, detail="the attempt was cancelled before it started")
        if tracked.kill_at is not None and time.monotonic() > tracked.kill_at:
            self._send_signal(tracked, signal.SIGKILL)
        code = tracked.process.poll() if tracked.process else None
        if code is not None and (code == _ALREADY_CLAIMED or claim.claim_holder_pid(tracked.folder)):
            self._follow_claim_holder(tracked)
            code = None
        if claim.is_claim_held(tracked.folder) or (tracked.process and code is None):
            return Running(*ids)
        return Gone(*ids, exit_code=code, detail=tracked.start_error or _exit_message(code))

    def _follow_claim_holder(self, tracked: _TrackedAttempt) -> None:
        """Follow the agent of an earlier process, which has the claim; ours came too late and has exited.

        A cancellation is passed on to that agent.
        """
        tracked.process = None
        if tracked.kill_at is not None:
            self._send_signal(tracked, signal.SIGTERM)

    def _untrack(self, attempt_id: str) -> None:
        tracked = self._tracked.pop(attempt_id)
        if tracked.allocation:
            self._slots.release(tracked.allocation)
        if tracked.folder.sandbox.exists():
            shutil.rmtree(tracked.folder.sandbox, onerror=_force_remove)

    def _start_queued(self) -> None:
        """Start queued attempts in order. Small jobs do not overtake a large one, which might then never start."""
        for tracked in self._tracked.values():
            if tracked.is_reportable:
                continue
            tracked.allocation = self._slots.allocate(tracked.request.job.resources)
            if tracked.allocation is None:
                return
            tracked.has_started = True
            try:
                self._start(tracked, tracked.allocation)
            except OSError as error:  # a full disk or too many processes: only this attempt fails, not the run
                tracked.start_error = f"the agent could not be started: {error}"

    def _start(self, tracked: _TrackedAttempt, allocation: SlotAllocation) -> None:
        command = self._agent_command(tracked)
        _logger.debug("start attempt %s: %s", tracked.request.attempt_id, shlex.join(command))
        tracked.folder.root.mkdir(parents=True, exist_ok=True)
        visible_gpus = [gpu_ids()[gpu] for gpu in allocation.gpus]
        with open(tracked.folder.agent_log, "ab") as log:
            tracked.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=tracked.folder.root,
                env={**job_environment(self._user_env), "CUDA_VISIBLE_DEVICES": ",".join(visible_gpus)},
                start_new_session=True,
            )

    def _agent_command(self, tracked: _TrackedAttempt) -> list[str]:
        job_id = tracked.request.job.id
        options = ["--attempt-id", tracked.request.attempt_id, "--attempt-folder", str(tracked.folder.root)]
        options += ["--secrets", str(self._folder.secrets), "--site", "local"]
        options += ["--reuse-folder", str(self._folder.job_reusable_inputs(job_id)), *cache_options(self._user_env)]
        return ["/bin/sh", str(self._folder.launcher), str(self._folder.job_plan(job_id)), *options]

    @staticmethod
    def _send_signal(tracked: _TrackedAttempt, signum: signal.Signals) -> None:
        is_own_child = tracked.process is not None and tracked.process.poll() is None
        pid = tracked.process.pid if is_own_child and tracked.process else claim.claim_holder_pid(tracked.folder)
        if pid is not None:
            _logger.debug("send %s to attempt %s, process %d", signum.name, tracked.request.attempt_id, pid)
            send_signal(pid, signum)


def _exit_message(exit_code: int | None) -> str:
    if exit_code is None:
        return "the agent exited while no supervisor was running"
    if exit_code < 0:
        return f"the agent was killed by {signal.Signals(-exit_code).name}"
    return f"the agent ended with exit code {exit_code}"


def _open_pidfd(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return os.pidfd_open(process.pid)
    except OSError:
        return None


def send_signal(pid: int, signum: signal.Signals) -> None:
    """Send a signal to a process, which may have ended already."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signum)


def _force_remove(function: Callable[..., Any], path: str, error: Any) -> None:
    """Remove a path after making its parent folder writable: steps may leave read-only folders in the sandbox."""
    parent = Path(path).parent
    parent.chmod(parent.stat().st_mode | stat.S_IRWXU)
    if Path(path).is_dir() and not Path(path).is_symlink():
        Path(path).chmod(stat.S_IRWXU)
        shutil.rmtree(path, ignore_errors=True)
    else:
        Path(path).unlink(missing_ok=True)
