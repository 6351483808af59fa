"""The narrow waist of all engines. Batched, because a pool has thousands of attempts.

An attempt is named by the decision that asked for it. Submitting the same decision twice must
start it at most once: after a crash the supervisor asks again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol

from packtrain.events import Event
from packtrain.plan import Job


@dataclass(frozen=True)
class Amendment:
    """What an attempt gets otherwise than planned, because of what happened before."""

    memory: float = 1.0  # times what is planned
    disk: float = 1.0
    avoid_sites: tuple[str, ...] = ()
    avoid_machines: tuple[str, ...] = ()
    agent_brings: bool = False  # the agent fetches what the pool's plugins would have brought

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Amendment:
        names = {field.name for field in fields(cls)} & data.keys()
        known: dict[str, Any] = {n: tuple(data[n]) if isinstance(data[n], list) else data[n] for n in names}
        return cls(**known)

    def to_data(self) -> dict[str, Any]:
        """Without what is as planned."""
        found = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.default != getattr(self, field.name)
        }
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}

    def of(self, job: Job) -> Job:
        """The job as it is to be run. What an engine itself has to see to (disk, places) is not part of it."""
        memory = math.ceil(job.resources.mem_per_cpu_mb * self.memory)
        ways = tuple(
            replace(s, delivery="agent") if self.agent_brings and s.delivery == "plugin" else s for s in job.inputs
        )
        return replace(job, resources=replace(job.resources, mem_per_cpu_mb=memory), inputs=ways)


AS_PLANNED = Amendment()


@dataclass(frozen=True)
class Ticket:
    """One attempt to be made; the job is amended already."""

    decision: str
    job: Job
    amendment: Amendment = AS_PLANNED


@dataclass(slots=True)
class Sighting:
    """What the engine knows of one attempt, or one thing that happened to it. Never changed; it is not frozen only
    because that takes three times as long, and there are many.

    queued, running     how it stands
    placed              a pool started it, for the `start`-th time
    stopped             a pool ended that start and has it in its queue again
    transfer            a pool moves its files: `direction` in or out, `what` queued, started or finished
    held, released      a pool keeps it back (`code`, `action`), and no longer
    gone                the engine no longer has it
    """

    decision: str
    job: str
    status: str
    native: str = ""  # the engine's own name for it
    site: str = ""
    exit_code: int | None = None  # of a gone one, where known
    detail: str = ""  # a sentence
    kind: str = ""  # of failure, where the engine knows it
    serial: int = 0  # of what happened: its place in the engine's log, the same whoever reads it
    when: float = 0.0  # by the engine's log; 0: now
    start: int = 0
    host: str = ""
    action: str = ""  # of a hold: release, wait, give_up
    code: tuple[int, int] = (0, 0)  # of a hold
    events: tuple[Event, ...] = ()  # what its agent said through the engine
    direction: str = ""  # of a transfer
    what: str = ""
    emitters: tuple[str, ...] = ()  # of a stopped one: the agents that spoke during that start
    glimpse: Mapping[str, Any] = field(default_factory=dict)  # how far it is; only the newest matters


@dataclass(frozen=True)
class Capabilities:
    """What an engine can give one job, and how it works."""

    name: str
    containers: bool
    cpus: int
    memory_mb: int
    gpus: int
    shares_folder: bool = True  # agents write into the run's folder; else their journals come home at the end
    pause_s: float = 0.2  # between two looks at what changed
    journals: bool = True  # agents write them; else all that they say comes through the engine
    surveys: float = 100.0  # looks at all that runs, while one training lasts, at most
    many_sites: bool = False  # attempts may run at different places, and places can be avoided


class Engine(Protocol):
    @property
    def capabilities(self) -> Capabilities: ...

    def submit(self, tickets: Sequence[Ticket]) -> Mapping[str, str]:
        """Take the attempts; they start when there is room. Repeatable. The engine's own names, by decision."""
        ...

    def look(self, tickets: Sequence[Ticket]) -> Sequence[Sighting]:
        """What is known of these attempts, of an earlier process's too; unknown ones are left out.
        Those that are still alive are followed by `poll` from now on."""
        ...

    def cancel(self, decisions: Sequence[str]) -> None:
        """TERM, a grace period, KILL. Unknown or gone ones are ignored."""
        ...

    def release(self, decisions: Sequence[str]) -> None:
        """Let those that are held try again. Others are ignored."""
        ...

    def accept(self, tickets: Sequence[Ticket]) -> None:
        """Put what these attempts brought home where the outputs of their jobs go. Repeatable. Raises OSError."""
        ...

    def poll(self) -> Sequence[Sighting]:
        """News of followed attempts; one that runs may be told again and again, a gone one is told once."""
        ...

    def wait(self, timeout: float) -> None:
        """Return early when something may have changed."""
        ...
