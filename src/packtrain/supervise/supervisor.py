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

from packtrain.engines.api import AttemptUpdate, Engine, Overrides, SubmitRequest
from packtrain.errors import LeaseLostError, UnavailableError
from packtrain.events import Event, Failure, kinds, new_emitter_id
from packtrain.plan import Plan, RunFolder
from packtrain.state import Execution, ExecutionStatus, JobState, JobStatus, RunState
from packtrain.state.job import HOLD_QUEUE_TIMEOUT
from packtrain.state.run import INFORMATIONAL_KINDS
from packtrain.state.site_history import compute_dataset_id, observations_from_job
from packtrain.store import Lease, Store
from packtrain.supervise.collector import Collector
from packtrain.supervise.decisions import (
    Cancel,
    Decision,
    EndJob,
    GiveUp,
    Move,
    Policy,
    Release,
    Reopen,
    Submit,
    event_from_decision,
)
from packtrain.supervise.policies import (
    PolicyConfig,
    accept_first_success,
    cancel_all,
    cancel_requested,
    hold_policy,
    job_result_policy,
    queue_timeout_policy,
    relax_overrides_policy,
    stop_run_policy,
    straggler_policy,
    submit_policy,
)
from packtrain.supervise.policies.holds import HOLD_REPEATED_FAILURES
from packtrain.supervise.policies.stragglers import check_interval_s

