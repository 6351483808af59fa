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
class Overrides:
    """What an attempt gets otherwise than planned, because of what happened before."""

    memory_factor: float = 1.0  # times what is planned
    disk_factor: float = 1.0
    avoid_sites: tuple[str, ...] = ()
    avoid_nodes: tuple[str, ...] = ()
    fetch_with_agent: bool = False  # the agent fetches what the pool's plugins would have brought

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Overrides:
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

    def apply_to(self, job: Job) -> Job:
        """The job as it is to be run. What an engine itself has to see to (disk, places) is not part of it."""
        memory = math.ceil(job.resources.mem_per_cpu_mb * self.memory_factor)
        ways = tuple(
            replace(s, transfer="agent") if self.fetch_with_agent and s.transfer == "plugin" else s for s in job.inputs
        )
        return replace(job, resources=replace(job.resources, mem_per_cpu_mb=memory), inputs=ways)


NO_OVERRIDES = Overrides()


@dataclass(frozen=True)
class SubmitRequest:
    """One attempt to be made; the job is amended already."""

    attempt_id: str
    job: Job
    overrides: Overrides = NO_OVERRIDES


@dataclass(slots=True)
class AttemptUpdate:
    """What the engine knows of one attempt, or one thing that happened to it. Never changed; it is not frozen only
    because that takes three times as long, and there are many.

    queued, running     how it stands
    placed              a pool started it, for the `start`-th time
    stopped             a pool ended that start and has it in its queue again
    transfer            a pool moves its files: `direction` in or out, `what` queued, started or finished
    held, released      a pool keeps it back (`code`, `action`), and no longer
    gone                the engine no longer has it
    """

    attempt_id: str
    job_id: str
    status: str
    native_id: str = ""  # the engine's own name for it
    site: str = ""
    exit_code: int | None = None  # of a gone one, where known
    detail: str = ""  # a sentence
    failure_kind: str = ""  # of failure, where the engine knows it
    seq: int = 0  # of what happened: its place in the engine's log, the same whoever reads it
    occurred_at: float = 0.0  # by the engine's log; 0: now
    execution: int = 0
    host: str = ""
    hold_action: str = ""  # of a hold: release, wait, give_up
    hold_code: tuple[int, int] = (0, 0)  # of a hold
    agent_events: tuple[Event, ...] = ()  # what its agent said through the engine
    transfer_direction: str = ""  # of a transfer
    transfer_state: str = ""
    emitters: tuple[str, ...] = ()  # of a stopped one: the agents that spoke during that start
    progress: Mapping[str, Any] = field(default_factory=dict)  # how far it is; only the newest matters


@dataclass(frozen=True)
class Capabilities:
    """What an engine can give one job, and how it works."""

    name: str
    supports_containers: bool
    cpus: int
    memory_mb: int
    gpus: int
    has_shared_folder: bool = True  # agents write into the run's folder; else their journals come home at the end
    poll_interval_s: float = 0.2  # between two looks at what changed
    writes_journals: bool = True  # agents write them; else all that they say comes through the engine
    max_straggler_checks: float = 100.0  # looks at all that runs, while one training lasts, at most
    has_multiple_sites: bool = False  # attempts may run at different places, and places can be avoided
    has_pinned_sites: bool = False  # the user chose the sites of the run, so packtrain cannot choose others


class Engine(Protocol):
    @property
    def capabilities(self) -> Capabilities: ...

    def submit(self, requests: Sequence[SubmitRequest]) -> Mapping[str, str]:
        """Take the attempts; they start when there is room. Repeatable. The engine's own names, by decision."""
        ...

    def recover(self, requests: Sequence[SubmitRequest]) -> Sequence[AttemptUpdate]:
        """What is known of these attempts, of an earlier process's too; unknown ones are left out.
        Those that are still alive are followed by `poll` from now on."""
        ...

    def cancel(self, attempt_ids: Sequence[str]) -> None:
        """TERM, a grace period, KILL. Unknown or gone ones are ignored."""
        ...

    def release(self, attempt_ids: Sequence[str]) -> None:
        """Let those that are held try again. Others are ignored."""
        ...

    def commit_outputs(self, requests: Sequence[SubmitRequest]) -> None:
        """Put what these attempts brought home where the outputs of their jobs go. Repeatable. Raises OSError."""
        ...

    def poll(self) -> Sequence[AttemptUpdate]:
        """News of followed attempts; one that runs may be told again and again, a gone one is told once."""
        ...

    def wait(self, timeout_s: float) -> None:
        """Return early when something may have changed."""
        ...
