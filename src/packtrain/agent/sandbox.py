"""Every path that an execution uses on the worker. The agent writes nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from packtrain.plan import AttemptFolder, Input

_DISK_RESERVE_BYTES = 1 << 16


@dataclass(frozen=True)
class Sandbox:
    """The folders of one execution. `root` (STORAGE_PATH) is removed at the end, `attempt_folder` is not."""

    root: Path
    attempt_folder: AttemptFolder

    @property
    def input(self) -> Path:
        return self.root / "input"

    @property
    def inputs(self) -> Path:
        return self.root / "inputs"

    @property
    def output(self) -> Path:
        return self.root / "output"

    @property
    def tmp(self) -> Path:
        return self.root / "tmp"

    @property
    def env_file(self) -> Path:
        """DEEPSQUARE_ENV: steps append KEY=VALUE lines, which become variables of later steps."""
        return self.root / "env"

    @property
    def metrics_file(self) -> Path:
        """PACKTRAIN_METRICS: training programs append JSON lines, which the agent converts to events."""
        return self.root / "metrics.jsonl"

    @property
    def checkpoints_file(self) -> Path:
        """PACKTRAIN_CHECKPOINTS: training programs announce the checkpoints they saved."""
        return self.root / "checkpoints.jsonl"

    @property
    def stop_file(self) -> Path:
        """PACKTRAIN_STOP: exists when the program should save a checkpoint and exit."""
        return self.root / "stop"

    @property
    def streams(self) -> Path:
        """Configuration of streamed inputs, and the blocks that the program caches."""
        return self.root / "streams"

    @property
    def checkpoint_staging(self) -> Path:
        """Checkpoints being uploaded, on the same disk as the outputs."""
        return self.root / ".checkpoint-staging"

    @property
    def disk_reserve(self) -> Path:
        """A file that is removed with the sandbox, so that the last events fit on a full disk."""
        return self.root / ".disk-reserve"

    @property
    def reuse_folder(self) -> Path:
        """Inputs for the next execution on this machine, if the engine names no other folder."""
        return self.attempt_folder.root / "reusable-inputs"

    def input_folder(self, job_input: Input) -> Path:
        return self.root / job_input.folder

    def create(self) -> None:
        """Create the folders and files that every execution needs."""
        for folder in (
            self.input,
            self.inputs,
            self.output,
            self.tmp,
            self.checkpoint_staging,
            self.attempt_folder.logs,
        ):
            folder.mkdir(parents=True, exist_ok=True)
        self.env_file.touch()
        self.disk_reserve.write_bytes(bytes(_DISK_RESERVE_BYTES))
