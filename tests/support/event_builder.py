"""Tells the events of a run in few words, as its supervisors, agents, engine and people would write them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

from packtrain.events import Event, Failure, kinds
from packtrain.state import JobState, RunState

RUN = "run-1"


class Story:
    """A run of one or more jobs. Every method adds events; `state` folds what was told so far."""

    def __init__(self, *jobs: str) -> None:
        self.events: list[Event] = []
        self.arrived: list[float] = []
        self.now = 0.0
        self.epoch = 1
        self._seqs: dict[str, Iterator[int]] = {}
        points = {job: {} for job in jobs or ("0",)}
        self.say("cli", kinds.RUN_CREATED, "", name="n", engine="local", folder="/x", jobs=len(points), points=points)
        self.supervisor()

    def say(self, emitter: str, kind: str, job: str = "0", /, **data: Any) -> Event:
        seq = next(self._seqs.setdefault(emitter, count(1)))
        event = Event(RUN, job, emitter, seq, kind, self.now, self.now, data)
        self.events.append(event)
        self.arrived.append(self.now)
        return event

    def supervise(self, kind: str, job: str = "0", /, **data: Any) -> Event:
        return self.say(f"supervisor-{self.epoch}", kind, job, epoch=self.epoch, **data)

    def supervisor(self) -> None:
        self.supervise(kinds.SUPERVISOR_STARTED, "", host="h", pid=1)

    def takeover(self) -> None:
        """The supervisor vanishes; another one goes on with the next epoch."""
        self.epoch += 1
        self.supervisor()

    def submit(self, decision: str = "0-1", job: str = "0", confirm: bool = True) -> None:
        self.supervise(kinds.DECIDED, job, action="submit", id=decision, reason="r")
        if confirm:
            self.confirm(decision, job)

    def confirm(self, decision: str = "0-1", job: str = "0") -> None:
        self.supervise(kinds.CONFIRMED, job, id=decision, native=f"of epoch {self.epoch}", site="local")

    def cancel(self, decision: str = "0-1", job: str = "0") -> None:
        self.supervise(kinds.DECIDED, job, action="cancel", target=decision, reason="r")

    def reopen(self, job: str = "0", requests: tuple[str, ...] = ()) -> None:
        self.supervise(kinds.DECIDED, job, action="reopen", reason="r", requests=list(requests))

    def start(self, agent: str = "agent-1", decision: str = "0-1", job: str = "0") -> None:
        self.say(agent, kinds.ATTEMPT_STARTED, job, decision=decision, host="w1", pid=7, site="here")

    def stage(
        self, name: str, agent: str = "agent-1", job: str = "0", seconds: float | None = 1.0, **more: Any
    ) -> None:
        self.say(agent, kinds.STAGE_STARTED, job, stage=name)
        if seconds is not None:
            self.say(agent, kinds.STAGE_ENDED, job, stage=name, seconds=seconds, **more)

    def end(self, outcome: str = "succeeded", agent: str = "agent-1", job: str = "0", failure: str = "") -> None:
        recorded = Failure.of(failure, "steps", "d") if failure else None
        code = recorded.exit_code if recorded else 0
        data = recorded.to_data() if recorded else None
        self.say(agent, kinds.ATTEMPT_ENDED, job, outcome=outcome, exit_code=code, failure=data, seconds=9.0)

    def checkpoint(self, step: int, agent: str = "agent-1", job: str = "0") -> None:
        self.say(agent, kinds.CHECKPOINT_SAVED, job, generation=1, step=step, bytes=9, seconds=0.1, sha256="")

    def gone(self, decision: str = "0-1", job: str = "0", code: int | None = None, detail: str = "it went") -> None:
        self.say(f"engine-{decision}", kinds.ATTEMPT_GONE, job, decision=decision, exit_code=code, detail=detail)

    def placed(self, start: int = 1, decision: str = "0-1", job: str = "0", site: str = "Site") -> None:
        self.say("engine-log", kinds.ATTEMPT_PLACED, job, decision=decision, start=start, site=site, host="w9")

    def stopped(
        self,
        start: int = 1,
        decision: str = "0-1",
        job: str = "0",
        kind: str = "evicted",
        emitters: tuple[str, ...] = (),
    ) -> None:
        about = {"decision": decision, "start": start, "kind": kind, "detail": "it stopped", "emitters": list(emitters)}
        self.say("engine-log", kinds.ATTEMPT_STOPPED, job, **about)

    def held(
        self,
        action: str = "release",
        start: int = 0,
        decision: str = "0-1",
        job: str = "0",
        kind: str = "delivery_failed",
    ) -> int:
        about = {"decision": decision, "action": action, "kind": kind, "detail": "it is held", "code": 13}
        return self.say("engine-log", kinds.ATTEMPT_HELD, job, **about, **({"start": start} if start else {})).seq

    def released(self, decision: str = "0-1", job: str = "0") -> None:
        self.say("engine-log", kinds.ATTEMPT_RELEASED, job, decision=decision)

    def transfer(self, direction: str, what: str, start: int = 1, decision: str = "0-1", job: str = "0") -> None:
        about = {"decision": decision, "start": start, "direction": direction, "what": what}
        self.say("engine-log", kinds.ATTEMPT_TRANSFER, job, **about)

    def answer(self, action: str, hold: int, decision: str = "0-1", job: str = "0") -> None:
        self.supervise(kinds.DECIDED, job, action=action, target=decision, hold=hold, reason="r")

    def request(self, job: str = "0", reason: str = "") -> str:
        event = self.say(f"cli-{len(self.events)}", kinds.REQUESTED, job, action="cancel", reason=reason)
        return f"{event.emitter}:{event.seq}"

    def verdict(self, verdict: str, job: str = "0", requests: tuple[str, ...] = (), **more: Any) -> None:
        self.supervise(kinds.JOB_ENDED, job, verdict=verdict, reason="r", requests=list(requests), **more)

    def fail(self, number: int, failure: str, job: str = "0") -> None:
        """A whole attempt that ends with a failure."""
        self.submit(f"{job}-{number}", job)
        self.start(f"agent-{job}-{number}", f"{job}-{number}", job)
        self.end("failed", f"agent-{job}-{number}", job, failure)
        self.gone(f"{job}-{number}", job, 10)

    def fail_at(
        self,
        site: str,
        number: int,
        failure: str,
        job: str = "0",
        host: str = "w1",
        detail: str = "d",
        seconds: float = 9.0,
    ) -> None:
        """A whole attempt that ends with a failure at a site."""
        decision, agent = f"{job}-{number}", f"agent-{job}-{number}"
        self.submit(decision, job)
        self.say(agent, kinds.ATTEMPT_STARTED, job, decision=decision, host=host, pid=7, site=site)
        told = Failure.of(failure, "steps", detail)
        about = {"outcome": "failed", "exit_code": told.exit_code, "failure": told.to_data(), "seconds": seconds}
        self.say(agent, kinds.ATTEMPT_ENDED, job, **about)
        self.gone(decision, job, told.exit_code)

    def succeed_at(self, site: str, number: int, job: str = "0", host: str = "w1") -> None:
        decision, agent = f"{job}-{number}", f"agent-{job}-{number}"
        self.submit(decision, job)
        self.say(agent, kinds.ATTEMPT_STARTED, job, decision=decision, host=host, pid=7, site=site)
        self.end("succeeded", agent, job)

    def leave(self, number: int, step: int | None = None, job: str = "0") -> None:
        """A whole attempt that leaves in time, with a checkpoint of this training step."""
        self.submit(f"{job}-{number}", job)
        self.start(f"agent-{job}-{number}", f"{job}-{number}", job)
        if step is not None:
            self.checkpoint(step, f"agent-{job}-{number}", job)
        self.end("continue", f"agent-{job}-{number}", job)

    @property
    def state(self) -> RunState:
        state = RunState(RUN)
        for event, arrived in zip(self.events, self.arrived, strict=True):
            state.apply(event, arrived)
        return state

    @property
    def job(self) -> JobState:
        return self.state.jobs["0"]
