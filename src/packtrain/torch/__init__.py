"""Library for training programs: checkpoints, resumable data order and metrics.

    from packtrain.torch import Checkpoint, ResumableBatchSampler, log_metrics

A *checkpoint* is one file with the model, the optimizer, the random number states and the `TrainingState`: the epoch,
batch and step at which training resumes. A *batch sampler* decides which samples form a batch, so that a resumed
training sees every sample of an epoch exactly once. A *streaming loader* does the same for samples that are read from
a remote archive.

The package is sent to the worker with the agent. Importing it needs the standard library alone; torch is imported on
first use, and `StreamingLoader` and `make_streaming_loader` are imported when they are accessed. A program that uses
the package behaves the same without packtrain. Uploading checkpoints is the agent's task, not this package's.

Start reading in checkpoint.py; docs/how-to/training.md shows the use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from packtrain.torch.checkpoint import Checkpoint
from packtrain.torch.metrics import log_metrics
from packtrain.torch.sampler import ResumableBatchSampler
from packtrain.torch.training_state import CheckpointError, TrainingState

if TYPE_CHECKING:
    from packtrain.torch.streaming import StreamingLoader, make_streaming_loader

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "ResumableBatchSampler",
    "StreamingLoader",
    "TrainingState",
    "log_metrics",
    "make_streaming_loader",
]

_LAZY_NAMES = ("StreamingLoader", "make_streaming_loader")  # their module imports torch


def __getattr__(name: str) -> Any:
    if name not in _LAZY_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from packtrain.torch import streaming

    return getattr(streaming, name)