LEASE_TTL_S = 30.0
_RECOVER_TIMEOUT_S, _RECOVER_RETRY_INTERVAL_S = 60.0, 2.0
_MAX_COPY_END_WAIT_S = 120.0
_END_KINDS = frozenset(
    {kinds.ATTEMPT_GONE, kinds.EXECUTION_INTERRUPTED, kinds.JOB_ENDED}
)  # the last: no engine's word may follow


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
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan, self._store, self._engine, self._clock, self._monotonic = plan, store, engine, clock, monotonic
        self._jobs = {job.id: job for job in plan.jobs}
        self._plan_order = {job: place for place, job in enumerate(self._jobs)}
        able = engine.capabilities
        rules = PolicyConfig.from_plan(plan, able)
        self._job_result_policy, self._submit_policy = job_result_policy(rules), submit_policy(rules)
        self._failure_policies: Sequence[Policy] = (
            stop_run_policy(rules),
            hold_policy(rules),
            relax_overrides_policy(rules),
        )
        self._periodic_policies, self._periodic_interval_s, self._next_periodic_at = (
            (queue_timeout_policy(rules), straggler_policy(rules)),
            check_interval_s(rules),
            0.0,
        )
        self._started_at = clock()
        self._collector = Collector(
            store, plan.run, folder, able.has_shared_folder, able.writes_journals, clock, monotonic
        )
        self._emitter, self._seq = new_emitter_id("supervisor"), 0
        self._lease = lease
        self._lease_renewed_at = self._monotonic()
        if lease:
            self._emit_started(lease)
        self._stop_requested, self._handover_requested = threading.Event(), threading.Event()
        self._only_requests = False
        self.state, self._last_event_id = RunState(plan.run, {job.id: JobState(job.id) for job in plan.jobs}), 0
        self._due_job_ids: set[str] = set(self._jobs)
        self._jobs_to_observe: set[str] = (
            set()
        )  # jobs of which an attempt is over, since it was last noted how they fared

    def stop(self) -> None:
        """End the living attempts and leave; the jobs can be resumed. Safe from any thread."""
        self._stop_requested.set()

    def hand_over(self) -> None:
        """Go away at once and let the attempts go on: another supervisor follows. Safe from any thread."""
        self._handover_requested.set()

    @property
    def needs_clock_tick(self) -> bool:
        """Whether time alone may change what is decided."""
        return bool(self._due_job_ids)

    def acquire_lease(self) -> None:
        """Take the lease, or raise RefusedError."""
        self._lease = acquire_lease(self._store, self._plan.run)
        self._lease_renewed_at = self._monotonic()
        self._emit_started(self._lease)

    def _emit_started(self, lease: Lease) -> None:
        self._emit([("", kinds.SUPERVISOR_STARTED, {"host": lease.host, "pid": lease.pid})])

    def run(self, reopen: bool = False, only_requests: bool = False) -> RunState:
        """`reopen`: give every job that has not succeeded a fresh start. `only_requests`: answer what people
        asked for, start nothing, and leave."""
        self._only_requests = only_requests
        if self._lease is None:
            self.acquire_lease()
        reason = "error"
        try:
            self._read_new_events()
            self._recover(reopen)
            reason = self._loop()
        except LeaseLostError:
            self._lease = None
            raise
        finally:
            self._release_lease(reason)
        return self.state

    def _recover(self, reopen: bool) -> None:
        """Ask the engine for what earlier supervisors decided, before anything is done again."""
        live = [
            self._make_request(job.id, a.attempt_id) for job in self.state.jobs.values() for a in job.live_executions
        ]
        known = self._recover_attempts(live)
        self._collector.collect(self.state, known)
        self._read_new_events()
        if reopen:
            lost = [job for job in self.state.jobs.values() if job.status is not JobStatus.SUCCEEDED]
            self._store_decisions(
                [Reopen(job.id, "a person resumed the run", tuple(job.open_requests)) for job in lost]
            )
        found = {sighting.attempt_id for sighting in known}
        self._submit_unknown([ticket for ticket in live if ticket.attempt_id not in found])
        jobs = self.state.jobs.values()
        self._engine.cancel(
            [a.attempt_id for job in jobs for a in job.live_executions if job.has_cancel_decision(a.attempt_id)]
        )
        self._repeat_hold_actions()

    def _recover_attempts(self, requests: Sequence[SubmitRequest]) -> Sequence[AttemptUpdate]:
        """An engine that gives no answer for a moment is asked again: what it knows must not be started twice."""
        deadline = time.monotonic() + _RECOVER_TIMEOUT_S
        while True:
            try:
                return self._engine.recover(requests)
            except UnavailableError:
                if time.monotonic() > deadline or self._stop_requested.is_set() or self._handover_requested.is_set():
                    raise
            self._renew_lease()
            time.sleep(_RECOVER_RETRY_INTERVAL_S)

    def _repeat_hold_actions(self) -> None:
        """What was decided about those that are still held, or are started again in vain, may not have been done."""
        answered: dict[str, list[str]] = {"release": [], "give_up": []}
        for job in self.state.jobs.values():
            for attempt in job.live_executions:
                known = [
                    job.decision_for(attempt.attempt_id, which)
                    for which in (HOLD_REPEATED_FAILURES, HOLD_QUEUE_TIMEOUT)
                ]
                answer = job.hold_decision(attempt.hold) if attempt.hold else next(filter(None, known), "")
                if answer:
                    answered[answer].append(attempt.attempt_id)
        self._engine.release(answered["release"])
        self._engine.cancel(answered["give_up"])

    def _submit_unknown(self, requests: Sequence[SubmitRequest]) -> None:
        """Decided, but not known to the engine: what nobody wants any more is not started."""
        unwanted = [ticket for ticket in requests if self._is_unwanted(ticket)]
        never = "it was cancelled before it started"
        gone = [AttemptUpdate(ticket.attempt_id, ticket.job.id, "gone", detail=never) for ticket in unwanted]
        self._collector.collect(self.state, gone)
        self._read_new_events()
        if not self._only_requests:
            self._submit([ticket for ticket in requests if ticket not in unwanted])

    def _is_unwanted(self, request: SubmitRequest) -> bool:
        job = self.state.jobs[request.job.id]
        return bool(job.open_requests or job.result) or job.has_cancel_decision(request.attempt_id)

    def _loop(self) -> str:
        while True:
            self._collector.collect(self.state, self._engine.poll())
            self._read_new_events()
            self._decide()
            self._store_observations()
            if self.state.is_finished and not self._is_waiting_for_copies():
                self._emit([("", kinds.RUN_ENDED, self._count_results())])
                return "finished"
            if self._stop_requested.is_set() and not any(job.live_executions for job in self.state.jobs.values()):
                return "interrupted"
            if self._only_requests and not any(job.open_requests for job in self.state.jobs.values()):
                return "requests_handled"
            if self._handover_requested.is_set():
                return "handed_over"
            self._renew_lease()
            self._engine.wait(self._engine.capabilities.poll_interval_s)

    def _decide(self) -> None:
        for policy in self._policies():
            decisions = [self._commit_outputs(d) for d in policy(self.state, self._sorted_due_jobs(), self._clock())]
            if decisions:
                self._store_decisions(decisions)
                self._act(decisions)
        jobs = self.state.jobs
        self._due_job_ids = {
            name for name in self._due_job_ids if not jobs[name].result and _needs_clock_tick(jobs[name])
        }

    def _store_observations(self) -> None:
        """How attempts fared at their places, for the runs that follow."""
        jobs, self._jobs_to_observe = sorted(self._jobs_to_observe & self._plan_order.keys()), set()
        name = self._engine.capabilities.name
        if jobs:
            fared = (
                observations_from_job(self._plan.run, self.state.jobs[j], name, compute_dataset_id(self._jobs[j]))
                for j in jobs
            )
            self._store.add_observations(visit for visits in fared for visit in visits)

    def _is_waiting_for_copies(self) -> bool:
        """Attempts that were not needed are seen off; what a pool does not end soon it ends by itself."""
        left = [
            job
            for name in self.state.stats_stale_ok.timing.copied_jobs
            if (job := self.state.jobs[name]).live_executions
        ]
        return any(self._clock() < job.changed_at + _MAX_COPY_END_WAIT_S for job in left)

    def _sorted_due_jobs(self) -> list[str]:
        """In the order of the plan, so that the first jobs start first."""
        return sorted(self._due_job_ids & self._plan_order.keys(), key=self._plan_order.__getitem__)

    def _commit_outputs(self, decision: Decision) -> Decision:
        """Before a job has succeeded its outputs are where they belong: after a crash it is done again."""
        if not isinstance(decision, EndJob) or decision.result is not JobStatus.SUCCEEDED or not decision.emitter:
            return decision
        attempts = self.state.jobs[decision.job].executions
        winner = next(a for a in attempts if a.emitter == decision.emitter)
        try:
            self._engine.commit_outputs([self._make_request(decision.job, winner.attempt_id)])
        except OSError as error:
            failure = Failure.from_kind(
                "upload_failed", "sync", f"the outputs could not be put in their place: {error}"
            )
            return replace(decision, result=JobStatus.FAILED, reason="its outputs are kept", failure=failure)
        return decision

    def _policies(self) -> Sequence[Policy]:
        if self._only_requests:
            return (cancel_requested, accept_first_success, self._job_result_policy)
        last = (cancel_all,) if self._stop_requested.is_set() else (*self._due_periodic_policies(), self._submit_policy)
        return (cancel_requested, accept_first_success, self._job_result_policy, *self._failure_policies, *last)

    def _due_periodic_policies(self) -> Sequence[Policy]:
        """Those that look at everything that runs, now and then; the longer trainings take, the less often."""
        now = self._clock()
        if now < self._next_periodic_at:
            return ()
        known = self.state.stats_stale_ok.timing.median_runtime_s() or math.inf
        usual = min(known, now - self._started_at)  # it takes at least as long, where nothing has ended yet
        self._next_periodic_at = now + max(
            self._periodic_interval_s, usual / self._engine.capabilities.max_straggler_checks
        )
        return self._periodic_policies

    def _act(self, decisions: Sequence[Decision]) -> None:
        self._submit([self._make_request(d.job, d.attempt_id) for d in decisions if isinstance(d, Submit)])
        self._engine.cancel([d.attempt_id for d in decisions if isinstance(d, (Cancel, GiveUp, Move))])
        self._engine.release([d.attempt_id for d in decisions if isinstance(d, Release)])

    def _submit(self, requests: Sequence[SubmitRequest]) -> None:
        if requests:
            names = self._engine.submit(requests)
            site = self._engine.capabilities.name
            said = {
                t.attempt_id: {"attempt": t.attempt_id, "native_id": names.get(t.attempt_id, ""), "site": site}
                for t in requests
            }
            self._emit([(t.job.id, kinds.ATTEMPT_SUBMITTED, said[t.attempt_id]) for t in requests])
            self._read_new_events()

    def _make_request(self, job: str, attempt_id: str) -> SubmitRequest:
        """As it was decided: after a crash the same is asked for."""
        decided = self.state.jobs[job].overrides_for(attempt_id)
        if not decided:
            return SubmitRequest(attempt_id, self._jobs[job])
        amendment = Overrides.from_data(decided)
        return SubmitRequest(attempt_id, amendment.apply_to(self._jobs[job]), amendment)

    def _store_decisions(self, decisions: Sequence[Decision]) -> None:
        self._emit([(decision.job, *event_from_decision(decision)) for decision in decisions])
        self._read_new_events()

    def _emit(self, entries: Sequence[tuple[str, str, dict[str, Any]]]) -> None:
        """Append under the lease: a supervisor whose epoch is over writes, and so does, nothing more."""
        assert self._lease is not None
        self._store.append([self._make_event(*one, self._lease.epoch) for one in entries], lease=self._lease)

    def _make_event(self, job: str, kind: str, data: dict[str, Any], epoch: int) -> Event:
        self._seq += 1
        more = {**data, "epoch": epoch}
        return Event(self._plan.run, job, self._emitter, self._seq, kind, self._clock(), self._monotonic(), more)

    def _read_new_events(self) -> None:
        for stored in self._store.events(self._plan.run, self._last_event_id):
            self.state.apply(stored.event, stored.received_at)
            self._last_event_id = stored.id
            if stored.event.job and stored.event.kind not in INFORMATIONAL_KINDS:
                self._due_job_ids.add(stored.event.job)
            if stored.event.kind in _END_KINDS:
                self._jobs_to_observe.add(stored.event.job)

    def _renew_lease(self) -> None:
        assert self._lease is not None
        if self._monotonic() - self._lease_renewed_at > LEASE_TTL_S / 3:
            self._store.renew_lease(self._lease, LEASE_TTL_S)
            self._lease_renewed_at = self._monotonic()

    def _release_lease(self, reason: str) -> None:
        if self._lease is not None:
            self._emit([("", kinds.SUPERVISOR_ENDED, {"reason": reason})])
            self._store.release_lease(self._lease)
            self._read_new_events()

    def _count_results(self) -> dict[str, int]:
        ends = (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED)
        return {status.value: self.state.count_jobs(status) for status in ends}


