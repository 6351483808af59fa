"""What every stage of one attempt is given."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packtrain.agent.log import AgentLog
from packtrain.agent.process import Processes
from packtrain.agent.sandbox import Sandbox
from packtrain.agent.secrets import Secrets
from packtrain.agent.stop import Stop
from packtrain.errors import FailedError
from packtrain.events import Journal, Redactor, kinds
from packtrain.plan import Job
from packtrain.transfer.depot import Depot

Tally = dict[str, Any]
"""What a stage counted (`bytes`, `files`, …). It goes into the event that ends the stage."""


@dataclass
class Behind:
    """What the stage fetch unpacked behind its downloads, for the stage unpack to tell."""

    paths: set[Path] = field(default_factory=set)
    files: int = 0
    bytes: int = 0
    refusal: FailedError | None = None  # an archive that may not be unpacked


@dataclass(frozen=True)
class Context:
    job: Job
    box: Sandbox
    journal: Journal
    log: AgentLog
    secrets: Secrets
    redactor: Redactor
    stop: Stop
    processes: Processes
    depot: Depot | None = None
    behind: Behind = field(default_factory=Behind)

    def notice(self, stage: str, text: str) -> None:
        """Something worth knowing that is no failure."""
        self.log.line(f"{stage}: {text}")
        self.journal.emit(kinds.NOTICE, stage=stage, text=text)
