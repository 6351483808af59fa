"""A training program without dependencies: it counts steps, saves like `packtrain.torch`, and exits on request.

The content of a checkpoint follows from its training step, so any damage is detected.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path

CHECKPOINT_EXIT_CODE = 85


def checkpoint_content(step: int, n_bytes: int) -> bytes:
    head = b"step %d of a training\n" % step
    return head + bytes([step % 251]) * max(0, n_bytes - len(head))


def parse_checkpoint_step(data: bytes) -> int:
    """Return the step of a checkpoint; fails if it is damaged or truncated."""
    step = int(data.split(b"\n", 1)[0].split()[1])
    assert data == checkpoint_content(step, len(data)), "the checkpoint is damaged"
    return step


class CountingTraining:
    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.output = args, Path(os.environ["PACKTRAIN_OUTPUT"])
        self.stop_requested = False
        signal.signal(signal.SIGTERM, signal.SIG_DFL if args.ignore_stop else self._on_term)

    def _on_term(self, signum: int, frame: object) -> None:
        self.stop_requested = True

    def run(self) -> int:
        step = self._restore_step()
        print(f"starts at {step}", flush=True)
        while step < self.args.steps:
            step += 1
            self._report(step)
            if step % self.args.every == 0:
                self._save(step)
            time.sleep(self.args.pace)
            while self._must_wait_for_gate(step):
                time.sleep(self.args.pace)
            if self._should_stop():
                self._save(step)
                return CHECKPOINT_EXIT_CODE
            if step == self.args.exit_at:
                return CHECKPOINT_EXIT_CODE
        (self.output / "model.bin").write_bytes(checkpoint_content(step, 100))
        return 0

    def _must_wait_for_gate(self, step: int) -> bool:
        """Return whether the step is at or after --wait-at and the gate is closed; also after a resume there."""
        return step >= self.args.wait_at >= 0 and not self.args.gate.exists() and not self._should_stop()

    def _restore_step(self) -> int:
        path = os.environ.get("PACKTRAIN_RESUME")
        return parse_checkpoint_step(Path(path).read_bytes()) if path else 0

    def _should_stop(self) -> bool:
        return not self.args.ignore_stop and (self.stop_requested or os.path.exists(os.environ["PACKTRAIN_STOP"]))

    def _report(self, step: int) -> None:
        with open(os.environ["PACKTRAIN_METRICS"], "a") as file:
            file.write(json.dumps({"step": step, "total_steps": self.args.steps}) + "\n")

    def _save(self, step: int) -> None:
        """Save a checkpoint; a full disk does not stop the training."""
        target = self.output / self.args.name
        temporary = target.with_name(f".{target.name}.tmp-{os.getpid()}")
        with contextlib.suppress(OSError):
            temporary.write_bytes(checkpoint_content(step, self.args.size))
            temporary.replace(target)
            if not self.args.no_announce:
                self._notify_agent(target, step)

    def _notify_agent(self, target: Path, step: int) -> None:
        line = json.dumps({"path": str(target), "step": step, "epoch": step // 100}) + "\n"
        with open(os.environ["PACKTRAIN_CHECKPOINTS"], "ab", buffering=0) as file:
            file.write(line.encode())


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--every", type=int, default=1, help="save after this number of steps")
    parser.add_argument("--pace", type=float, default=0.02, help="seconds per step")
    parser.add_argument("--size", type=int, default=1000, help="size of a checkpoint in bytes")
    parser.add_argument("--name", default="ckpt.bin")
    parser.add_argument("--no-announce", action="store_true", help="do not announce checkpoints")
    parser.add_argument(
        "--ignore-stop", action="store_true", help="exit on SIGTERM without saving, and ignore stop requests"
    )
    parser.add_argument(
        "--exit-at",
        type=int,
        default=-1,
        help="exit with code 85 at this step without a stop request and without saving",
    )
    parser.add_argument("--wait-at", type=int, default=-1, help="wait at this step until --gate exists")
    parser.add_argument("--gate", type=Path, default=Path("gate"))
    return CountingTraining(parser.parse_args()).run()


if __name__ == "__main__":
    sys.exit(main())
