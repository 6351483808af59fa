"""The narrow waist of all engines. Batched, because a pool has thousands of attempts.

An attempt is named by the decision that asked for it. Submitting the same decision twice must
start it at most once: after a crash the supervisor asks again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from packtrain.plan import Job


@dataclass(frozen=True)
class Ticket:
    """One attempt to be made."""

    decision: str
    job: Job


@dataclass(frozen=True)
class Sighting:
    """What the engine knows of one attempt."""

    decision: str
    job: str
    status: str  # running, gone
    native: str = ""  # the engine's own name for it
    site: str = ""
    exit_code: int | None = None  # of a gone one, where known
    detail: str = ""  # of a gone one: a sentence


@dataclass(frozen=True)
class Capabilities:
    """What an engine can give one job."""

    name: str
    containers: bool
    cpus: int
    memory_mb: int
    gpus: int


class Engine(Protocol):
    capabilities: Capabilities

    def submit(self, tickets: Sequence[Ticket]) -> None:
        """Take the attempts; they start when there is room. Repeatable."""
        ...

    def look(self, tickets: Sequence[Ticket]) -> Sequence[Sighting]:
        """What is known of these attempts, of an earlier process's too; unknown ones are left out.
        Those that are still alive are followed by `poll` from now on."""
        ...

    def cancel(self, decisions: Sequence[str]) -> None:
        """TERM, a grace period, KILL. Unknown or gone ones are ignored."""
        ...

    def poll(self) -> Sequence[Sighting]:
        """Every followed attempt that has started; a gone one is told once."""
        ...

    def wait(self, timeout: float) -> None:
        """Return early when something may have changed."""
        ...
