"""A simulated training: sleeps for the time that this node takes to compute, step by step, and writes a model.

Like the published program, it downloads its weights first. With `--save` it saves checkpoints, resumes from them, and
exits when asked to. Standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import time
import urllib.request
from pathlib import Path

N_STEPS = 100
CHECKPOINT_EXIT_CODE = 85


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--weights", required=True, help="URL of the weights")
    parser.add_argument(
        "--setup-share", type=float, default=0.0, help="share of the time before the weights are needed"
    )
    parser.add_argument("--node-seconds", type=Path, help="folder with a file per Slurm node: how long it takes")
    parser.add_argument("--save", type=int, default=0, help="steps between checkpoints; 0: never")
    args = parser.parse_args()
    images = sum(1 for _ in args.data.rglob("*.JPEG"))
    if not images:
        print("the dataset is empty", file=sys.stderr)
        return 1
    return PacedTraining(args).run()


class PacedTraining:
    """The training loop."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.save_interval_steps, self.args = args.save, args
        self.compute_s = node_compute_s(args.node_seconds)
        self.output = Path(os.environ.get("PACKTRAIN_OUTPUT", ".") if args.save else ".")
        self.stop_requested = False
        if args.save:
            signal.signal(signal.SIGTERM, self._on_term)

    def _on_term(self, signum: int, frame: object) -> None:
        self.stop_requested = True

    def run(self) -> int:
        """Train and return the exit code."""
        for step in range(self._restore_step() + 1, N_STEPS + 1):
            self._sleep(self.compute_s * (1 - self.args.setup_share) / N_STEPS)
            print(f"step {step}/{N_STEPS}", flush=True)
            if self.save_interval_steps:
                self._report(step)
                if step % self.save_interval_steps == 0 or self._should_exit():
                    self._save(step)
                if self._should_exit() and step < N_STEPS:
                    return CHECKPOINT_EXIT_CODE
        (self.output / "model.pt").write_bytes(b"weights\n" * 1000)
        return 0

    def _restore_step(self) -> int:
        """Prepare the data and return the step to resume from; without a checkpoint, download the weights."""
        self._sleep(self.compute_s * self.args.setup_share)
        resumed = os.environ.get("PACKTRAIN_RESUME") if self.save_interval_steps else None
        if resumed:
            return int(Path(resumed).read_text().split()[0])
        with urllib.request.urlopen(self.args.weights) as response:
            response.read()
        return 0

    def _sleep(self, duration_s: float) -> None:
        deadline = time.monotonic() + duration_s
        while not self.stop_requested and (remaining_s := deadline - time.monotonic()) > 0:
            time.sleep(min(remaining_s, 0.5))

    def _should_exit(self) -> bool:
        return self.stop_requested or Path(os.environ["PACKTRAIN_STOP"]).exists()

    def _report(self, step: int) -> None:
        with open(os.environ["PACKTRAIN_METRICS"], "a") as file:
            file.write(json.dumps({"step": step, "total_steps": N_STEPS}) + "\n")

    def _save(self, step: int) -> None:
        target = self.output / "checkpoint.pt"
        temporary = target.with_name(f".{target.name}.tmp-{os.getpid()}")
        temporary.write_text(f"{step} steps\n" + "x" * 10_000)
        temporary.replace(target)
        with open(os.environ["PACKTRAIN_CHECKPOINTS"], "a") as file:
            file.write(json.dumps({"path": str(target), "step": step}) + "\n")


def node_compute_s(folder: Path | None) -> float:
    """Return how long a complete training takes on this node, from its file or its ad."""
    if folder:
        return float((folder / os.environ["SLURMD_NODENAME"]).read_text())
    ad = Path(os.environ["_CONDOR_MACHINE_AD"]).read_text()
    match = re.search(r"^TrainingSeconds = ([\d.]+)", ad, re.MULTILINE)
    assert match, "the ad of this node has no TrainingSeconds"
    return float(match[1])


if __name__ == "__main__":
    sys.exit(main())
