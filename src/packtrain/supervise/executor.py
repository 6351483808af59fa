"""Carries out decisions: stores each one, then calls the engine."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from packtrain.engines.api import Engine, Overrides, SubmitRequest
from packtrain.events import Failure, kinds
from packtrain.plan import Plan
from packtrain.state import JobStatus
from packtrain.supervise.decisions import Cancel, Decision, EndJob, GiveUp, Move, Release, Submit
from packtrain.supervise.leased_run import LeasedRun

_logger = logging.getLogger("packtrain.supervise")


class DecisionExecutor:
    """Carries out the decisions about one run."""

    def __init__(self, plan: Plan, run: LeasedRun, engine: Engine) -> None:
        self._run, self._engine = run, engine
        self._jobs = {job.id: job for job in plan.jobs}

    def execute(self, decisions: Sequence[Decision]) -> None:
        """Store decisions and act on them. A supervisor that lost its lease gets LeaseLostError and does not act."""
        self._run.store_decisions([self._commit_outputs(decision) for decision in decisions])
        self.submit([self.make_request(d.job, d.attempt_id) for d in decisions if isinstance(d, Submit)])
        self._engine.cancel([d.attempt_id for d in decisions if isinstance(d, (Cancel, GiveUp, Move))])
        self._engine.release([d.attempt_id for d in decisions if isinstance(d, Release)])

    def submit(self, requests: Sequence[SubmitRequest]) -> None:
        """Submit attempts whose decisions are stored, and store that the engine has them."""
        if not requests:
            return
        native_ids, site = self._engine.submit(requests), self._engine.capabilities.name
        _logger.debug("submitted %d attempts, %d have a native id", len(requests), len(native_ids))
        data = [
            {"attempt": r.attempt_id, "native_id": native_ids.get(r.attempt_id, ""), "site": site} for r in requests
        ]
        self._run.emit([(r.job.id, kinds.ATTEMPT_SUBMITTED, d) for r, d in zip(requests, data, strict=True)])
        self._run.read_new_events()

    def make_request(self, job: str, attempt_id: str) -> SubmitRequest:
        """Return the request for an attempt, with the overrides that were decided. It is the same after a crash."""
        data = self._run.state.jobs[job].overrides_for(attempt_id)
        if not data:
            return SubmitRequest(attempt_id, self._jobs[job])
        overrides = Overrides.from_data(data)
        return SubmitRequest(attempt_id, overrides.apply_to(self._jobs[job]), overrides)

    def _commit_outputs(self, decision: Decision) -> Decision:
        """Commit the outputs of a job before it becomes `succeeded`. After a crash this is repeated."""
        if not isinstance(decision, EndJob) or decision.result is not JobStatus.SUCCEEDED or not decision.emitter:
            return decision
        executions = self._run.state.jobs[decision.job].executions
        winner = next(e for e in executions if e.emitter == decision.emitter)
        try:
            self._engine.commit_outputs([self.make_request(decision.job, winner.attempt_id)])
        except OSError as error:
            failure = Failure.from_kind(
                "upload_failed", "sync", f"cannot move the outputs to their destination: {error}"
            )
            reason = "the outputs are kept in the attempt's folder"
            return replace(decision, result=JobStatus.FAILED, reason=reason, failure=failure)
        return decision
