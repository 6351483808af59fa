"""The supervisor: one per run, by lease. Everything it knows it reads back from the store."""

from __future__ import annotations

import math
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from packtrain.engines.api import Amendment, Engine, Sighting, Ticket
from packtrain.errors import LeaseLostError, RefusedError
from packtrain.events import Event, Failure, kinds, new_emitter
from packtrain.plan import Plan, RunFolder
from packtrain.state import Attempt, AttemptStatus, JobState, JobStatus, RunState
from packtrain.state.job import NO_MACHINE
from packtrain.state.run import QUIET
from packtrain.state.site_history import dataset_of, visits_of
from packtrain.store import Lease, Store
from packtrain.supervise.collector import Collector
from packtrain.supervise.decisions import Cancel, Decision, End, GiveUp, Move, Policy, Release, Reopen, Submit, event_of
from packtrain.supervise.policies import (
    Rules,
    cancel_everything,
    cancel_requested,
    halt,
    holds,
    loosen,
    patience,
    settle,
    start,
    stragglers,
    verdict,
)
from packtrain.supervise.policies.holds import NO_HOLD
from packtrain.supervise.policies.stragglers import pause_of

LEASE_S = 30.0
_PATIENCE_S, _PAUSE_S = 60.0, 2.0
_SEEN_OFF_S = 120.0
_ENDS = frozenset({kinds.ATTEMPT_GONE, kinds.ATTEMPT_STOPPED, kinds.JOB_ENDED})  # the last: no engine's word may follow


