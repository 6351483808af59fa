"""The supervisor: one per run, by lease. Everything it knows it reads back from the store."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from packtrain.engines.api import Engine, Sighting, Ticket
from packtrain.errors import LeaseLostError
from packtrain.events import Event, kinds, new_emitter
from packtrain.plan import Plan, RunFolder
from packtrain.state import JobState, JobStatus, RunState
from packtrain.store import Lease, SqliteStore
from packtrain.supervise.collect import Collector
from packtrain.supervise.decisions import Cancel, Decision, Policy, Reopen, Submit, event_of
from packtrain.supervise.policies import cancel_everything, cancel_requested, start, verdict

LEASE_S = 30.0
_PAUSE_S = 0.2


class Supervisor:
    """`run()` returns when every job has its verdict, or after `stop()` when no attempt is alive."""

    def __init__(
        self, plan: Plan, folder: RunFolder, store: SqliteStore, engine: Engine, clock: Callable[[], float] = time.time
    ) -> None:
        self._plan, self._store, self._engine, self._clock = plan, store, engine, clock
        self._jobs = {job.id: job for job in plan.jobs}
        self._verdict = verdict({job.id: job.limits.attempts for job in plan.jobs})
        self._collector = Collector(store, plan.run, folder)
        self._emitter, self._seq = new_emitter("supervisor"), 0
        self._lease: Lease | None = None
        self._renewed = 0.0
        self._stop = threading.Event()
        self._only_requests = False
        self.state, self._seen = RunState(plan.run, {job.id: JobState(job.id) for job in plan.jobs}), 0
        self._due: set[str] = set(self._jobs)

    def stop(self) -> None:
        """End the living attempts and leave; the jobs can be resumed. Safe from any thread."""
        self._stop.set()

    def acquire(self) -> None:
        """Take the lease, or raise RefusedError."""
        host, pid = socket.gethostname(), os.getpid()
        self._lease = self._store.acquire(self._plan.run, process_identity(pid), host, pid, LEASE_S, holder_lives)
        self._renewed = time.monotonic()
        self._emit([("", kinds.SUPERVISOR_STARTED, {"host": host, "pid": pid})])

    def run(self, reopen: bool = False, only_requests: bool = False) -> RunState:
        """`reopen`: give every job that has not succeeded a fresh start. `only_requests`: answer what people
        asked for, start nothing, and leave."""
        self._only_requests = only_requests
        if self._lease is None:
            self.acquire()
        reason = "error"
        try:
            self._catch_up()
            self._recover(reopen)
            reason = self._loop()
        except LeaseLostError:
            self._lease = None
            raise
        finally:
            self._leave(reason)
        return self.state

    def _recover(self, reopen: bool) -> None:
        """Ask the engine for what earlier supervisors decided, before anything is done again."""
        live = [self._ticket(job.id, a.decision) for job in self.state.jobs.values() for a in job.live]
        known = self._engine.look(live)
        self._collector.collect(self.state, known)
        self._catch_up()
        if reopen:
            lost = [job for job in self.state.jobs.values() if job.status is not JobStatus.SUCCEEDED]
            self._write([Reopen(job.id, "a person resumed the run", tuple(job.open_requests)) for job in lost])
        found = {sighting.decision for sighting in known}
        self._take_up([ticket for ticket in live if ticket.decision not in found])
        jobs = self.state.jobs.values()
        self._engine.cancel([a.decision for job in jobs for a in job.live if job.cancel_decided(a.decision)])

    def _take_up(self, unknown: Sequence[Ticket]) -> None:
        """Decided, but not known to the engine: what nobody wants any more is not started."""
        unwanted = [ticket for ticket in unknown if self._is_unwanted(ticket)]
        never = "it was cancelled before it started"
        gone = [Sighting(ticket.decision, ticket.job.id, "gone", detail=never) for ticket in unwanted]
        self._collector.collect(self.state, gone)
        self._catch_up()
        if not self._only_requests:
            self._submit([ticket for ticket in unknown if ticket not in unwanted])

    def _is_unwanted(self, ticket: Ticket) -> bool:
        job = self.state.jobs[ticket.job.id]
        return bool(job.open_requests) or job.cancel_decided(ticket.decision)

    def _loop(self) -> str:
        while True:
            self._collector.collect(self.state, self._engine.poll())
            self._catch_up()
            self._decide()
            if self.state.finished:
                self._emit([("", kinds.RUN_ENDED, self._counts())])
                return "finished"
            if self._stop.is_set() and not any(job.live for job in self.state.jobs.values()):
                return "interrupted"
            if self._only_requests and not any(job.open_requests for job in self.state.jobs.values()):
                return "answered"
            self._renew()
            self._engine.wait(_PAUSE_S)

    def _decide(self) -> None:
        for policy in self._policies():
            decisions = policy(self.state, sorted(self._due), self._clock())
            if decisions:
                self._write(decisions)
                self._act(decisions)
        self._due = {job.id for job in self.state.jobs.values() if not job.verdict and not job.live}

    def _policies(self) -> Sequence[Policy]:
        if self._only_requests:
            return (cancel_requested, self._verdict)
        return (cancel_requested, self._verdict, cancel_everything if self._stop.is_set() else start)

    def _act(self, decisions: Sequence[Decision]) -> None:
        self._submit([self._ticket(d.job, d.id) for d in decisions if isinstance(d, Submit)])
        self._engine.cancel([d.target for d in decisions if isinstance(d, Cancel)])

    def _submit(self, tickets: Sequence[Ticket]) -> None:
        if tickets:
            self._engine.submit(tickets)
            name = self._engine.capabilities.name
            self._emit([(t.job.id, kinds.CONFIRMED, {"id": t.decision, "native": "", "site": name}) for t in tickets])
            self._catch_up()

    def _ticket(self, job: str, decision: str) -> Ticket:
        return Ticket(decision, self._jobs[job])

    def _write(self, decisions: Sequence[Decision]) -> None:
        self._emit([(decision.job, *event_of(decision)) for decision in decisions])
        self._catch_up()

    def _emit(self, said: Sequence[tuple[str, str, dict[str, Any]]]) -> None:
        """Append under the lease: a supervisor whose epoch is over writes, and so does, nothing more."""
        assert self._lease is not None
        self._store.append([self._event(*one, self._lease.epoch) for one in said], lease=self._lease)

    def _event(self, job: str, kind: str, data: dict[str, Any], epoch: int) -> Event:
        self._seq += 1
        more = {**data, "epoch": epoch}
        return Event(self._plan.run, job, self._emitter, self._seq, kind, time.time(), time.monotonic(), more)

    def _catch_up(self) -> None:
        for stored in self._store.events(self._plan.run, self._seen):
            self.state.apply(stored.event, stored.arrived)
            self._seen = stored.id
            if stored.event.job:
                self._due.add(stored.event.job)

    def _renew(self) -> None:
        assert self._lease is not None
        if time.monotonic() - self._renewed > LEASE_S / 3:
            self._store.renew(self._lease, LEASE_S)
            self._renewed = time.monotonic()

    def _leave(self, reason: str) -> None:
        if self._lease is not None:
            self._emit([("", kinds.SUPERVISOR_ENDED, {"reason": reason})])
            self._store.release(self._lease)
            self._catch_up()

    def _counts(self) -> dict[str, int]:
        ends = (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED)
        return {status.value: self.state.count(status) for status in ends}


def process_identity(pid: int) -> str:
    """A process for ever: its id is used again, its id with its start time and boot is not."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        started = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
    return f"{pid}/{started}/{boot}"


def holder_lives(lease: Lease) -> bool:
    """Of another host one cannot know: believed until the lease runs out."""
    return lease.host != socket.gethostname() or process_identity(lease.pid) == lease.holder
