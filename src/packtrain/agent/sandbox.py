"""Every path that an attempt uses on the worker. Nothing outside is touched."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from packtrain.plan import AttemptFolder, Input

TRANSFERRED_CHECKPOINT = "checkpoint"  # the folder that HTCondor carries from one start of a job to the next
_DISK_RESERVE_BYTES = 1 << 16


@dataclass(frozen=True)
class Sandbox:
    """`root` is STORAGE_PATH and disappears at the end; `home` is the attempt's folder and stays."""

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
        """DEEPSQUARE_ENV: steps append KEY=VALUE lines, later steps get them."""
        return self.root / "env"

    @property
    def metrics_file(self) -> Path:
        """PACKTRAIN_METRICS: training programs append JSON lines, the agent makes events of them."""
        return self.root / "metrics.jsonl"

    @property
    def checkpoints_file(self) -> Path:
        """PACKTRAIN_CHECKPOINTS: training programs announce what they have saved."""
        return self.root / "checkpoints.jsonl"

    @property
    def stop_file(self) -> Path:
        """PACKTRAIN_STOP: exists when the program should save and leave."""
        return self.root / "stop"

    @property
    def streams(self) -> Path:
        """What the program is told of inputs that it streams, and what it keeps of them."""
        return self.root / "streams"

    @property
    def checkpoint_staging(self) -> Path:
        """Checkpoints on their way out, on the same disk as the outputs."""
        return self.root / ".checkpoints"

    @property
    def disk_reserve(self) -> Path:
        """Goes with the sandbox: on a full disk, the room for the journal's last words."""
        return self.root / ".ballast"

    @property
    def transferred_checkpoint(self) -> Path:
        """Checkpoints of a job without another place for them, if the engine carries the folder."""
        return self.attempt_folder.root / TRANSFERRED_CHECKPOINT

    @property
    def reuse_folder(self) -> Path:
        """Inputs for the next start in this place, if the engine names no other folder."""
        return self.attempt_folder.root / "reusable-inputs"

    def input_folder(self, job_input: Input) -> Path:
        return self.root / job_input.folder

    def create(self) -> None:
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
