"""What a supervisor does first: find the attempts of earlier supervisors, and repeat their unfinished actions."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from packtrain.engines.api import Engine, SubmitRequest
from packtrain.engines.updates import AttemptUpdate, Gone
from packtrain.errors import UnavailableError
from packtrain.state import Execution, JobState, JobStatus
from packtrain.state.job import HOLD_QUEUE_TIMEOUT
from packtrain.supervise.decisions import Reopen
from packtrain.supervise.executor import DecisionExecutor
from packtrain.supervise.leased_run import LeasedRun
from packtrain.supervise.policies.holds import HOLD_REPEATED_FAILURES

_RECOVER_TIMEOUT_S = 60.0


class RunRecovery:
    """Recovers one run. An unavailable engine is asked again after `retry_interval_s`."""

    def __init__(self, run: LeasedRun, engine: Engine, executor: DecisionExecutor, retry_interval_s: float) -> None:
        self._run, self._engine, self._executor, self._retry_interval_s = run, engine, executor, retry_interval_s

    def recover(self, reopen: bool, submit: bool, should_stop: Callable[[], bool]) -> None:
        """Ask the engine about the attempts of earlier supervisors before any action is repeated.

        Args:
            reopen: Reopen every job that has not succeeded, with a new budget.
            submit: Submit attempts that were decided but that the engine does not know.
            should_stop: Returns whether to give up waiting for the engine.

        Raises:
            UnavailableError: The engine does not answer.
        """
        requests = [self._executor.make_request(job.id, e.attempt_id) for job, e in self._live_executions()]
        updates = self._ask_engine(requests, should_stop)
        self._run.collect(updates)
        if reopen:
            unfinished = [job for job in self._run.state.jobs.values() if job.status is not JobStatus.SUCCEEDED]
            reason = "the user resumed the run"
            self._run.store_decisions([Reopen(job.id, reason, tuple(job.open_requests)) for job in unfinished])
        known_ids = {update.attempt_id for update in updates}
        unknown = [request for request in requests if request.attempt_id not in known_ids]
        unwanted = [request for request in unknown if self._is_unwanted(request)]
        wanted = [request for request in unknown if not self._is_unwanted(request)]
        detail = "the attempt was cancelled before it started"
        self._run.collect([Gone(request.attempt_id, request.job.id, detail=detail) for request in unwanted])
        if submit:
            self._executor.submit(wanted)
        self._repeat_actions()

    def _live_executions(self) -> list[tuple[JobState, Execution]]:
        return [(job, execution) for job in self._run.state.jobs.values() for execution in job.live_executions]

    def _ask_engine(
        self, requests: Sequence[SubmitRequest], should_stop: Callable[[], bool]
    ) -> Sequence[AttemptUpdate]:
        """Call the engine's `recover`, and retry while the engine is unavailable.

        Without its answer, attempts could be started twice.
        """
        deadline = time.monotonic() + _RECOVER_TIMEOUT_S
        while True:
            try:
                return self._engine.recover(requests)
            except UnavailableError:
                if time.monotonic() > deadline or should_stop():
                    raise
            self._run.renew_lease()
            time.sleep(self._retry_interval_s)

    def _is_unwanted(self, request: SubmitRequest) -> bool:
        job = self._run.state.jobs[request.job.id]
        return bool(job.open_requests or job.result) or job.has_cancel_decision(request.attempt_id)

    def _repeat_actions(self) -> None:
        """Repeat decided releases and cancellations: the supervisor that decided them may have died before it acted."""
        to_cancel, to_release = [], []
        for job, execution in self._live_executions():
            decision = _decision_about(job, execution)
            if job.has_cancel_decision(execution.attempt_id) or decision == "give_up":
                to_cancel.append(execution.attempt_id)
            elif decision == "release":
                to_release.append(execution.attempt_id)
        self._engine.cancel(to_cancel)
        self._engine.release(to_release)


def _decision_about(job: JobState, execution: Execution) -> str:
    """Return the decision about the hold of an execution, or about one that fails repeatedly or is not started."""
    if execution.hold:
        return job.hold_decision(execution.hold)
    reasons = (HOLD_REPEATED_FAILURES, HOLD_QUEUE_TIMEOUT)
    return next(filter(None, (job.decision_for(execution.attempt_id, reason) for reason in reasons)), "")
