"""The objects and settings that every stage of one execution receives."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

from packtrain.agent.agent_log import AgentLog
from packtrain.agent.processes.process_table import ProcessTable
from packtrain.agent.sandbox import Sandbox
from packtrain.agent.secrets import Secrets
from packtrain.agent.stop_request import StopRequest
from packtrain.agent.watched_files import FileVersion
from packtrain.errors import FailedError
from packtrain.events import Journal, Redactor, kinds
from packtrain.plan import Job
from packtrain.transfer.urls import is_http

if TYPE_CHECKING:
    from packtrain.transfer.cache import DownloadCache

StageStats = dict[str, Any]
"""Statistics of a stage (`bytes`, `files`, …), written to its `stage.ended` event."""


@dataclass
class StreamedArchives:
    """The archives that the stage fetch unpacked while it downloaded them, for the report of the stage unpack."""

    paths: set[Path] = field(default_factory=set)
    unpacked_files: int = 0
    unpacked_bytes: int = 0
    error: FailedError | None = None  # an archive was rejected


@dataclass
class CheckpointState:
    """The checkpoint that this execution resumed from, and the progress of its own checkpoints."""

    restored_step: int = -1  # training step of the restored checkpoint; -1: none
    last_saved_step: int = -1  # training step of the newest save that was detected, uploaded or not
    restored_path: Path | None = None  # the restored checkpoint in the sandbox; None: none
    restored_versions: dict[str, FileVersion] = field(default_factory=dict)  # of the restored files
    broken_generations: set[str] = field(default_factory=set)  # generations with a record but missing or wrong files
    uploaded_versions: dict[str, FileVersion] = field(default_factory=dict)  # output files uploaded completely
    upload_s: float = 0.0  # seconds from the detection of the newest generation to its record
    committed_at: float | None = None  # monotonic time when the newest generation beyond the restored one was committed
    inputs_fingerprint: str = ""  # fingerprint of the inputs before the steps ran
    inputs_reused: bool = False  # the inputs are those of the previous execution


@dataclass
class PixiState:
    """The Pixi environment of the job, once the stage install has provided it."""

    activate: Callable[[Mapping[str, str]], dict[str, str]] | None = None  # adds its variables to others
    python_path: list[str] = field(default_factory=list)  # folders of Python packages of the workspace
    command_folder: Path | None = None  # has the `pixi` command for machines that have none
    resources: ExitStack = field(default_factory=ExitStack)  # what the prefix needs as long as steps run


@dataclass(frozen=True)
class AttemptContext:
    """Everything a stage needs to know about the execution it belongs to."""

    job: Job
    sandbox: Sandbox
    journal: Journal
    log: AgentLog
    secrets: Secrets
    stop: StopRequest
    processes: ProcessTable
    download_cache: DownloadCache | None = None
    streamed_archives: StreamedArchives = field(default_factory=StreamedArchives)
    pixi: PixiState = field(default_factory=PixiState)
    checkpoint_state: CheckpointState = field(default_factory=CheckpointState)
    reuse_folder: Path | None = None  # keeps the inputs while the job resumes in place
    deadline_at: float | None = None  # the engine's time limit, in seconds since 1970
    transferred_checkpoint: Path | None = None  # checkpoint folder that the engine moves to the next execution
    in_container: bool = False  # the agent runs inside the image that the steps name
    started_at: float = field(default_factory=time.monotonic)  # when the agent started, by the monotonic clock

    @property
    def redactor(self) -> Redactor:
        return self.secrets.redactor

    @property
    def checkpoint_folder(self) -> Path:
        """The folder that the paths of the checkpoint are relative to."""
        return self.sandbox.root / self.job.checkpoint.folder if self.job.checkpoint else self.sandbox.output

    @property
    def upload_retry_timeout_s(self) -> float:
        """How long uploads are retried without progress."""
        timeout_s = self.job.output.retry_timeout_s if self.job.output else None
        return self.job.retry_timeout_s if timeout_s is None else timeout_s

    def check_upload_time(self) -> None:
        """Raise the FailedError of a stop request when its time for uploads is over.

        After SIGTERM the steps have one grace period, and all uploads have a second one. Before a time limit, uploads
        have the time until that limit, because it was reserved for them.
        """
        requested_at, grace_s = self.stop.requested_at, self.job.limits.grace_s
        if requested_at is None or time.monotonic() <= max(requested_at + 2 * grace_s, self.stop.deadline):
            return
        try:
            self.stop.check()
        except FailedError as error:
            detail = f"not all outputs were uploaded in time (the grace period is {grace_s:g} s)"
            raise FailedError(error.kind, f"{error.detail}; {detail}") from error

    def emit_notice(self, stage: str, text: str) -> None:
        """Report something worth knowing that is not a failure."""
        self.log.write(f"{stage}: {text}")
        self.journal.emit(kinds.NOTICE, stage=stage, text=text)


def has_checkpoint_store(job: Job) -> bool:
    """Return whether the output location can hold several checkpoint generations and the files next to them."""
    return job.output is not None and not is_http(job.output.location.url)


def uses_pixi(context: AttemptContext) -> bool:
    """Return whether steps run in a Pixi environment: those without a container do."""
    return context.job.environment.pixi is not None and not context.in_container
