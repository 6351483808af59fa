"""A pool in memory that outlives its supervisors and does what pools do, by chance: it starts attempts late, ends them,
holds them, loses their words, tells things twice; and the supervisor dies at the worst moments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from packtrain.engines.api import Capabilities, Sighting, Ticket
from packtrain.events import Event, Failure, kinds

RUN = "run-1"
MOST_LOOKS = 1000
SITES = ("Ada", "Bob", "Cyd")
FAILURES = (
    *("step_failed", "module_missing", "output_missing", "object_missing", "service_unavailable", "gpu_unusable"),
    *("out_of_memory", "disk_full", "time_limit", "internal", "wall_time"),
)
HOLDS = (("delivery_failed", "release"), ("policy_hold", "give_up"), ("held", "wait"), ("out_of_memory", "give_up"))


class DiedError(Exception):
    """The supervisor is gone."""


@dataclass
class Task:
    ticket: Ticket
    status: str = "queued"
    starts: int = 0
    emitter: str = ""
    seq: int = 0
    cancelled: bool = False
    history: list[Sighting] = field(default_factory=list)


@dataclass
class Pool:
    """What happens is drawn from `chance` until `calm_after` looks; then every attempt ends soon, and well or badly as
    its job was born to."""

    chance: Random
    calm_after: int
    born_to_fail: Mapping[str, str]  # job: kind of failure
    slow: frozenset[str] = frozenset()  # jobs whose attempts do not end before it is calm, and then all at once
    now: float = 1000.0
    looks: int = 0
    serial: int = 0
    tasks: dict[str, Task] = field(default_factory=dict)
    accepted: dict[str, set[str]] = field(default_factory=dict)
    beside: set[str] = field(default_factory=set)  # jobs of which two attempts were there at once
    person: Callable[[], None] = lambda: None  # does something meanwhile

    @property
    def calm(self) -> bool:
        return self.looks > self.calm_after

    def may(self, share: float) -> bool:
        return not self.calm and self.chance.random() < share

    def tell(self, task: Task, status: str, **more: object) -> Sighting:
        self.serial += 1
        about = {"serial": self.serial, "when": self.now, "start": task.starts, **more}
        seen = Sighting(task.ticket.decision, task.ticket.job.id, status, "1.0", **about)  # type: ignore[arg-type]
        task.history.append(seen)
        return seen

    def word(self, task: Task, kind: str, **data: object) -> tuple[Event, ...]:
        task.seq += 1
        return (Event(RUN, task.ticket.job.id, task.emitter, task.seq, kind, self.now, self.now, data),)

    # What may happen to a task

    def step(self, task: Task) -> list[Sighting]:
        if task.status == "gone":
            return []
        if task.cancelled:
            return [self.end(task, "it was removed")]
        if task.status == "held":
            return [self.release(task)] if self.may(0.05) else []
        if task.status == "queued":
            return self.step_queued(task)
        return self.step_running(task)

    def step_queued(self, task: Task) -> list[Sighting]:
        if self.may(0.4):
            return []
        if self.may(0.1):
            return [self.hold(task)]
        task.status, task.starts = "running", task.starts + 1
        task.emitter, task.seq = f"agent-{task.ticket.decision}-{task.starts}", 0
        site = self.chance.choice(SITES)
        host = f"{site.lower()}-{self.chance.randrange(3)}"
        about = {"decision": task.ticket.decision, "host": host, "pid": 1, "site": site}
        woke = self.word(task, kinds.ATTEMPT_STARTED, **about)
        if self.may(0.5):
            woke += self.word(task, kinds.STAGE_STARTED, stage="steps")
            woke += self.word(task, kinds.METRIC, step=self.chance.randrange(100), total_steps=100)
        if self.may(0.3):
            woke += self.word(task, kinds.CHECKPOINT_SAVED, generation=1, step=self.chance.randrange(100))
        return [self.tell(task, "placed", site=site, host=host, events=() if self.may(0.2) else woke)]

    def step_running(self, task: Task) -> list[Sighting]:
        if self.may(0.3) or (task.ticket.job.id in self.slow and not self.calm):
            return []
        if self.may(0.15):
            task.status = "queued"
            kind = self.chance.choice(("evicted", "lease_expired", "container_failed"))
            return [self.tell(task, "stopped", kind=kind, detail="it stopped", emitters=(task.emitter,))]
        if self.may(0.1):
            return [self.hold(task, task.starts)]
        if self.may(0.1):
            return [self.end(task, "it vanished", exit_code=-9)]
        return [self.finish(task)]

    def hold(self, task: Task, start: int = 0) -> Sighting:
        task.status = "held"
        kind, action = self.chance.choice(HOLDS)
        return self.tell(task, "held", start=start, kind=kind, action=action, code=(13, 0), detail="it is held")

    def release(self, task: Task) -> Sighting:
        task.status = "queued"
        return self.tell(task, "released", start=0)

    def finish(self, task: Task) -> Sighting:
        if self.may(0.15):
            return self.leave(task)
        kind = self.born_to_fail.get(task.ticket.job.id, "")
        kind = self.chance.choice(FAILURES) if self.may(0.4) else kind
        failure = Failure.of(kind, "steps", "by chance") if kind else None
        code = failure.exit_code if failure else 0
        about = {"outcome": "failed" if failure else "succeeded", "exit_code": code, "seconds": 60.0}
        said = self.word(task, kinds.ATTEMPT_ENDED, failure=failure.to_data() if failure else None, **about)
        lost = failure is not None and self.may(0.2)
        return self.end(task, "it ended", exit_code=code, events=() if lost else said)

    def leave(self, task: Task) -> Sighting:
        """In time, and perhaps with something to go on from."""
        saved = {"generation": 2, "step": self.chance.randrange(100)}
        said = self.word(task, kinds.CHECKPOINT_SAVED, **saved) if self.may(0.7) else ()
        said += self.word(task, kinds.ATTEMPT_ENDED, outcome="continue", exit_code=85, failure=None, seconds=60.0)
        return self.end(task, "it left", exit_code=85, events=said)

    def end(self, task: Task, detail: str, **more: object) -> Sighting:
        task.status = "gone"
        return self.tell(task, "gone", detail=detail, **more)


class ChaosEngine:
    """One supervisor's view of the pool."""

    def __init__(self, pool: Pool, many_sites: bool) -> None:
        self.capabilities = Capabilities("chaos", False, 1, 1 << 20, 0, shares_folder=False, many_sites=many_sites)
        self._pool = pool
        self._followed: set[str] = set()

    def _may_die(self, share: float = 0.05) -> None:
        if self._pool.may(share):
            raise DiedError

    def submit(self, tickets: Sequence[Ticket]) -> Mapping[str, str]:
        self._may_die()
        for ticket in tickets:
            mine = (task for task in self._pool.tasks.values() if task.ticket.job.id == ticket.job.id)
            if any(task.status != "gone" and task.ticket.decision != ticket.decision for task in mine):
                self._pool.beside.add(ticket.job.id)
            self._pool.tasks.setdefault(ticket.decision, Task(ticket))
            self._followed.add(ticket.decision)
            self._may_die()
        return {}

    def look(self, tickets: Sequence[Ticket]) -> Sequence[Sighting]:
        known = [self._pool.tasks[t.decision] for t in tickets if t.decision in self._pool.tasks]
        self._followed.update(task.ticket.decision for task in known)
        self._may_die()
        return [seen for task in known for seen in task.history] + [_standing(task) for task in known]

    def cancel(self, decisions: Sequence[str]) -> None:
        for decision in decisions:
            self._may_die()
            if decision in self._pool.tasks:
                self._pool.tasks[decision].cancelled = True

    def release(self, decisions: Sequence[str]) -> None:
        for decision in decisions:
            self._may_die()
            task = self._pool.tasks[decision]
            if task.status == "held":
                self._pool.release(task)  # told by the next look or repetition

    def accept(self, tickets: Sequence[Ticket]) -> None:
        for ticket in tickets:
            self._pool.accepted.setdefault(ticket.job.id, set()).add(ticket.decision)
            self._may_die()

    def poll(self) -> Sequence[Sighting]:
        """News, and now and then all that was ever told, again and in another order."""
        self._pool.looks += 1
        if self._pool.may(0.05):
            self._pool.person()
        assert self._pool.looks < MOST_LOOKS, "the run does not end"
        followed = [self._pool.tasks[decision] for decision in sorted(self._followed)]
        before = [len(task.history) for task in followed]
        seen = [one for task in followed for one in self._pool.step(task)]
        seen += [one for task in followed for one in task.history if one.status == "released"]
        if self._pool.may(0.2):
            seen += [one for task, told in zip(followed, before, strict=True) for one in task.history[:told]]
            self._pool.chance.shuffle(seen)
        self._may_die()
        return seen

    def wait(self, timeout: float) -> None:
        self._pool.now += self._pool.chance.choice((0.5, 5.0, 60.0, 900.0, 90_000.0))
        self._may_die()


def _standing(task: Task) -> Sighting:
    if task.status == "gone":
        return next(replace(seen) for seen in task.history if seen.status == "gone")
    return Sighting(task.ticket.decision, task.ticket.job.id, task.status, "1.0")