def _needs_clock_tick(job: JobState) -> bool:
    """Time alone may change what is decided about it: it waits for its next attempt, is kept back, or was asked for
    otherwise than planned."""
    if job.is_newly_submitted:
        return False
    live = job.live_executions
    return not live or any(a.status is ExecutionStatus.HELD or (a.overrides and _is_waiting(a)) for a in live)


def _is_waiting(execution: Execution) -> bool:
    return execution.status in (ExecutionStatus.SUBMITTING, ExecutionStatus.QUEUED)


def acquire_lease(store: Store, run: str) -> Lease:
    """The right to supervise, for this process. Raises RefusedError."""
    host, pid = socket.gethostname(), os.getpid()
    return store.acquire_lease(run, process_identity(pid), host, pid, LEASE_TTL_S, is_holder_alive)


def process_identity(pid: int) -> str:
    """A process for ever: its id is used again, its id with its start time, boot and namespace of processes is not."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        started = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
    return f"{pid}/{started}/{boot}/{_pid_namespace()}"


def _pid_namespace() -> str:
    """Process ids mean something within it only; a schedd may run its jobs in another one than the shell's."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def is_holder_alive(lease: Lease) -> bool:
    """Of another host, or of a process that cannot be seen from here, one cannot know: believed until the lease runs
    out."""
    hidden = lease.holder.rpartition("/")[2] != _pid_namespace()
    return lease.host != socket.gethostname() or hidden or process_identity(lease.pid) == lease.holder
