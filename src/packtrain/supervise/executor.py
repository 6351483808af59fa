"""Carries out decisions: stores each one, then calls the engine."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from packtrain.engines.api import Engine, Overrides, SubmitRequest
from packtrain.events import Failure, kinds
from packtrain.plan import Plan
from packtrain.state import Execution, JobStatus
from packtrain.supervise.decisions import Accept, Cancel, Decision, EndJob, GiveUp, Move, Release, Submit
from packtrain.supervise.leased_run import LeasedRun

if TYPE_CHECKING:
    from packtrain.publication.publisher import Publisher

_logger = logging.getLogger("packtrain.supervise")


class DecisionExecutor:
    """Carries out the decisions about one run."""

    def __init__(self, plan: Plan, run: LeasedRun, engine: Engine, publisher: Publisher | None = None) -> None:
        self._run, self._engine, self._publisher = run, engine, publisher
        self._jobs = {job.id: job for job in plan.jobs}

    def execute(self, decisions: Sequence[Decision]) -> None:
        """Store decisions and act on them. A supervisor that lost its lease gets LeaseLostError and does not act.

        The decision that a job has succeeded is stored once the outputs are published. Until then it is dropped, and
        the policies return it again.
        """
        self._accept([decision for decision in decisions if self._has_to_publish(decision)])
        confirmed = [c for decision in decisions if (c := self._confirm_outputs(decision)) is not None]
        if confirmed:
            self._run.store_decisions(confirmed)
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

    # Outputs of jobs that have succeeded

    def _accept(self, ends: Sequence[Decision]) -> None:
        """Store which attempts are accepted before anything of them is published."""
        jobs = [job for end in ends if not (job := self._run.state.jobs[end.job]).accepted_attempt_id]
        reason = "its outputs passed all checks"
        accepts = [Accept(job.id, w.attempt_id, reason, w.emitter) for job in jobs if (w := job.winning_execution)]
        if accepts:
            self._run.store_decisions(accepts)

    def _has_to_publish(self, decision: Decision) -> bool:
        is_success = isinstance(decision, EndJob) and decision.result is JobStatus.SUCCEEDED and decision.emitter
        has_result = self._run.state.jobs[decision.job].result is not None
        return bool(is_success and not has_result and self._publisher and self._publisher.handles(decision.job))

    def _confirm_outputs(self, decision: Decision) -> Decision | None:
        """Publish or move the outputs of a job before it becomes `succeeded`. After a crash this is repeated.

        Returns:
            The decision; a failure if the outputs could not be published; None if that takes longer.
        """
        if not isinstance(decision, EndJob):
            return decision
        if self._has_to_publish(decision):
            return self._publish(decision)
        if self._publisher is not None:
            self._publisher.cancel(decision.job)
        if decision.result is not JobStatus.SUCCEEDED or not decision.emitter:
            return decision
        try:
            self._engine.commit_outputs([self.make_request(decision.job, self._winner(decision).attempt_id)])
        except OSError as error:
            failure = Failure.from_kind(
                "upload_failed", "sync", f"cannot move the outputs to their destination: {error}"
            )
            reason = "the outputs are kept in the attempt's folder"
            return replace(decision, result=JobStatus.FAILED, reason=reason, failure=failure)
        return decision

    def _publish(self, decision: EndJob) -> Decision | None:
        assert self._publisher is not None
        winner = self._winner(decision)
        try:
            publication = self._publisher.take_result(decision.job)
        except Exception as error:  # an error of one job's publication must not end the run
            _logger.warning("job %s: its outputs are not published", decision.job, exc_info=error)
            failure = Failure.from_error(error, "sync")
            reason = "the outputs of the accepted attempt could not be published"
            return replace(decision, result=JobStatus.FAILED, reason=reason, failure=failure)
        if publication is None:
            self._publisher.start(decision.job, winner.attempt_id, winner.emitter)
            return None
        published = {"url": publication.url, "bytes": publication.bytes, "answer": publication.answer}
        return replace(decision, published=published if publication.url else {})

    def _winner(self, decision: EndJob) -> Execution:
        executions = self._run.state.jobs[decision.job].executions
        return next(e for e in executions if e.emitter == decision.emitter)
