"""The narrow waist of all engines. Batched, because a pool has thousands of attempts.

An attempt is named by the decision that asked for it. Submitting the same decision twice must
start it at most once: after a crash the supervisor asks again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from packtrain.events import Event
from packtrain.plan import Job


@dataclass(frozen=True)
class Ticket:
    """One attempt to be made."""

    decision: str
    job: Job


@dataclass(frozen=True)
class Sighting:
    """What the engine knows of one attempt, or one thing that happened to it.

    queued, running     how it stands
    placed              a pool started it, for the `start`-th time
    stopped             a pool ended that start and has it in its queue again
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
