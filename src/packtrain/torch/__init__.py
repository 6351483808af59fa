"""Library for training programs: checkpoints, resumable data order and metrics.

    from packtrain.torch import Checkpoint, ResumableBatchSampler, log_metrics

A *checkpoint* is one file with the model, the optimizer, the random number states and the `TrainingState`: the epoch,
batch and step at which training resumes. A *batch sampler* decides which samples form a batch, so that a resumed
training sees every sample of an epoch exactly once. A *streaming loader* does the same for samples that are read from
a remote archive.

| | counts |
| --- | --- |
| `epoch` | from 0, the current epoch; in a checkpoint the one to resume with |
| `batch` | completed batches of that epoch, which is also the number of the next one, from 0 |
| `step` | completed steps, over all epochs and attempts |
| `batch_size` | samples of one process |

The package is sent to the worker with the agent. Importing it needs the standard library alone; torch is imported on
first use, and `ResumableBatchSampler` and `StreamingLoader` are imported when they are accessed. A program that uses
the package behaves the same without packtrain. Uploading checkpoints is the agent's task, not this package's.

Start reading in checkpoint.py; docs/how-to/training.md shows the use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from packtrain.torch.checkpoint import Checkpoint
from packtrain.torch.metrics import log_metrics
from packtrain.torch.training_state import CheckpointError, TrainingState

if TYPE_CHECKING:
    from packtrain.torch.sampler import ResumableBatchSampler
    from packtrain.torch.streaming import StreamingLoader

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "ResumableBatchSampler",
    "StreamingLoader",
    "TrainingState",
    "log_metrics",
]

_LAZY_MODULES = {"ResumableBatchSampler": "sampler", "StreamingLoader": "streaming"}  # these import torch


def __getattr__(name: str) -> Any:
    if name not in _LAZY_MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY_MODULES[name]}"), name)
