"""A random pool in memory that outlives its supervisors.

The pool starts attempts late, ends them, holds them, loses their events and reports updates twice. It also kills the
supervisor at the worst moments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from packtrain.engines.api import Capabilities, SubmitRequest
from packtrain.engines.updates import (
    AgentEventsReceived,
    AttemptUpdate,
    ExecutionInterrupted,
    ExecutionStarted,
    Gone,
    Held,
    Queued,
    Released,
    Running,
)
from packtrain.events import Event, Failure, kinds

RUN = "run-1"
MAX_POLLS = 1000
SITE_NAMES = ("Ada", "Bob", "Cyd")
FAILURE_KINDS = (
    *("step_failed", "module_missing", "output_missing", "object_missing", "service_unavailable", "gpu_unusable"),
    *("out_of_memory", "disk_full", "pool_time_limit", "internal", "wall_time"),
)
HOLDS = (("transfer_failed", "release"), ("policy_hold", "give_up"), ("held", "wait"), ("out_of_memory", "give_up"))


class SupervisorDied(Exception):
    """Raised to simulate the death of the supervisor."""


@dataclass
class PoolTask:
    request: SubmitRequest
    status: str = "queued"
    n_executions: int = 0
    emitter: str = ""
    seq: int = 0
    cancelled: bool = False
    updates: list[AttemptUpdate] = field(default_factory=list)


@dataclass
class ChaosPool:
    """The pool and everything that happened in it.

    Events are random until `calm_after_polls` polls have been made. After that every attempt ends soon; it fails if its
    job is in `failure_by_job`.
    """

    rng: Random
    calm_after_polls: int
    failure_by_job: Mapping[str, str]  # failure kind by job
    slow_jobs: frozenset[str] = frozenset()  # their attempts end only when the pool is calm
    now: float = 1000.0
    n_polls: int = 0
    last_seq: int = 0
    tasks: dict[str, PoolTask] = field(default_factory=dict)
    committed_attempts: dict[str, set[str]] = field(default_factory=dict)
    jobs_with_concurrent_attempts: set[str] = field(default_factory=set)  # two attempts existed at the same time
    on_user_action: Callable[[], None] = lambda: None  # called at random polls

    @property
    def is_calm(self) -> bool:
        return self.n_polls > self.calm_after_polls

    def happens(self, probability: float) -> bool:
        return not self.is_calm and self.rng.random() < probability

    def add_update(
        self, update_type: type[AttemptUpdate], task: PoolTask, events: tuple[Event, ...] = (), **fields: Any
    ) -> list[AttemptUpdate]:
        """Add an update, and before it the agent's events that arrived with it."""
        self.last_seq += 1
        ids = task.request.attempt_id, task.request.job.id
        position = {"native_id": "1.0", "seq": self.last_seq, "occurred_at": self.now}
        updates: list[AttemptUpdate] = [AgentEventsReceived(*ids, events=events)] if events else []
        updates.append(update_type(*ids, **position, **fields))
        task.updates += updates
        return updates

    def make_agent_event(self, task: PoolTask, kind: str, **data: object) -> tuple[Event, ...]:
        task.seq += 1
        return (Event(RUN, task.request.job.id, task.emitter, task.seq, kind, self.now, self.now, data),)

    # Random steps of a task

    def step(self, task: PoolTask) -> list[AttemptUpdate]:
        if task.status == "gone":
            return []
        if task.cancelled:
            return self.end(task, "it was removed")
        if task.status == "held":
            return self.release(task) if self.happens(0.05) else []
        if task.status == "queued":
            return self.step_queued(task)
        return self.step_running(task)

    def step_queued(self, task: PoolTask) -> list[AttemptUpdate]:
        if self.happens(0.4):
            return []
        if self.happens(0.1):
            return self.hold(task)
        task.status, task.n_executions = "running", task.n_executions + 1
        task.emitter, task.seq = f"agent-{task.request.attempt_id}-{task.n_executions}", 0
        site = self.rng.choice(SITE_NAMES)
        host = f"{site.lower()}-{self.rng.randrange(3)}"
        data = {"attempt": task.request.attempt_id, "host": host, "pid": 1, "site": site}
        events = self.make_agent_event(task, kinds.AGENT_STARTED, **data)
        if self.happens(0.5):
            events += self.make_agent_event(task, kinds.STAGE_STARTED, stage="steps")
            events += self.make_agent_event(task, kinds.METRIC, step=self.rng.randrange(100), total_steps=100)
        if self.happens(0.3):
            events += self.make_agent_event(task, kinds.CHECKPOINT_SAVED, generation=1, step=self.rng.randrange(100))
        events = () if self.happens(0.2) else events
        return self.add_update(ExecutionStarted, task, events, execution=task.n_executions, site=site, host=host)

    def step_running(self, task: PoolTask) -> list[AttemptUpdate]:
        if self.happens(0.3) or (task.request.job.id in self.slow_jobs and not self.is_calm):
            return []
        if self.happens(0.15):
            task.status = "queued"
            kind = self.rng.choice(("evicted", "lease_expired", "container_failed"))
            return self.add_update(
                ExecutionInterrupted,
                task,
                execution=task.n_executions,
                failure_kind=kind,
                detail="it stopped",
                emitters=(task.emitter,),
            )
        if self.happens(0.1):
            return self.hold(task, task.n_executions)
        if self.happens(0.1):
            return self.end(task, "it vanished", exit_code=-9)
        return self.finish(task)

    def hold(self, task: PoolTask, execution: int = 0) -> list[AttemptUpdate]:
        task.status = "held"
        kind, action = self.rng.choice(HOLDS)
        return self.add_update(
            Held, task, execution=execution, failure_kind=kind, action=action, code=13, detail="it is held"
        )

    def release(self, task: PoolTask) -> list[AttemptUpdate]:
        task.status = "queued"
        return self.add_update(Released, task)

    def finish(self, task: PoolTask) -> list[AttemptUpdate]:
        if self.happens(0.15):
            return self.exit_with_checkpoint(task)
        kind = self.failure_by_job.get(task.request.job.id, "")
        kind = self.rng.choice(FAILURE_KINDS) if self.happens(0.4) else kind
        failure = Failure.from_kind(kind, "steps", "by chance") if kind else None
        code = failure.exit_code if failure else 0
        data = {"outcome": "failed" if failure else "succeeded", "exit_code": code, "seconds": 60.0}
        events = self.make_agent_event(task, kinds.AGENT_ENDED, failure=failure.to_data() if failure else None, **data)
        is_lost = failure is not None and self.happens(0.2)
        return self.end(task, "it ended", () if is_lost else events, exit_code=code)

    def exit_with_checkpoint(self, task: PoolTask) -> list[AttemptUpdate]:
        """End the attempt with exit code 85, in most cases with a new checkpoint."""
        checkpoint = {"generation": 2, "step": self.rng.randrange(100)}
        events = self.make_agent_event(task, kinds.CHECKPOINT_SAVED, **checkpoint) if self.happens(0.7) else ()
        events += self.make_agent_event(
            task, kinds.AGENT_ENDED, outcome="requeued", exit_code=85, failure=None, seconds=60.0
        )
        return self.end(task, "it exited", events, exit_code=85)

    def end(self, task: PoolTask, detail: str, events: tuple[Event, ...] = (), **fields: Any) -> list[AttemptUpdate]:
        task.status = "gone"
        return self.add_update(Gone, task, events, detail=detail, **fields)


