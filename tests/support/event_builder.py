"""Build the events of a run in few lines, as supervisors, agents, the engine and users would write them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

from packtrain.events import Event, Failure, kinds
from packtrain.state import JobState, RunState

RUN = "run-1"


class RunBuilder:
    """The events of a run with one or more jobs. Every method adds events; `state` folds all events so far."""

    def __init__(self, *jobs: str) -> None:
        self.events: list[Event] = []
        self.received_at: list[float] = []
        self.now = 0.0
        self.epoch = 1
        self._seqs: dict[str, Iterator[int]] = {}
        points = {job: {} for job in jobs or ("0",)}
        self.add_event(
            "cli", kinds.RUN_CREATED, "", name="n", engine="local", folder="/x", jobs=len(points), points=points
        )
        self.start_supervisor()

    def add_event(self, emitter: str, kind: str, job: str = "0", /, **data: Any) -> Event:
        seq = next(self._seqs.setdefault(emitter, count(1)))
        event = Event(RUN, job, emitter, seq, kind, self.now, self.now, data)
        self.events.append(event)
        self.received_at.append(self.now)
        return event

    def add_supervisor_event(self, kind: str, job: str = "0", /, **data: Any) -> Event:
        return self.add_event(f"supervisor-{self.epoch}", kind, job, epoch=self.epoch, **data)

    def start_supervisor(self) -> None:
        self.add_supervisor_event(kinds.SUPERVISOR_STARTED, "", host="h", pid=1)

    def replace_supervisor(self) -> None:
        """Let the supervisor vanish and another one take over with the next epoch."""
        self.epoch += 1
        self.start_supervisor()

    def submit(self, attempt_id: str = "0-1", job: str = "0", is_confirmed: bool = True) -> None:
        self.add_supervisor_event(kinds.DECISION_MADE, job, action="submit", attempt=attempt_id, reason="r")
        if is_confirmed:
            self.confirm(attempt_id, job)

    def confirm(self, attempt_id: str = "0-1", job: str = "0") -> None:
        self.add_supervisor_event(
            kinds.ATTEMPT_SUBMITTED, job, attempt=attempt_id, native_id=f"of epoch {self.epoch}", site="local"
        )

    def cancel(self, attempt_id: str = "0-1", job: str = "0") -> None:
        self.add_supervisor_event(kinds.DECISION_MADE, job, action="cancel", attempt=attempt_id, reason="r")

    def reopen(self, job: str = "0", requests: tuple[str, ...] = ()) -> None:
        self.add_supervisor_event(kinds.DECISION_MADE, job, action="reopen", reason="r", requests=list(requests))

    def start_agent(self, agent: str = "agent-1", attempt_id: str = "0-1", job: str = "0") -> None:
        self.add_event(agent, kinds.AGENT_STARTED, job, attempt=attempt_id, host="w1", pid=7, site="here")

    def add_stage(
        self, name: str, agent: str = "agent-1", job: str = "0", duration_s: float | None = 1.0, **data: Any
    ) -> None:
        self.add_event(agent, kinds.STAGE_STARTED, job, stage=name)
        if duration_s is not None:
            self.add_event(agent, kinds.STAGE_ENDED, job, stage=name, seconds=duration_s, **data)

    def end_agent(self, outcome: str = "succeeded", agent: str = "agent-1", job: str = "0", failure: str = "") -> None:
        recorded = Failure.from_kind(failure, "steps", "d") if failure else None
        code = recorded.exit_code if recorded else 0
        data = recorded.to_data() if recorded else None
        self.add_event(agent, kinds.AGENT_ENDED, job, outcome=outcome, exit_code=code, failure=data, seconds=9.0)

    def save_checkpoint(self, step: int, agent: str = "agent-1", job: str = "0") -> None:
        self.add_event(agent, kinds.CHECKPOINT_SAVED, job, generation=1, step=step, bytes=9, seconds=0.1, sha256="")

    def end_attempt(
        self, attempt_id: str = "0-1", job: str = "0", exit_code: int | None = None, detail: str = "it went"
    ) -> None:
        self.add_event(
            f"engine-{attempt_id}", kinds.ATTEMPT_GONE, job, attempt=attempt_id, exit_code=exit_code, detail=detail
        )

    def start_execution(self, execution: int = 1, attempt_id: str = "0-1", job: str = "0", site: str = "Site") -> None:
        self.add_event(
            "engine-log", kinds.EXECUTION_STARTED, job, attempt=attempt_id, execution=execution, site=site, host="w9"
        )

    def interrupt_execution(
        self,
        execution: int = 1,
        attempt_id: str = "0-1",
        job: str = "0",
        kind: str = "evicted",
        emitters: tuple[str, ...] = (),
    ) -> None:
        data = {
            "attempt": attempt_id,
            "execution": execution,
            "kind": kind,
            "detail": "it stopped",
            "emitters": list(emitters),
        }
        self.add_event("engine-log", kinds.EXECUTION_INTERRUPTED, job, **data)

    def hold(
        self,
        action: str = "release",
        execution: int = 0,
        attempt_id: str = "0-1",
        job: str = "0",
        kind: str = "transfer_failed",
    ) -> int:
        data = {"attempt": attempt_id, "action": action, "kind": kind, "detail": "it is held", "code": 13}
        return self.add_event(
            "engine-log", kinds.ATTEMPT_HELD, job, **data, **({"execution": execution} if execution else {})
        ).seq

    def release(self, attempt_id: str = "0-1", job: str = "0") -> None:
        self.add_event("engine-log", kinds.ATTEMPT_RELEASED, job, attempt=attempt_id)

    def add_transfer(
        self, direction: str, state: str, execution: int = 1, attempt_id: str = "0-1", job: str = "0"
    ) -> None:
        data = {"attempt": attempt_id, "execution": execution, "direction": direction, "phase": state}
        self.add_event("engine-log", kinds.ATTEMPT_TRANSFER, job, **data)

    def answer_hold(self, action: str, hold_seq: int, attempt_id: str = "0-1", job: str = "0") -> None:
        self.add_supervisor_event(
            kinds.DECISION_MADE, job, action=action, attempt=attempt_id, hold=hold_seq, reason="r"
        )

    def request_cancel(self, job: str = "0", reason: str = "") -> str:
        event = self.add_event(f"cli-{len(self.events)}", kinds.USER_REQUESTED, job, action="cancel", reason=reason)
        return f"{event.emitter}:{event.seq}"

    def end_job(self, status: str, job: str = "0", requests: tuple[str, ...] = (), **more: Any) -> None:
        self.add_supervisor_event(kinds.JOB_ENDED, job, result=status, reason="r", requests=list(requests), **more)

    def add_failed_attempt(self, number: int, failure: str, job: str = "0") -> None:
        """Add a complete attempt that ends with a failure."""
        self.submit(f"{job}-{number}", job)
        self.start_agent(f"agent-{job}-{number}", f"{job}-{number}", job)
        self.end_agent("failed", f"agent-{job}-{number}", job, failure)
        self.end_attempt(f"{job}-{number}", job, 10)

    def add_failed_attempt_at(
        self,
        site: str,
        number: int,
        failure: str,
        job: str = "0",
        host: str = "w1",
        detail: str = "d",
        duration_s: float = 9.0,
    ) -> None:
        """Add a complete attempt that ends with a failure at a site."""
        attempt_id, agent = f"{job}-{number}", f"agent-{job}-{number}"
        self.submit(attempt_id, job)
        self.add_event(agent, kinds.AGENT_STARTED, job, attempt=attempt_id, host=host, pid=7, site=site)
        recorded = Failure.from_kind(failure, "steps", detail)
        data = {
            "outcome": "failed",
            "exit_code": recorded.exit_code,
            "failure": recorded.to_data(),
            "seconds": duration_s,
        }
        self.add_event(agent, kinds.AGENT_ENDED, job, **data)
        self.end_attempt(attempt_id, job, recorded.exit_code)

    def add_succeeded_attempt_at(self, site: str, number: int, job: str = "0", host: str = "w1") -> None:
        attempt_id, agent = f"{job}-{number}", f"agent-{job}-{number}"
        self.submit(attempt_id, job)
        self.add_event(agent, kinds.AGENT_STARTED, job, attempt=attempt_id, host=host, pid=7, site=site)
        self.end_agent("succeeded", agent, job)

    def add_checkpointed_attempt(self, number: int, step: int | None = None, job: str = "0") -> None:
        """Add a complete attempt that requeues itself, with a checkpoint of this training step."""
        self.submit(f"{job}-{number}", job)
        self.start_agent(f"agent-{job}-{number}", f"{job}-{number}", job)
        if step is not None:
            self.save_checkpoint(step, f"agent-{job}-{number}", job)
        self.end_agent("requeued", f"agent-{job}-{number}", job)

    @property
    def state(self) -> RunState:
        state = RunState(RUN)
        for event, received_at in zip(self.events, self.received_at, strict=True):
            state.apply(event, received_at)
        return state

    @property
    def job(self) -> JobState:
        return self.state.jobs["0"]
