"""The training state, and the keys of a checkpoint file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from packtrain.errors import PacktrainError

CHECKPOINT_VERSION = 3
PACKTRAIN_KEY = "packtrain"  # the key that holds everything except the model

StateDict = dict[str, Any]


class CheckpointError(PacktrainError):
    """A checkpoint cannot be written, or does not fit the program that reads it."""


@dataclass(frozen=True)
class TrainingState:
    """Where training resumes. A new training starts with epoch 0, batch 0.

    Attributes:
        epoch: The epoch to resume with, counted from 0.
        batch: Number of completed batches of that epoch.
        step: Number of completed steps in total.
        best_value: The best value so far of the metric that `Checkpoint(monitor=...)` names.
        metrics: The metrics of the last `save`.
        extra: The other values of the last `save`.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
    best_value: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> StateDict:
        """Return the fields as plain dicts."""
        return {**vars(self), "metrics": dict(self.metrics), "extra": dict(self.extra)}


def parse_training_state(state: StateDict) -> TrainingState:
    """Return the training state of a checkpoint.

    Args:
        state: The content of a checkpoint file.
    """
    return TrainingState(**state[PACKTRAIN_KEY]["training_state"])


def model_state_dict(state: StateDict) -> StateDict:
    """Return the state dict of the model, without the name prefixes that wrappers add.

    Args:
        state: The content of a checkpoint file.
    """
    model_state: StateDict = state["model"]
    for prefix in ("module.", "_orig_mod."):  # of DistributedDataParallel, and of torch.compile
        if model_state and all(name.startswith(prefix) for name in model_state):
            model_state = {name[len(prefix) :]: value for name, value in model_state.items()}
    return model_state


def find_problem(state: Any) -> str:
    """Return why this is not a checkpoint, or an empty string if it is one.

    Args:
        state: The content of a file.
    """
    if not isinstance(state, dict) or "model" not in state:
        return "it holds no model"
    if PACKTRAIN_KEY not in state:
        return "it holds no training state"
    version = state[PACKTRAIN_KEY].get("version", CHECKPOINT_VERSION)
    if version != CHECKPOINT_VERSION:
        return f"its format has version {version}, and this packtrain reads {CHECKPOINT_VERSION}"
    return ""