class ChaosEngine:
    """The engine of one supervisor on the pool."""

    def __init__(self, pool: ChaosPool, has_multiple_sites: bool) -> None:
        self.capabilities = Capabilities(
            "chaos", False, 1, 1 << 20, 0, has_shared_folder=False, has_multiple_sites=has_multiple_sites
        )
        self._pool = pool
        self._tracked: set[str] = set()

    def _maybe_die(self, probability: float = 0.05) -> None:
        if self._pool.happens(probability):
            raise SupervisorDied

    def submit(self, requests: Sequence[SubmitRequest]) -> Mapping[str, str]:
        self._maybe_die()
        for request in requests:
            tasks = (task for task in self._pool.tasks.values() if task.request.job.id == request.job.id)
            if any(task.status != "gone" and task.request.attempt_id != request.attempt_id for task in tasks):
                self._pool.jobs_with_concurrent_attempts.add(request.job.id)
            self._pool.tasks.setdefault(request.attempt_id, PoolTask(request))
            self._tracked.add(request.attempt_id)
            self._maybe_die()
        return {}

    def recover(self, requests: Sequence[SubmitRequest]) -> Sequence[AttemptUpdate]:
        known = [self._pool.tasks[t.attempt_id] for t in requests if t.attempt_id in self._pool.tasks]
        self._tracked.update(task.request.attempt_id for task in known)
        self._maybe_die()
        return [update for task in known for update in (*task.updates, _current_update(task))]

    def cancel(self, attempt_ids: Sequence[str]) -> None:
        for attempt_id in attempt_ids:
            self._maybe_die()
            if attempt_id in self._pool.tasks:
                self._pool.tasks[attempt_id].cancelled = True

    def release(self, attempt_ids: Sequence[str]) -> None:
        for attempt_id in attempt_ids:
            self._maybe_die()
            task = self._pool.tasks[attempt_id]
            if task.status == "held":
                self._pool.release(task)  # reported by the next poll

    def commit_outputs(self, requests: Sequence[SubmitRequest]) -> None:
        for request in requests:
            self._pool.committed_attempts.setdefault(request.job.id, set()).add(request.attempt_id)
            self._maybe_die()

    def poll(self) -> Sequence[AttemptUpdate]:
        """Return new updates, and at random polls also all earlier ones, in another order."""
        self._pool.n_polls += 1
        if self._pool.happens(0.05):
            self._pool.on_user_action()
        assert self._pool.n_polls < MAX_POLLS, "the run does not end"
        tasks = [self._pool.tasks[attempt_id] for attempt_id in sorted(self._tracked)]
        n_before = [len(task.updates) for task in tasks]
        updates = [update for task in tasks for update in self._pool.step(task)]
        updates += [update for task in tasks for update in task.updates if isinstance(update, Released)]
        if self._pool.happens(0.2):
            updates += [
                update for task, n_reported in zip(tasks, n_before, strict=True) for update in task.updates[:n_reported]
            ]
            self._pool.rng.shuffle(updates)
        self._maybe_die()
        return updates

    def wait(self, timeout_s: float) -> None:
        self._pool.now += self._pool.rng.choice((0.5, 5.0, 60.0, 900.0, 90_000.0))
        self._maybe_die()


def _current_update(task: PoolTask) -> AttemptUpdate:
    if task.status in ("gone", "held"):
        return task.updates[-1]
    status = Running if task.status == "running" else Queued
    return status(task.request.attempt_id, task.request.job.id)
