"""The engine of this machine. Agents outlive it: a later process finds them by their claims."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packtrain.engines.api import AttemptUpdate, SubmitRequest
from packtrain.engines.local.resources import cache_options, capabilities, gpu_ids, job_environment
from packtrain.engines.local.slot_allocator import SlotAllocation, SlotAllocator
from packtrain.events import FAILURE_KINDS
from packtrain.plan import AttemptFolder, RunFolder
from packtrain.plan import claim as claim_lock

_ALREADY_CLAIMED = FAILURE_KINDS["already_claimed"].exit_code
# After TERM the agent has the job's grace period for its steps and once more for the outputs.
_KILL_MARGIN_S = 10.0


@dataclass
class _TrackedAttempt:
    request: SubmitRequest
    folder: AttemptFolder
    allocation: SlotAllocation | None = None  # None: queued
    process: subprocess.Popen[bytes] | None = None  # None: queued, or of an earlier process
    has_started: bool = False
    kill_at: float | None = None
    start_error: str = ""  # why it could not be started

    @property
    def is_reportable(self) -> bool:
        """There is something to tell of it: it started, or was cancelled before."""
        return self.has_started or self.kill_at is not None


class LocalEngine:
    def __init__(self, folder: RunFolder, user_env: Mapping[str, str] | None = None) -> None:
        self.capabilities = capabilities()
        self._folder = folder
        self._user_env = os.environ if user_env is None else user_env
        self._slots = SlotAllocator(self.capabilities.cpus, self.capabilities.memory_mb, self.capabilities.gpus)
        self._tracked: dict[str, _TrackedAttempt] = {}

    def submit(self, requests: Sequence[SubmitRequest]) -> Mapping[str, str]:
        for ticket in requests:
            self._tracked.setdefault(ticket.attempt_id, _TrackedAttempt(ticket, self._attempt_folder(ticket)))
        self._start_queued()
        return {}

    def recover(self, requests: Sequence[SubmitRequest]) -> Sequence[AttemptUpdate]:
        for ticket in requests:
            attempt = self._attempt_folder(ticket)
            if claim_lock.exists(attempt) and ticket.attempt_id not in self._tracked:
                share = self._slots.allocate(ticket.job.resources)
                self._tracked[ticket.attempt_id] = _TrackedAttempt(ticket, attempt, share, has_started=True)
        asked = [self._tracked[t.attempt_id] for t in requests if t.attempt_id in self._tracked]
        return self._poll_attempts(one for one in asked if one.is_reportable)

    def cancel(self, attempt_ids: Sequence[str]) -> None:
        for decision in attempt_ids:
            one = self._tracked.get(decision)
            if one and one.has_started and one.kill_at is None:
                one.kill_at = time.monotonic() + 2 * one.request.job.limits.grace_s + _KILL_MARGIN_S
                self._send_signal(one, signal.SIGTERM)
            elif one and not one.has_started:
                one.kill_at = 0.0

    def release(self, attempt_ids: Sequence[str]) -> None:
        """Nothing is ever held here."""

    def commit_outputs(self, requests: Sequence[SubmitRequest]) -> None:
        """The agent itself put the outputs where they go."""

    def poll(self) -> Sequence[AttemptUpdate]:
        seen = self._poll_attempts(one for one in self._tracked.values() if one.is_reportable)
        self._start_queued()
        return seen

    def wait(self, timeout_s: float) -> None:
        handles = [h for one in self._tracked.values() if one.process and (h := _open_pidfd(one.process)) is not None]
        try:
            select.select(handles, [], [], timeout_s)
        finally:
            for handle in handles:
                os.close(handle)

    def _attempt_folder(self, request: SubmitRequest) -> AttemptFolder:
        return self._folder.attempt_folder(request.job.id, request.attempt_id)

    def _poll_attempts(self, attempts: Iterable[_TrackedAttempt]) -> list[AttemptUpdate]:
        seen = [self._poll_attempt(one) for one in attempts]
        for sighting in seen:
            if sighting.status == "gone":
                self._untrack(sighting.attempt_id)
        return seen

    def _poll_attempt(self, tracked: _TrackedAttempt) -> AttemptUpdate:
        say = _update_factory(tracked)
        if not tracked.has_started:
            return say("gone", detail="it was cancelled before it started")
        if tracked.kill_at is not None and time.monotonic() > tracked.kill_at:
            self._send_signal(tracked, signal.SIGKILL)
        code = tracked.process.poll() if tracked.process else None
        if code is not None and (code == _ALREADY_CLAIMED or claim_lock.holder_pid(tracked.folder)):
            self._adopt_claim_holder(tracked)
            code = None
        if claim_lock.is_held(tracked.folder) or (tracked.process and code is None):
            return say("running")
        return say("gone", exit_code=code, detail=tracked.start_error or _exit_message(code))

    def _adopt_claim_holder(self, tracked: _TrackedAttempt) -> None:
        """What we started came too late: an earlier process's agent has the claim, and a cancel is meant for it."""
        tracked.process = None
        if tracked.kill_at is not None:
            self._send_signal(tracked, signal.SIGTERM)

    def _untrack(self, attempt_id: str) -> None:
        one = self._tracked.pop(attempt_id)
        if one.allocation:
            self._slots.release(one.allocation)
        if one.folder.sandbox.exists():
            shutil.rmtree(one.folder.sandbox, onerror=_force_remove)

    def _start_queued(self) -> None:
        """First come, first served: a big job is not passed by small ones for ever."""
        for one in self._tracked.values():
            if one.is_reportable:
                continue
            one.allocation = self._slots.allocate(one.request.job.resources)
            if one.allocation is None:
                return
            one.has_started = True
            try:
                self._start(one, one.allocation)
            except OSError as error:  # a full disk, no more processes: the attempt's trouble, not the run's
                one.start_error = f"the agent could not be started: {error}"

    def _start(self, tracked: _TrackedAttempt, allocation: SlotAllocation) -> None:
        tracked.folder.root.mkdir(parents=True, exist_ok=True)
        with open(tracked.folder.agent_log, "ab") as log:
            tracked.process = subprocess.Popen(
                self._agent_command(tracked),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=tracked.folder.root,
                env=job_environment(self._user_env, [gpu_ids()[gpu] for gpu in allocation.gpus]),
                start_new_session=True,
            )

    def _agent_command(self, tracked: _TrackedAttempt) -> list[str]:
        plan = self._folder.job_plan(tracked.request.job.id)
        where = [
            "--attempt-folder",
            str(tracked.folder.root),
            "--secrets",
            str(self._folder.secrets),
            "--site",
            "local",
        ]
        where += [
            "--reuse-folder",
            str(self._folder.job_reusable_inputs(tracked.request.job.id)),
            *cache_options(self._user_env),
        ]
        return ["/bin/sh", str(self._folder.launcher), str(plan), "--attempt-id", tracked.request.attempt_id, *where]

    @staticmethod
    def _send_signal(tracked: _TrackedAttempt, signum: signal.Signals) -> None:
        pid = (
            tracked.process.pid
            if tracked.process and tracked.process.poll() is None
            else claim_lock.holder_pid(tracked.folder)
        )
        if pid is not None:
            send_signal(pid, signum)


def _update_factory(tracked: _TrackedAttempt) -> Callable[..., AttemptUpdate]:
    native = str(tracked.process.pid) if tracked.process else ""

    def make_update(status: str, **fields: Any) -> AttemptUpdate:
        return AttemptUpdate(tracked.request.attempt_id, tracked.request.job.id, status, native, "local", **fields)

    return make_update


def _exit_message(exit_code: int | None) -> str:
    if exit_code is None:
        return "the agent ended while no supervisor watched it"
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
    """A read-only folder in a sandbox does not keep it alive."""
    parent = Path(path).parent
    parent.chmod(parent.stat().st_mode | stat.S_IRWXU)
    if Path(path).is_dir() and not Path(path).is_symlink():
        Path(path).chmod(stat.S_IRWXU)
        shutil.rmtree(path, ignore_errors=True)
    else:
        Path(path).unlink(missing_ok=True)
