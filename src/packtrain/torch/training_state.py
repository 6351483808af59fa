"""Where a training stands, and what a checkpoint file says about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from packtrain.errors import PacktrainError

CHECKPOINT_VERSION = 1
PACKTRAIN_KEY = "packtrain"  # the key of a checkpoint file under which everything but the model lies

StateDict = dict[str, Any]


class CheckpointError(PacktrainError):
    """A checkpoint that cannot be written, or does not fit the program that reads it."""


@dataclass(frozen=True)
class TrainingState:
    """Where to go on. A training that starts afresh is at epoch 1, batch 0."""

    epoch: int = 1  # the one to go on with, counted from 1 as in `report`
    batch: int = 0  # how many batches of it are done
    step: int = 0  # how many steps are done in all
    best_value: float | None = None  # the best metric so far, if `best=` names one
    metrics: Mapping[str, float] = field(default_factory=dict)  # as given to the last `save`
    extra: Mapping[str, Any] = field(default_factory=dict)  # whatever else was given to the last `save`

    def to_dict(self) -> StateDict:
        return {**vars(self), "metrics": dict(self.metrics), "extra": dict(self.extra)}


def parse_training_state(state: StateDict) -> TrainingState:
    """Of our file, or of one of DeepSquare's program, which counts epochs from 0 and accuracy in percent."""
    if PACKTRAIN_KEY in state:
        return TrainingState(**state[PACKTRAIN_KEY]["position"])
    return TrainingState(epoch=int(state["epoch"]) + 2, best_value=float(state["acc"]) / 100)


def model_state_dict(state: StateDict) -> StateDict:
    """The model's entries, without the prefixes that wrappers put in front of their names."""
    found: StateDict = state["model"] if "model" in state else state["net"]
    for prefix in ("module.", "_orig_mod."):  # of DistributedDataParallel, and of torch.compile
        if found and all(name.startswith(prefix) for name in found):
            found = {name[len(prefix) :]: value for name, value in found.items()}
    return found


def find_problem(state: Any) -> str:
    """Why this is no checkpoint, or nothing."""
    if not isinstance(state, dict) or not ("model" in state or "net" in state):
        return "it holds no model"
    if PACKTRAIN_KEY not in state:
        return "" if {"net", "acc", "epoch"} <= state.keys() else "it does not say where the training stood"
    version = state[PACKTRAIN_KEY].get("version")
    return (
        ""
        if version == CHECKPOINT_VERSION
        else f"its format has version {version}, and this packtrain reads {CHECKPOINT_VERSION}"
    )
