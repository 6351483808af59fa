"""The supervisor of a run. It keeps no state of its own: everything it knows, it reads back from the store."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from packtrain.engines.api import Engine, Overrides, SubmitRequest
from packtrain.engines.updates import AttemptUpdate, Gone
from packtrain.errors import LeaseLostError, UnavailableError
from packtrain.events import Event, Failure, kinds, new_emitter_id
from packtrain.plan import Plan, RunFolder
from packtrain.state import Execution, ExecutionStatus, JobState, JobStatus, RunState
from packtrain.state.job import HOLD_QUEUE_TIMEOUT
from packtrain.state.run import INFORMATIONAL_KINDS
from packtrain.state.site_history import compute_dataset_id, observations_from_job
from packtrain.state.transitions import FINAL_STATUSES
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
from packtrain.supervise.lease import LEASE_TTL_S, acquire_lease
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

_RECOVER_TIMEOUT_S, _RECOVER_RETRY_INTERVAL_S = 60.0, 2.0
_MAX_COPY_END_WAIT_S = 120.0
# After these events an execution may have ended. A job may end before the engine reports its last execution.
_END_KINDS = frozenset({kinds.ATTEMPT_GONE, kinds.EXECUTION_INTERRUPTED, kinds.JOB_ENDED})


class Supervisor:
    """Runs all jobs of a plan until each has a result.

    Args:
        plan: The plan of the run.
        folder: The run folder.
        store: The store with the events of the run.
        engine: The engine that runs the attempts.
        clock: Returns the Unix time.
        lease: The lease of the run, if the caller has already acquired it.
        monotonic: Returns the monotonic time in seconds.
    """

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
        self._plan_order = {job_id: position for position, job_id in enumerate(self._jobs)}
        capabilities = engine.capabilities
        config = PolicyConfig.from_plan(plan, capabilities)
        self._job_result_policy, self._submit_policy = job_result_policy(config), submit_policy(config)
        self._failure_policies: Sequence[Policy] = (
            stop_run_policy(config),
            hold_policy(config),
            relax_overrides_policy(config),
        )
        self._periodic_policies: Sequence[Policy] = (queue_timeout_policy(config), straggler_policy(config))
        self._periodic_interval_s, self._next_periodic_at = check_interval_s(config), 0.0
        self._started_at = clock()
        self._collector = Collector(
            store, plan.run, folder, capabilities.has_shared_folder, capabilities.writes_journals, clock, monotonic
        )
        self._emitter, self._seq = new_emitter_id("supervisor"), 0
        self._lease = lease
        self._lease_renewed_at = self._monotonic()
        if lease:
            self._emit_started(lease)
        self._stop_requested, self._handover_requested = threading.Event(), threading.Event()
        self._only_requests = False
        self.state, self._last_event_id = RunState(plan.run, [job.id for job in plan.jobs]), 0
        self._due_job_ids: set[str] = set(self._jobs)
        self._jobs_to_observe: set[str] = set()  # an execution ended since their observations were stored

    def stop(self) -> None:
        """End all live attempts, then return from `run`. The run can be resumed. Safe to call from any thread."""
        self._stop_requested.set()

    def hand_over(self) -> None:
        """Return from `run` and let the attempts continue, for another supervisor. Safe to call from any thread."""
        self._handover_requested.set()

    @property
    def needs_clock_tick(self) -> bool:
        """Whether policies may decide something new because time passes, without a new event."""
        return bool(self._due_job_ids)

    def acquire_lease(self) -> None:
        """Acquire the lease of the run.

        Raises:
            UnavailableError: Another supervisor holds it.
        """
        self._lease = acquire_lease(self._store, self._plan.run)
        self._lease_renewed_at = self._monotonic()
        self._emit_started(self._lease)

    def _emit_started(self, lease: Lease) -> None:
        self._emit([("", kinds.SUPERVISOR_STARTED, {"host": lease.host, "pid": lease.pid})])

    def run(self, reopen: bool = False, only_requests: bool = False) -> RunState:
        """Supervise the run until every job has a result, or until `stop` or `hand_over` is called.

        Args:
            reopen: Reopen every job that has not succeeded, with a new budget.
            only_requests: Handle the requests of users, submit nothing, and return.
        """
        self._only_requests = only_requests
        if self._lease is None:
            self.acquire_lease()
        end_reason = "error"
        try:
            self._read_new_events()
            self._recover(reopen)
            end_reason = self._loop()
        except LeaseLostError:
            self._lease = None
            raise
        finally:
            self._release_lease(end_reason)
        return self.state

    def _recover(self, reopen: bool) -> None:
        """Ask the engine about the attempts of earlier supervisors before any action is repeated."""
        requests = [
            self._make_request(job.id, e.attempt_id) for job in self.state.jobs.values() for e in job.live_executions
        ]
        updates = self._recover_attempts(requests)
        self._collector.collect(self.state, updates)
        self._read_new_events()
        if reopen:
            unfinished = [job for job in self.state.jobs.values() if job.status is not JobStatus.SUCCEEDED]
            self._store_decisions(
                [Reopen(job.id, "the user resumed the run", tuple(job.open_requests)) for job in unfinished]
            )
        known_ids = {update.attempt_id for update in updates}
        self._submit_unknown([request for request in requests if request.attempt_id not in known_ids])
        jobs = self.state.jobs.values()
        self._engine.cancel(
            [e.attempt_id for job in jobs for e in job.live_executions if job.has_cancel_decision(e.attempt_id)]
        )
        self._repeat_hold_actions()

    def _recover_attempts(self, requests: Sequence[SubmitRequest]) -> Sequence[AttemptUpdate]:
        """Call the engine's `recover`, and retry while the engine is unavailable.

        Without its answer, attempts could be started twice.
        """
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
        """Repeat decided releases and cancellations: the supervisor that decided them may have died before it acted."""
        attempt_ids: dict[str, list[str]] = {"release": [], "give_up": []}
        for job in self.state.jobs.values():
            for execution in job.live_executions:
                other_decisions = [
                    job.decision_for(execution.attempt_id, number)
                    for number in (HOLD_REPEATED_FAILURES, HOLD_QUEUE_TIMEOUT)
                ]
                decision = (
                    job.hold_decision(execution.hold) if execution.hold else next(filter(None, other_decisions), "")
                )
                if decision:
                    attempt_ids[decision].append(execution.attempt_id)
        self._engine.release(attempt_ids["release"])
        self._engine.cancel(attempt_ids["give_up"])

    def _submit_unknown(self, requests: Sequence[SubmitRequest]) -> None:
        """Submit attempts that were decided but that the engine does not know, unless they are no longer wanted."""
        unwanted = [request for request in requests if self._is_unwanted(request)]
        detail = "the attempt was cancelled before it started"
        gone = [Gone(request.attempt_id, request.job.id, detail=detail) for request in unwanted]
        self._collector.collect(self.state, gone)
        self._read_new_events()
        if not self._only_requests:
            self._submit([request for request in requests if request not in unwanted])

    def _is_unwanted(self, request: SubmitRequest) -> bool:
        job = self.state.jobs[request.job.id]
        return bool(job.open_requests or job.result) or job.has_cancel_decision(request.attempt_id)

    def _loop(self) -> str:
        """Collect, decide and act until the end. Return the reason for the end."""
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
            job_id for job_id in self._due_job_ids if not jobs[job_id].result and _needs_clock_tick(jobs[job_id])
        }

    def _store_observations(self) -> None:
        """Store how executions ended at their sites, for later runs."""
        job_ids, self._jobs_to_observe = sorted(self._jobs_to_observe & self._plan_order.keys()), set()
        engine_name = self._engine.capabilities.name
        if job_ids:
            self._store.add_observations(
                observation
                for job_id in job_ids
                for observation in observations_from_job(
                    self._plan.run, self.state.jobs[job_id], engine_name, compute_dataset_id(self._jobs[job_id])
                )
            )

    def _is_waiting_for_copies(self) -> bool:
        """Return whether superseded attempts of finished jobs may still end soon. The wait is limited."""
        copied_jobs = (self.state.jobs[job_id] for job_id in self.state.stats_stale_ok.timing.copied_jobs)
        ending = [job for job in copied_jobs if job.live_executions]
        return any(self._clock() < job.changed_at + _MAX_COPY_END_WAIT_S for job in ending)

    def _sorted_due_jobs(self) -> list[str]:
        """Return the due jobs in the order of the plan, so that the first jobs are submitted first."""
        return sorted(self._due_job_ids & self._plan_order.keys(), key=self._plan_order.__getitem__)

    def _commit_outputs(self, decision: Decision) -> Decision:
        """Commit the outputs of a job before it becomes `succeeded`. After a crash this is repeated."""
        if not isinstance(decision, EndJob) or decision.result is not JobStatus.SUCCEEDED or not decision.emitter:
            return decision
        executions = self.state.jobs[decision.job].executions
        winner = next(e for e in executions if e.emitter == decision.emitter)
        try:
            self._engine.commit_outputs([self._make_request(decision.job, winner.attempt_id)])
        except OSError as error:
            failure = Failure.from_kind(
                "upload_failed", "sync", f"cannot move the outputs to their destination: {error}"
            )
            reason = "the outputs are kept in the attempt's folder"
            return replace(decision, result=JobStatus.FAILED, reason=reason, failure=failure)
        return decision

    def _policies(self) -> Sequence[Policy]:
        if self._only_requests:
            return (cancel_requested, accept_first_success, self._job_result_policy)
        last = (cancel_all,) if self._stop_requested.is_set() else (*self._due_periodic_policies(), self._submit_policy)
        return (cancel_requested, accept_first_success, self._job_result_policy, *self._failure_policies, *last)

    def _due_periodic_policies(self) -> Sequence[Policy]:
        """Return the policies that check all running jobs. The longer trainings take, the less often they are due."""
        now = self._clock()
        if now < self._next_periodic_at:
            return ()
        median_s = self.state.stats_stale_ok.timing.median_runtime_s() or math.inf
        runtime_s = min(median_s, now - self._started_at)  # a lower bound if no training has ended yet
        self._next_periodic_at = now + max(
            self._periodic_interval_s, runtime_s / self._engine.capabilities.max_straggler_checks
        )
        return self._periodic_policies

    def _act(self, decisions: Sequence[Decision]) -> None:
        self._submit([self._make_request(d.job, d.attempt_id) for d in decisions if isinstance(d, Submit)])
        self._engine.cancel([d.attempt_id for d in decisions if isinstance(d, (Cancel, GiveUp, Move))])
        self._engine.release([d.attempt_id for d in decisions if isinstance(d, Release)])

    def _submit(self, requests: Sequence[SubmitRequest]) -> None:
        if requests:
            native_ids = self._engine.submit(requests)
            site = self._engine.capabilities.name
            entries = [
                (
                    request.job.id,
                    kinds.ATTEMPT_SUBMITTED,
                    {
                        "attempt": request.attempt_id,
                        "native_id": native_ids.get(request.attempt_id, ""),
                        "site": site,
                    },
                )
                for request in requests
            ]
            self._emit(entries)
            self._read_new_events()

    def _make_request(self, job: str, attempt_id: str) -> SubmitRequest:
        """Return the request for an attempt, with the overrides that were decided. It is the same after a crash."""
        data = self.state.jobs[job].overrides_for(attempt_id)
        if not data:
            return SubmitRequest(attempt_id, self._jobs[job])
        overrides = Overrides.from_data(data)
        return SubmitRequest(attempt_id, overrides.apply_to(self._jobs[job]), overrides)

    def _store_decisions(self, decisions: Sequence[Decision]) -> None:
        self._emit([(decision.job, *event_from_decision(decision)) for decision in decisions])
        self._read_new_events()

    def _emit(self, entries: Sequence[tuple[str, str, dict[str, Any]]]) -> None:
        """Append events under the lease. A supervisor that lost its lease cannot write, and so does not act."""
        assert self._lease is not None
        self._store.append([self._make_event(*entry, self._lease.epoch) for entry in entries], lease=self._lease)

    def _make_event(self, job: str, kind: str, data: dict[str, Any], epoch: int) -> Event:
        self._seq += 1
        event_data = {**data, "epoch": epoch}
        return Event(self._plan.run, job, self._emitter, self._seq, kind, self._clock(), self._monotonic(), event_data)

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
        return {status.value: self.state.count_jobs(status) for status in FINAL_STATUSES}


def _needs_clock_tick(job: JobState) -> bool:
    """Return whether policies may decide something about a job because time passes.

    That is the case while it waits for its next attempt, is held, or waits in the queue with overrides.
    """
    live = job.live_executions
    return not live or any(e.status is ExecutionStatus.HELD or (e.overrides and _is_waiting(e)) for e in live)


def _is_waiting(execution: Execution) -> bool:
    return execution.status in (ExecutionStatus.SUBMITTING, ExecutionStatus.QUEUED)
