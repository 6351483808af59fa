"""The supervisor of a run: polls the engine, stores what it reports, asks the policies, and acts, until the end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from packtrain.engines.api import Engine
from packtrain.errors import LeaseLostError
from packtrain.events import kinds
from packtrain.plan import Plan, RunFolder
from packtrain.state import Execution, ExecutionStatus, JobState, RunState
from packtrain.state.site_history import compute_dataset_id, observations_from_job
from packtrain.state.transitions import FINAL_STATUSES
from packtrain.store import Lease, Store
from packtrain.supervise.collector import Collector
from packtrain.supervise.executor import DecisionExecutor
from packtrain.supervise.leased_run import LeasedRun
from packtrain.supervise.policy_schedule import PolicySchedule
from packtrain.supervise.recovery import RunRecovery

if TYPE_CHECKING:
    from packtrain.publication.publisher import Publisher

_logger = logging.getLogger("packtrain.supervise")
_MAX_COPY_END_WAIT_S = 120.0


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
        recover_retry_interval_s: How long to wait at the start before an unavailable engine is asked again.
        state: An empty state that the events are folded to, for simulations that need another kind of state.
        publisher: Publishes the outputs of accepted attempts; None: only the engine moves outputs.
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
        recover_retry_interval_s: float = 2.0,
        state: RunState | None = None,
        publisher: Publisher | None = None,
    ) -> None:
        self._plan, self._store, self._engine, self._clock = plan, store, engine, clock
        self._jobs = {job.id: job for job in plan.jobs}
        self._plan_order = {job_id: position for position, job_id in enumerate(self._jobs)}
        self._stop_requested, self._handover_requested = threading.Event(), threading.Event()
        capabilities = engine.capabilities
        collector = Collector(
            store, plan.run, folder, capabilities.has_shared_folder, capabilities.writes_journals, clock, monotonic
        )
        state = RunState(plan.run, self._jobs) if state is None else state
        self._run = LeasedRun(store, plan.run, state, collector, lease, clock, monotonic)
        self._policies = PolicySchedule(plan, capabilities, clock())
        self._publisher = publisher
        self._executor = DecisionExecutor(plan, self._run, engine, publisher)
        self._recovery = RunRecovery(self._run, engine, self._executor, recover_retry_interval_s)
        self._only_requests = False

    @property
    def state(self) -> RunState:
        """The state of the run."""
        return self._run.state

    def stop(self) -> None:
        """End all live attempts, then return from `run`. The run can be resumed. Safe to call from any thread."""
        self._stop_requested.set()

    def hand_over(self) -> None:
        """Return from `run` and let the attempts continue, for another supervisor. Safe to call from any thread."""
        self._handover_requested.set()

    def _should_return(self) -> bool:
        return self._stop_requested.is_set() or self._handover_requested.is_set()

    @property
    def needs_clock_tick(self) -> bool:
        """Whether policies may decide something new because time passes, without a new event."""
        return bool(self._run.changed_job_ids)

    def acquire_lease(self) -> None:
        """Acquire the lease of the run.

        Raises:
            UnavailableError: Another supervisor holds it.
        """
        self._run.acquire_lease()

    def run(self, reopen: bool = False, only_requests: bool = False) -> RunState:
        """Supervise the run until every job has a result, or until `stop` or `hand_over` is called.

        Args:
            reopen: Reopen every job that has not succeeded, with a new budget.
            only_requests: Handle the requests of users, submit nothing, and return.
        """
        self._only_requests = only_requests
        self._run.acquire_lease()
        end_reason = "error"
        try:
            self._run.read_new_events()
            self._recovery.recover(reopen, not only_requests, self._should_return)
            end_reason = self._loop()
        except LeaseLostError:
            self._run.forget_lease()
            raise
        finally:
            if self._publisher is not None:
                self._publisher.close()
            self._release_lease(end_reason)
        return self.state

    def _release_lease(self, reason: str) -> None:
        self._run.release_lease(reason)

    def _loop(self) -> str:
        """Collect, decide and act until the end. Return the reason for the end."""
        while True:
            updates = self._engine.poll()
            _logger.debug("poll: %d updates", len(updates))
            self._run.collect(updates)
            self._decide()
            self._store_observations()
            if self.state.is_finished and not self._is_waiting_for_copies():
                results = {status.value: self.state.count_jobs(status) for status in FINAL_STATUSES}
                self._run.emit([("", kinds.RUN_ENDED, results)])
                return "finished"
            is_publishing = self._publisher is not None and self._publisher.is_publishing()
            jobs = self.state.jobs.values()
            if self._stop_requested.is_set() and not (is_publishing or any(job.live_executions for job in jobs)):
                return "interrupted"
            if self._only_requests and not (is_publishing or any(job.open_requests for job in jobs)):
                return "requests_handled"
            if self._handover_requested.is_set():
                return "handed_over"
            self._run.renew_lease()
            self._wait()

    def _wait(self) -> None:
        """Wait until the engine or the publisher may have news."""
        timeout_s = self._engine.capabilities.poll_interval_s
        if self._publisher is None:
            self._engine.wait(timeout_s)
            return
        self._publisher.show_intermediate(self.state.jobs.values(), self._run.is_lease_current)
        if self._publisher.is_publishing():
            self._publisher.wait(timeout_s)
        else:
            self._engine.wait(timeout_s)
        self._run.changed_job_ids.update(self._publisher.finished_jobs())

    def _decide(self) -> None:
        now, is_stopping = self._clock(), self._stop_requested.is_set()
        for policy in self._policies.due(self.state, now, self._only_requests, is_stopping):
            decisions = policy(self.state, self._sorted_changed_jobs(), self._clock())
            if decisions:
                self._executor.execute(decisions)
        jobs = self.state.jobs
        self._run.changed_job_ids = {
            job_id
            for job_id in self._run.changed_job_ids
            if not jobs[job_id].result and _needs_clock_tick(jobs[job_id])
        }

    def _sorted_changed_jobs(self) -> list[str]:
        """Return the changed jobs in the order of the plan, so that the first jobs are submitted first."""
        return sorted(self._run.changed_job_ids & self._plan_order.keys(), key=self._plan_order.__getitem__)

    def _store_observations(self) -> None:
        """Store how executions ended at their sites, for later runs."""
        job_ids, self._run.ended_job_ids = sorted(self._run.ended_job_ids & self._jobs.keys()), set()
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


def _needs_clock_tick(job: JobState) -> bool:
    """Return whether policies may decide something about a job because time passes.

    That is the case while it waits for its next attempt, is held, or waits in the queue with overrides.
    """
    live = job.live_executions
    return not live or any(e.status is ExecutionStatus.HELD or (e.overrides and _is_waiting(e)) for e in live)


def _is_waiting(execution: Execution) -> bool:
    return execution.status in (ExecutionStatus.SUBMITTING, ExecutionStatus.QUEUED)
