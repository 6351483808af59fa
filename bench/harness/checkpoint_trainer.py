"""A training with 200 MB of state that measures the cost of its checkpoints. Run by bench/train.py through the agent.

Windows without and with a checkpoint alternate in one run, so that both run under the same conditions.
Writes metrics.json to $PACKTRAIN_OUTPUT:

    checkpoint_blocked_s       how long `save` blocks the training, median
    checkpoint_blocked_max_s   maximum
    checkpoint_overhead_pct    how many percent fewer steps the windows with a checkpoint have
    checkpoint_mb              size of the file
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path

import torch
from torch import nn

from packtrain.torch import Checkpoint, log_metrics

parser = argparse.ArgumentParser()
parser.add_argument("--window", type=float, required=True)
parser.add_argument("--pairs", type=int, required=True)
parser.add_argument("--threads", type=int, required=True)
args = parser.parse_args()
torch.set_num_threads(args.threads)
torch.manual_seed(1)

# 25 million parameters and the same amount of momentum: 200 MB.
model = nn.Sequential(*(layer for _ in range(6) for layer in (nn.Linear(2040, 2040), nn.ReLU())))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
x = torch.randn(16, 2040)
output = Path(os.environ["PACKTRAIN_OUTPUT"])


def train_for(duration_s, step):
    """Train for some time and return the number of steps."""
    started_at, n_steps = time.monotonic(), 0
    while time.monotonic() - started_at < duration_s:
        loss = model(x).pow(2).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        n_steps += 1
    log_metrics(step=step + n_steps, loss=loss)
    return n_steps


ckpt = Checkpoint("checkpoint.pt", model=model, optimizer=optimizer)
step = train_for(min(3.0, args.window), 0)  # warm-up
blocked_s, steps = [], {"without": 0, "with": 0}
for number in range(2 * args.pairs):
    kind = ("without", "with", "with", "without")[number % 4]
    window_end = time.monotonic() + args.window
    if kind == "with":
        save_started_at = time.monotonic()
        ckpt.save(epoch=0, step=step)
        blocked_s.append(time.monotonic() - save_started_at)
        print(f"save at step {step}: training waited {blocked_s[-1]:.3f} s", flush=True)
    n_steps = train_for(window_end - time.monotonic(), step)
    steps[kind] += n_steps
    step += n_steps
    print(f"window {number + 1} of {2 * args.pairs}, {kind} a checkpoint: {n_steps} steps", flush=True)
ckpt.close()

metrics = {
    "checkpoint_blocked_s": statistics.median(blocked_s),
    "checkpoint_blocked_max_s": max(blocked_s),
    "checkpoint_overhead_pct": 100 * (1 - steps["with"] / steps["without"]),
    "checkpoint_mb": (output / "checkpoint.pt").stat().st_size / 1e6,
}
(output / "metrics.json").write_text(json.dumps(metrics))
