"""What every stage of one attempt is given."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packtrain.agent.agent_log import AgentLog
from packtrain.agent.file_versions import FileVersion
from packtrain.agent.sandbox import Sandbox
from packtrain.agent.secrets import Secrets
from packtrain.agent.steps.processes import ProcessTable
from packtrain.agent.stop_request import StopRequest
from packtrain.errors import FailedError
from packtrain.events import Journal, Redactor, kinds
from packtrain.plan import Job

if TYPE_CHECKING:
    from packtrain.transfer.cache import DownloadCache

StageStats = dict[str, Any]
"""What a stage counted (`bytes`, `files`, …). It goes into the event that ends the stage."""


@dataclass
class StreamedArchives:
    """What the stage fetch unpacked behind its downloads, for the stage unpack to tell."""

    paths: set[Path] = field(default_factory=set)
    unpacked_files: int = 0
    unpacked_bytes: int = 0
    error: FailedError | None = None  # an archive that may not be unpacked


@dataclass
class CheckpointState:
    """What this attempt has of the one before, and leaves to the next."""

    restored_step: int = -1  # of the one that was restored
    last_saved_step: int = -1  # of the newest save that was noticed, whether it was carried away or not
    restored_path: Path | None = None  # where the restored one lies; None if there was none
    restored_versions: dict[str, FileVersion] = field(default_factory=dict)  # of the restored files
    broken_generations: set[str] = field(default_factory=set)  # generations that have a record but are not whole
    uploaded_versions: dict[str, FileVersion] = field(
        default_factory=dict
    )  # files that stand complete at the destination
    upload_s: float = 0.0  # what the newest generation took from its notice to its record
    committed_at: float | None = None  # when the newest generation further than the start was complete
    inputs_fingerprint: str = ""  # what the inputs looked like before the steps
    inputs_reused: bool = False  # they are those of the attempt before


@dataclass(frozen=True)
class EngineOptions:
    """What the engine offers an attempt, and demands of it."""

    download_cache: DownloadCache | None = None
    reuse_folder: Path | None = None  # where inputs stay when the job goes on in place
    deadline_at: float | None = None  # its own limit, in seconds since 1970
    transfers_checkpoints: bool = False  # it brings the folder `checkpoint` to where the job is started next
    in_container: bool = False
    live_interval_s: float = 0.0  # the least time between two live updates; 0: none
    host_speeds: Mapping[str, float] = field(default_factory=dict)  # what is expected of hosts that data come from


@dataclass(frozen=True)
class AttemptContext:
    job: Job
    sandbox: Sandbox
    journal: Journal
    log: AgentLog
    secrets: Secrets
    redactor: Redactor
    stop: StopRequest
    processes: ProcessTable
    download_cache: DownloadCache | None = None
    streamed_archives: StreamedArchives = field(default_factory=StreamedArchives)
    checkpoint_state: CheckpointState = field(default_factory=CheckpointState)
    reuse_folder: Path | None = None  # where inputs stay when the job goes on in place
    deadline_at: float | None = None  # the engine's own limit, in seconds since 1970
    transferred_checkpoint: Path | None = None  # a folder for checkpoints that the engine carries from start to start
    in_container: bool = False  # the agent runs inside of the image that the steps name
    started_at: float = field(default_factory=time.monotonic)  # its work, by the monotonic clock

    def emit_notice(self, stage: str, text: str) -> None:
        """Something worth knowing that is no failure."""
        self.log.write(f"{stage}: {text}")
        self.journal.emit(kinds.NOTICE, stage=stage, text=text)
