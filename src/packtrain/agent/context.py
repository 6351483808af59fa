"""What every stage of one attempt is given."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packtrain.agent.agent_log import AgentLog
from packtrain.agent.file_versions import Version
from packtrain.agent.sandbox import Sandbox
from packtrain.agent.secrets import Secrets
from packtrain.agent.steps.processes import Processes
from packtrain.agent.stop_request import Stop
from packtrain.errors import FailedError
from packtrain.events import Journal, Redactor, kinds
from packtrain.plan import Job

if TYPE_CHECKING:
    from packtrain.transfer.cache import Depot

Tally = dict[str, Any]
"""What a stage counted (`bytes`, `files`, …). It goes into the event that ends the stage."""


@dataclass
class Behind:
    """What the stage fetch unpacked behind its downloads, for the stage unpack to tell."""

    paths: set[Path] = field(default_factory=set)
    files: int = 0
    bytes: int = 0
    refusal: FailedError | None = None  # an archive that may not be unpacked


@dataclass
class Saved:
    """What this attempt has of the one before, and leaves to the next."""

    start_step: int = -1  # of the one that was restored
    reached: int = -1  # of the newest save that was noticed, whether it was carried away or not
    path: Path | None = None  # where the restored one lies; None if there was none
    versions: dict[str, Version] = field(default_factory=dict)  # of the restored files
    void: set[str] = field(default_factory=set)  # generations that have a record but are not whole
    carried: dict[str, Version] = field(default_factory=dict)  # files that stand complete at the destination
    sync_s: float = 0.0  # what the newest generation took from its notice to its record
    sealed_at: float | None = None  # when the newest generation further than the start was complete
    inputs_mark: str = ""  # what the inputs looked like before the steps
    inputs_kept: bool = False  # they are those of the attempt before


@dataclass(frozen=True)
class Terms:
    """What the engine offers an attempt, and demands of it."""

    depot: Depot | None = None
    keep: Path | None = None  # where inputs stay when the job goes on in place
    deadline: float | None = None  # its own limit, in seconds since 1970
    carries: bool = False  # it brings the folder `checkpoint` to where the job is started next
    in_container: bool = False
    live_s: float = 0.0  # the least time between two live updates; 0: none
    speeds: Mapping[str, float] = field(default_factory=dict)  # what is expected of hosts that data come from


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
    saved: Saved = field(default_factory=Saved)
    keep: Path | None = None  # where inputs stay when the job goes on in place
    deadline: float | None = None  # the engine's own limit, in seconds since 1970
    carried: Path | None = None  # a folder for checkpoints that the engine carries from start to start
    in_container: bool = False  # the agent runs inside of the image that the steps name
    started: float = field(default_factory=time.monotonic)  # its work, by the monotonic clock

    def notice(self, stage: str, text: str) -> None:
        """Something worth knowing that is no failure."""
        self.log.line(f"{stage}: {text}")
        self.journal.emit(kinds.NOTICE, stage=stage, text=text)
