"""The engine of this machine. Agents outlive it: a later process finds them by their claims."""

from __future__ import annotations

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

from packtrain.engines.api import Sighting, Ticket
from packtrain.engines.local import claim_lock
from packtrain.engines.local.resources import capabilities, depot_options, gpu_names, job_environment
from packtrain.engines.local.slot_allocator import Share, Slots
from packtrain.events import FAILURE_KINDS
from packtrain.plan import AttemptFolder, RunFolder

_ALREADY_CLAIMED = FAILURE_KINDS["already_claimed"].exit_code
# After TERM the agent has the job's grace period for its steps and once more for the outputs.
_MARGIN_S = 10.0


@dataclass
class _Followed:
    ticket: Ticket
    attempt: AttemptFolder
    share: Share | None = None  # None: queued
    process: subprocess.Popen[bytes] | None = None  # None: queued, or of an earlier process
    started: bool = False
    kill_at: float | None = None
    trouble: str = ""  # why it could not be started

    @property
    def begun(self) -> bool:
        """There is something to tell of it: it started, or was cancelled before."""
        return self.started or self.kill_at is not None


class LocalEngine:
    def __init__(self, folder: RunFolder, environment: Mapping[str, str] | None = None) -> None:
        self.capabilities = capabilities()
        self._folder = folder
        self._environment = os.environ if environment is None else environment
        self._slots = Slots(self.capabilities.cpus, self.capabilities.memory_mb, self.capabilities.gpus)
        self._followed: dict[str, _Followed] = {}

    def submit(self, tickets: Sequence[Ticket]) -> Mapping[str, str]:
        for ticket in tickets:
            self._followed.setdefault(ticket.decision, _Followed(ticket, self._attempt(ticket)))
        self._start_what_fits()
        return {}

    def look(self, tickets: Sequence[Ticket]) -> Sequence[Sighting]:
        for ticket in tickets:
            attempt = self._attempt(ticket)
            if claim_lock.exists(attempt) and ticket.decision not in self._followed:
                share = self._slots.take(ticket.job.resources)
                self._followed[ticket.decision] = _Followed(ticket, attempt, share, started=True)
        asked = [self._followed[t.decision] for t in tickets if t.decision in self._followed]
        return self._sight_all(one for one in asked if one.begun)

    def cancel(self, decisions: Sequence[str]) -> None:
        for decision in decisions:
            one = self._followed.get(decision)
            if one and one.started and one.kill_at is None:
                one.kill_at = time.monotonic() + 2 * one.ticket.job.limits.grace_s + _MARGIN_S
                self._signal(one, signal.SIGTERM)
            elif one and not one.started:
                one.kill_at = 0.0

    def release(self, decisions: Sequence[str]) -> None:
        """Nothing is ever held here."""

    def accept(self, tickets: Sequence[Ticket]) -> None:
        """The agent itself put the outputs where they go."""

    def poll(self) -> Sequence[Sighting]:
        seen = self._sight_all(one for one in self._followed.values() if one.begun)
        self._start_what_fits()
        return seen

    def wait(self, timeout: float) -> None:
        handles = [h for one in self._followed.values() if one.process and (h := _pidfd(one.process)) is not None]
        try:
            select.select(handles, [], [], timeout)
        finally:
            for handle in handles:
                os.close(handle)

    def _attempt(self, ticket: Ticket) -> AttemptFolder:
        return self._folder.attempt(ticket.job.id, ticket.decision)

    def _sight_all(self, followed: Iterable[_Followed]) -> list[Sighting]:
        seen = [self._sight(one) for one in followed]
        for sighting in seen:
            if sighting.status == "gone":
                self._forget(sighting.decision)
        return seen

    def _sight(self, one: _Followed) -> Sighting:
        say = _saying(one)
        if not one.started:
            return say("gone", detail="it was cancelled before it started")
        if one.kill_at is not None and time.monotonic() > one.kill_at:
            self._signal(one, signal.SIGKILL)
        code = one.process.poll() if one.process else None
        if code is not None and (code == _ALREADY_CLAIMED or claim_lock.holder(one.attempt)):
            self._follow_holder(one)
            code = None
        if claim_lock.is_held(one.attempt) or (one.process and code is None):
            return say("running")
        return say("gone", exit_code=code, detail=one.trouble or _farewell(code))

    def _follow_holder(self, one: _Followed) -> None:
        """What we started came too late: an earlier process's agent has the claim, and a cancel is meant for it."""
        one.process = None
        if one.kill_at is not None:
            self._signal(one, signal.SIGTERM)

    def _forget(self, decision: str) -> None:
        one = self._followed.pop(decision)
        if one.share:
            self._slots.give(one.share)
        if one.attempt.sandbox.exists():
            shutil.rmtree(one.attempt.sandbox, onerror=_insist)

    def _start_what_fits(self) -> None:
        """First come, first served: a big job is not passed by small ones for ever."""
        for one in self._followed.values():
            if one.begun:
                continue
            one.share = self._slots.take(one.ticket.job.resources)
            if one.share is None:
                return
            one.started = True
            try:
                self._start(one, one.share)
            except OSError as error:  # a full disk, no more processes: the attempt's trouble, not the run's
                one.trouble = f"the agent could not be started: {error}"

    def _start(self, one: _Followed, share: Share) -> None:
        one.attempt.root.mkdir(parents=True, exist_ok=True)
        with open(one.attempt.agent_log, "ab") as log:
            one.process = subprocess.Popen(
                self._command(one),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=one.attempt.root,
                env=job_environment(self._environment, [gpu_names()[gpu] for gpu in share.gpus]),
                start_new_session=True,
            )

    def _command(self, one: _Followed) -> list[str]:
        plan = self._folder.job_plan(one.ticket.job.id)
        where = ["--home", str(one.attempt.root), "--secrets", str(self._folder.secrets), "--site", "local"]
        where += ["--keep", str(self._folder.job_kept(one.ticket.job.id)), *depot_options(self._environment)]
        return ["/bin/sh", str(self._folder.launcher), str(plan), "--decision", one.ticket.decision, *where]

    @staticmethod
    def _signal(one: _Followed, number: signal.Signals) -> None:
        pid = one.process.pid if one.process and one.process.poll() is None else claim_lock.holder(one.attempt)
        if pid is not None:
            claim_lock.send(pid, number)


def _saying(one: _Followed) -> Callable[..., Sighting]:
    native = str(one.process.pid) if one.process else ""

    def say(status: str, **more: Any) -> Sighting:
        return Sighting(one.ticket.decision, one.ticket.job.id, status, native, "local", **more)

    return say


def _farewell(code: int | None) -> str:
    if code is None:
        return "the agent ended while no supervisor watched it"
    if code < 0:
        return f"the agent was killed by {signal.Signals(-code).name}"
    return f"the agent ended with exit code {code}"


def _pidfd(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return os.pidfd_open(process.pid)
    except OSError:
        return None


def _insist(function: Callable[..., Any], path: str, error: Any) -> None:
    """A read-only folder in a sandbox does not keep it alive."""
    parent = Path(path).parent
    parent.chmod(parent.stat().st_mode | stat.S_IRWXU)
    if Path(path).is_dir() and not Path(path).is_symlink():
        Path(path).chmod(stat.S_IRWXU)
        shutil.rmtree(path, ignore_errors=True)
    else:
        Path(path).unlink(missing_ok=True)
