"""A pool in memory that outlives its supervisors and does what pools do, by chance: it starts attempts late, ends them,
holds them, loses their words, tells things twice; and the supervisor dies at the worst moments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from packtrain.engines.api import AttemptUpdate, Capabilities, SubmitRequest
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
    """The supervisor is gone."""


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
    """What happens is drawn from `chance` until `calm_after` looks; then every attempt ends soon, and well or badly as
    its job was born to."""

    rng: Random
    calm_after_polls: int
    failure_by_job: Mapping[str, str]  # job: kind of failure
    slow_jobs: frozenset[str] = frozenset()  # jobs whose attempts do not end before it is calm, and then all at once
    now: float = 1000.0
    n_polls: int = 0
    last_seq: int = 0
    tasks: dict[str, PoolTask] = field(default_factory=dict)
    committed_attempts: dict[str, set[str]] = field(default_factory=dict)
    jobs_with_concurrent_attempts: set[str] = field(
        default_factory=set
    )  # jobs of which two attempts were there at once
    on_user_action: Callable[[], None] = lambda: None  # does something meanwhile

    @property
    def is_calm(self) -> bool:
        return self.n_polls > self.calm_after_polls

    def happens(self, probability: float) -> bool:
        return not self.is_calm and self.rng.random() < probability

    def add_update(self, task: PoolTask, status: str, **fields: object) -> AttemptUpdate:
        self.last_seq += 1
        about = {"serial": self.last_seq, "when": self.now, "start": task.n_executions, **fields}
        seen = AttemptUpdate(task.request.attempt_id, task.request.job.id, status, "1.0", **about)  # type: ignore[arg-type]
        task.updates.append(seen)
        return seen

    def make_agent_event(self, task: PoolTask, kind: str, **data: object) -> tuple[Event, ...]:
        task.seq += 1
        return (Event(RUN, task.request.job.id, task.emitter, task.seq, kind, self.now, self.now, data),)

    # What may happen to a task

    def step(self, task: PoolTask) -> list[AttemptUpdate]:
        if task.status == "gone":
            return []
        if task.cancelled:
            return [self.end(task, "it was removed")]
        if task.status == "held":
            return [self.release(task)] if self.happens(0.05) else []
        if task.status == "queued":
            return self.step_queued(task)
        return self.step_running(task)

    def step_queued(self, task: PoolTask) -> list[AttemptUpdate]:
        if self.happens(0.4):
            return []
        if self.happens(0.1):
            return [self.hold(task)]
        task.status, task.n_executions = "running", task.n_executions + 1
        task.emitter, task.seq = f"agent-{task.request.attempt_id}-{task.n_executions}", 0
        site = self.rng.choice(SITE_NAMES)
        host = f"{site.lower()}-{self.rng.randrange(3)}"
        about = {"attempt": task.request.attempt_id, "host": host, "pid": 1, "site": site}
        woke = self.make_agent_event(task, kinds.AGENT_STARTED, **about)
        if self.happens(0.5):
            woke += self.make_agent_event(task, kinds.STAGE_STARTED, stage="steps")
            woke += self.make_agent_event(task, kinds.METRIC, step=self.rng.randrange(100), total_steps=100)
        if self.happens(0.3):
            woke += self.make_agent_event(task, kinds.CHECKPOINT_SAVED, generation=1, step=self.rng.randrange(100))
        return [self.add_update(task, "placed", site=site, host=host, events=() if self.happens(0.2) else woke)]

    def step_running(self, task: PoolTask) -> list[AttemptUpdate]:
        if self.happens(0.3) or (task.request.job.id in self.slow_jobs and not self.is_calm):
            return []
        if self.happens(0.15):
            task.status = "queued"
            kind = self.rng.choice(("evicted", "lease_expired", "container_failed"))
            return [self.add_update(task, "stopped", kind=kind, detail="it stopped", emitters=(task.emitter,))]
        if self.happens(0.1):
            return [self.hold(task, task.n_executions)]
        if self.happens(0.1):
            return [self.end(task, "it vanished", exit_code=-9)]
        return [self.finish(task)]

    def hold(self, task: PoolTask, execution: int = 0) -> AttemptUpdate:
        task.status = "held"
        kind, action = self.rng.choice(HOLDS)
        return self.add_update(
            task, "held", start=execution, kind=kind, action=action, code=(13, 0), detail="it is held"
        )

    def release(self, task: PoolTask) -> AttemptUpdate:
        task.status = "queued"
        return self.add_update(task, "released", start=0)

    def finish(self, task: PoolTask) -> AttemptUpdate:
        if self.happens(0.15):
            return self.exit_with_checkpoint(task)
        kind = self.failure_by_job.get(task.request.job.id, "")
        kind = self.rng.choice(FAILURE_KINDS) if self.happens(0.4) else kind
        failure = Failure.from_kind(kind, "steps", "by chance") if kind else None
        code = failure.exit_code if failure else 0
        about = {"outcome": "failed" if failure else "succeeded", "exit_code": code, "seconds": 60.0}
        said = self.make_agent_event(task, kinds.AGENT_ENDED, failure=failure.to_data() if failure else None, **about)
        lost = failure is not None and self.happens(0.2)
        return self.end(task, "it ended", exit_code=code, events=() if lost else said)

    def exit_with_checkpoint(self, task: PoolTask) -> AttemptUpdate:
        """In time, and perhaps with something to go on from."""
        saved = {"generation": 2, "step": self.rng.randrange(100)}
        said = self.make_agent_event(task, kinds.CHECKPOINT_SAVED, **saved) if self.happens(0.7) else ()
        said += self.make_agent_event(
            task, kinds.AGENT_ENDED, outcome="requeued", exit_code=85, failure=None, seconds=60.0
        )
        return self.end(task, "it left", exit_code=85, events=said)

    def end(self, task: PoolTask, detail: str, **fields: object) -> AttemptUpdate:
        task.status = "gone"
        return self.add_update(task, "gone", detail=detail, **fields)


class ChaosEngine:
    """One supervisor's view of the pool."""

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
        for ticket in requests:
            mine = (task for task in self._pool.tasks.values() if task.request.job.id == ticket.job.id)
            if any(task.status != "gone" and task.request.attempt_id != ticket.attempt_id for task in mine):
                self._pool.jobs_with_concurrent_attempts.add(ticket.job.id)
            self._pool.tasks.setdefault(ticket.attempt_id, PoolTask(ticket))
            self._tracked.add(ticket.attempt_id)
            self._maybe_die()
        return {}

    def recover(self, requests: Sequence[SubmitRequest]) -> Sequence[AttemptUpdate]:
        known = [self._pool.tasks[t.attempt_id] for t in requests if t.attempt_id in self._pool.tasks]
        self._tracked.update(task.request.attempt_id for task in known)
        self._maybe_die()
        return [seen for task in known for seen in task.updates] + [_current_update(task) for task in known]

    def cancel(self, attempt_ids: Sequence[str]) -> None:
        for decision in attempt_ids:
            self._maybe_die()
            if decision in self._pool.tasks:
                self._pool.tasks[decision].cancelled = True

    def release(self, attempt_ids: Sequence[str]) -> None:
        for decision in attempt_ids:
            self._maybe_die()
            task = self._pool.tasks[decision]
            if task.status == "held":
                self._pool.release(task)  # told by the next look or repetition

    def commit_outputs(self, requests: Sequence[SubmitRequest]) -> None:
        for ticket in requests:
            self._pool.committed_attempts.setdefault(ticket.job.id, set()).add(ticket.attempt_id)
            self._maybe_die()

    def poll(self) -> Sequence[AttemptUpdate]:
        """News, and now and then all that was ever told, again and in another order."""
        self._pool.n_polls += 1
        if self._pool.happens(0.05):
            self._pool.on_user_action()
        assert self._pool.n_polls < MAX_POLLS, "the run does not end"
        followed = [self._pool.tasks[decision] for decision in sorted(self._tracked)]
        before = [len(task.updates) for task in followed]
        seen = [one for task in followed for one in self._pool.step(task)]
        seen += [one for task in followed for one in task.updates if one.status == "released"]
        if self._pool.happens(0.2):
            seen += [one for task, told in zip(followed, before, strict=True) for one in task.updates[:told]]
            self._pool.rng.shuffle(seen)
        self._maybe_die()
        return seen

    def wait(self, timeout_s: float) -> None:
        self._pool.now += self._pool.rng.choice((0.5, 5.0, 60.0, 900.0, 90_000.0))
        self._maybe_die()


def _current_update(task: PoolTask) -> AttemptUpdate:
    if task.status == "gone":
        return next(replace(seen) for seen in task.updates if seen.status == "gone")
    return AttemptUpdate(task.request.attempt_id, task.request.job.id, task.status, "1.0")
