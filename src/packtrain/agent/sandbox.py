"""Every path that an attempt uses on the worker. Nothing outside is touched."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from packtrain.plan import AttemptFolder, Input

CARRIED = "checkpoint"  # the folder that HTCondor carries from one start of a job to the next
_BALLAST = 1 << 16


@dataclass(frozen=True)
class Sandbox:
    """`root` is STORAGE_PATH and disappears at the end; `home` is the attempt's folder and stays."""

    root: Path
    home: AttemptFolder

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
    def metrics(self) -> Path:
        """PACKTRAIN_METRICS: training programs append JSON lines, the agent makes events of them."""
        return self.root / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
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
    def aside(self) -> Path:
        """Checkpoints on their way out, on the same disk as the outputs."""
        return self.root / ".checkpoints"

    @property
    def ballast(self) -> Path:
        """Goes with the sandbox: on a full disk, the room for the journal's last words."""
        return self.root / ".ballast"

    @property
    def carried(self) -> Path:
        """Checkpoints of a job without another place for them, if the engine carries the folder."""
        return self.home.root / CARRIED

    @property
    def kept(self) -> Path:
        """Inputs for the next start in this place, if the engine names no other folder."""
        return self.home.root / "kept"

    def folder_of(self, source: Input) -> Path:
        return self.root / source.folder

    def create(self) -> None:
        for folder in (self.input, self.inputs, self.output, self.tmp, self.aside, self.home.logs):
            folder.mkdir(parents=True, exist_ok=True)
        self.env_file.touch()
        self.ballast.write_bytes(bytes(_BALLAST))
