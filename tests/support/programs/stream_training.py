"""A small training that streams its samples, saves after each batch, and writes which samples it saw."""

from __future__ import annotations

import argparse
import json
import os
import time
import zlib
from pathlib import Path

import torch

from packtrain.torch import Checkpoint, StreamingLoader

BATCH_SIZE = 4


def decode(data: bytes, label: int) -> tuple[int, int]:
    return zlib.crc32(data), label


def train(options: argparse.Namespace) -> None:
    output = Path(os.environ["PACKTRAIN_OUTPUT"])
    data = StreamingLoader(
        batch_size=BATCH_SIZE, num_workers=options.workers, decode_fn=decode, read_bytes=4000, prefetch_bytes=40_000
    )
    checkpoint = Checkpoint(output / "checkpoint.pt", model=torch.nn.Linear(1, 1), data=data)
    start = checkpoint.restore()
    seen, step = list(start.extra.get("seen", [])), start.step
    print(f"starts at {step}", flush=True)
    for epoch in range(data.epoch, options.epochs):
        for crcs, _ in data:
            seen.append([epoch, crcs.tolist()])
            step += 1
            checkpoint.save(epoch=epoch, step=step, seen=seen)
            wait_for_gate(step, options, checkpoint)
            if checkpoint.should_stop():
                checkpoint.exit_for_requeue()
    checkpoint.close()
    (output / "seen.json").write_text(json.dumps(seen))


def wait_for_gate(step: int, options: argparse.Namespace, checkpoint: Checkpoint) -> None:
    """Wait at one step until the gate exists or the job must stop."""
    if step == options.wait_at:
        (options.gate.parent / "waits").touch()
    while step == options.wait_at and not options.gate.exists() and not checkpoint.should_stop():
        time.sleep(0.01)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--wait-at", type=int, default=-1)
    parser.add_argument("--gate", type=Path)
    torch.set_num_threads(1)
    train(parser.parse_args())