class Supervisor:
    """`run()` returns when every job has its verdict, or after `stop()` when no attempt is alive."""

    def __init__(
        self,
        plan: Plan,
        folder: RunFolder,
        store: Store,
        engine: Engine,
        clock: Callable[[], float] = time.time,
        lease: Lease | None = None,
        mono: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan, self._store, self._engine, self._clock, self._mono = plan, store, engine, clock, mono
        self._jobs = {job.id: job for job in plan.jobs}
        self._places = {job: place for place, job in enumerate(self._jobs)}
        able = engine.capabilities
        rules = Rules.of(plan, able)
        self._verdict, self._start = verdict(rules), start(rules)
        self._care: Sequence[Policy] = (halt(rules), holds(rules), loosen(rules))
        self._looks, self._survey_s, self._next_survey = (patience(rules), stragglers(rules)), pause_of(rules), 0.0
        self._began = clock()
        self._collector = Collector(store, plan.run, folder, able.shares_folder, able.journals, clock, mono)
        self._emitter, self._seq = new_emitter("supervisor"), 0
        self._lease = lease
        self._renewed = self._mono()
        if lease:
            self._tell_start(lease)
        self._stop, self._left = threading.Event(), threading.Event()
        self._only_requests = False
        self.state, self._seen = RunState(plan.run, {job.id: JobState(job.id) for job in plan.jobs}), 0
        self._due: set[str] = set(self._jobs)
        self._ended: set[str] = set()  # jobs of which an attempt is over, since it was last noted how they fared

    def stop(self) -> None:
        """End the living attempts and leave; the jobs can be resumed. Safe from any thread."""
        self._stop.set()

    def leave(self) -> None:
        """Go away at once and let the attempts go on: another supervisor follows. Safe from any thread."""
        self._left.set()

    @property
    def restless(self) -> bool:
        """Whether time alone may change what is decided."""
        return bool(self._due)

    def acquire(self) -> None:
        """Take the lease, or raise RefusedError."""
        self._lease = take_lease(self._store, self._plan.run)
        self._renewed = self._mono()
        self._tell_start(self._lease)

    def _tell_start(self, lease: Lease) -> None:
        self._emit([("", kinds.SUPERVISOR_STARTED, {"host": lease.host, "pid": lease.pid})])

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
        known = self._look(live)
        self._collector.collect(self.state, known)
        self._catch_up()
        if reopen:
            lost = [job for job in self.state.jobs.values() if job.status is not JobStatus.SUCCEEDED]
            self._write([Reopen(job.id, "a person resumed the run", tuple(job.open_requests)) for job in lost])
        found = {sighting.decision for sighting in known}
        self._take_up([ticket for ticket in live if ticket.decision not in found])
        jobs = self.state.jobs.values()
        self._engine.cancel([a.decision for job in jobs for a in job.live if job.cancel_decided(a.decision)])
        self._answer_holds_again()

    def _look(self, tickets: Sequence[Ticket]) -> Sequence[Sighting]:
        """An engine that gives no answer for a moment is asked again: what it knows must not be started twice."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return self._engine.look(tickets)
            except RefusedError:
                if time.monotonic() > deadline or self._stop.is_set() or self._left.is_set():
                    raise
            self._renew()
            time.sleep(_PAUSE_S)

    def _answer_holds_again(self) -> None:
        """What was decided about those that are still held, or are started again in vain, may not have been done."""
        answered: dict[str, list[str]] = {"release": [], "give_up": []}
        for job in self.state.jobs.values():
            for attempt in job.live:
                known = [job.answer(attempt.decision, which) for which in (NO_HOLD, NO_MACHINE)]
                answer = job.answer_to(attempt.hold) if attempt.hold else next(filter(None, known), "")
                if answer:
                    answered[answer].append(attempt.decision)
        self._engine.release(answered["release"])
        self._engine.cancel(answered["give_up"])

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
        return bool(job.open_requests or job.verdict) or job.cancel_decided(ticket.decision)

    def _loop(self) -> str:
        while True:
            self._collector.collect(self.state, self._engine.poll())
            self._catch_up()
            self._decide()
            self._note_visits()
            if self.state.finished and not self._awaits_end():
                self._emit([("", kinds.RUN_ENDED, self._counts())])
                return "finished"
            if self._stop.is_set() and not any(job.live for job in self.state.jobs.values()):
                return "interrupted"
            if self._only_requests and not any(job.open_requests for job in self.state.jobs.values()):
                return "answered"
            if self._left.is_set():
                return "left"
            self._renew()
            self._engine.wait(self._engine.capabilities.pause_s)

    def _decide(self) -> None:
        for policy in self._policies():
            decisions = [self._accepted(d) for d in policy(self.state, self._due_jobs(), self._clock())]
            if decisions:
                self._write(decisions)
                self._act(decisions)
        jobs = self.state.jobs
        self._due = {name for name in self._due if not jobs[name].verdict and _needs_looks(jobs[name])}

    def _note_visits(self) -> None:
        """How attempts fared at their places, for the runs that follow."""
        jobs, self._ended = sorted(self._ended & self._places.keys()), set()
        name = self._engine.capabilities.name
        if jobs:
            fared = (visits_of(self._plan.run, self.state.jobs[j], name, dataset_of(self._jobs[j])) for j in jobs)
            self._store.note(visit for visits in fared for visit in visits)

    def _awaits_end(self) -> bool:
        """Attempts that were not needed are seen off; what a pool does not end soon it ends by itself."""
        left = [job for name in self.state.outcomes.pace.copied if (job := self.state.jobs[name]).live]
        return any(self._clock() < job.changed_at + _SEEN_OFF_S for job in left)

    def _due_jobs(self) -> list[str]:
        """In the order of the plan, so that the first jobs start first."""
        return sorted(self._due & self._places.keys(), key=self._places.__getitem__)

    def _accepted(self, decision: Decision) -> Decision:
        """Before a job has succeeded its outputs are where they belong: after a crash it is done again."""
        if not isinstance(decision, End) or decision.verdict is not JobStatus.SUCCEEDED or not decision.emitter:
            return decision
        attempts = self.state.jobs[decision.job].attempts
        winner = next(a for a in attempts if a.emitter == decision.emitter)
        try:
            self._engine.accept([self._ticket(decision.job, winner.decision)])
        except OSError as error:
            failure = Failure.of("sink_failed", "sync", f"the outputs could not be put in their place: {error}")
            return replace(decision, verdict=JobStatus.FAILED, reason="its outputs are kept", failure=failure)
        return decision

    def _policies(self) -> Sequence[Policy]:
        if self._only_requests:
            return (cancel_requested, settle, self._verdict)
        last = (cancel_everything,) if self._stop.is_set() else (*self._surveys(), self._start)
        return (cancel_requested, settle, self._verdict, *self._care, *last)

    def _surveys(self) -> Sequence[Policy]:
        """Those that look at everything that runs, now and then; the longer trainings take, the less often."""
        now = self._clock()
        if now < self._next_survey:
            return ()
        known = self.state.outcomes.pace.usual_s() or math.inf
        usual = min(known, now - self._began)  # it takes at least as long, where nothing has ended yet
        self._next_survey = now + max(self._survey_s, usual / self._engine.capabilities.surveys)
        return self._looks

    def _act(self, decisions: Sequence[Decision]) -> None:
        self._submit([self._ticket(d.job, d.id) for d in decisions if isinstance(d, Submit)])
        self._engine.cancel([d.target for d in decisions if isinstance(d, (Cancel, GiveUp, Move))])
        self._engine.release([d.target for d in decisions if isinstance(d, Release)])

    def _submit(self, tickets: Sequence[Ticket]) -> None:
        if tickets:
            names = self._engine.submit(tickets)
            site = self._engine.capabilities.name
            said = {t.decision: {"id": t.decision, "native": names.get(t.decision, ""), "site": site} for t in tickets}
            self._emit([(t.job.id, kinds.CONFIRMED, said[t.decision]) for t in tickets])
            self._catch_up()

    def _ticket(self, job: str, decision: str) -> Ticket:
        """As it was decided: after a crash the same is asked for."""
        decided = self.state.jobs[job].amendment_of(decision)
        if not decided:
            return Ticket(decision, self._jobs[job])
        amendment = Amendment.from_data(decided)
        return Ticket(decision, amendment.of(self._jobs[job]), amendment)

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
        return Event(self._plan.run, job, self._emitter, self._seq, kind, self._clock(), self._mono(), more)

    def _catch_up(self) -> None:
        for stored in self._store.events(self._plan.run, self._seen):
            self.state.apply(stored.event, stored.arrived)
            self._seen = stored.id
            if stored.event.job and stored.event.kind not in QUIET:
                self._due.add(stored.event.job)
            if stored.event.kind in _ENDS:
                self._ended.add(stored.event.job)

    def _renew(self) -> None:
        assert self._lease is not None
        if self._mono() - self._renewed > LEASE_S / 3:
            self._store.renew(self._lease, LEASE_S)
            self._renewed = self._mono()

    def _leave(self, reason: str) -> None:
        if self._lease is not None:
            self._emit([("", kinds.SUPERVISOR_ENDED, {"reason": reason})])
            self._store.release(self._lease)
            self._catch_up()

    def _counts(self) -> dict[str, int]:
        ends = (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED)
        return {status.value: self.state.count(status) for status in ends}


def _needs_looks(job: JobState) -> bool:
    """Time alone may change what is decided about it: it waits for its next attempt, is kept back, or was asked for
    otherwise than planned."""
    if job.is_fresh:
        return False
    live = job.live
    return not live or any(a.status is AttemptStatus.HELD or (a.amendment and _is_idle(a)) for a in live)


def _is_idle(attempt: Attempt) -> bool:
    return attempt.status in (AttemptStatus.DECIDED, AttemptStatus.QUEUED)


def take_lease(store: Store, run: str) -> Lease:
    """The right to supervise, for this process. Raises RefusedError."""
    host, pid = socket.gethostname(), os.getpid()
    return store.acquire(run, process_identity(pid), host, pid, LEASE_S, holder_lives)


def process_identity(pid: int) -> str:
    """A process for ever: its id is used again, its id with its start time, boot and namespace of processes is not."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        started = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
    return f"{pid}/{started}/{boot}/{_namespace()}"


def _namespace() -> str:
    """Process ids mean something within it only; a schedd may run its jobs in another one than the shell's."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def holder_lives(lease: Lease) -> bool:
    """Of another host, or of a process that cannot be seen from here, one cannot know: believed until the lease runs
    out."""
    hidden = lease.holder.rpartition("/")[2] != _namespace()
    return lease.host != socket.gethostname() or hidden or process_identity(lease.pid) == lease.holder
