"""How far a running attempt is, where its agent can only be seen through the engine: bytes, epoch, loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packtrain.events import Event, kinds
from packtrain.state.execution import Execution, Stage, copy_with
from packtrain.state.training_progress import TrainingProgress, to_finite_float

_METRIC_KEYS = ("step", "total_steps", "epoch", "epochs", "loss")


def apply_progress(execution: Execution, snapshot: Mapping[str, Any]) -> Execution:
    """The attempt with what was seen of it; its own words, where they say more, count."""
    if not execution.is_live or snapshot.get("attempt") != execution.attempt_id:
        return execution
    stage = str(snapshot.get("stage") or execution.stage)
    stages = execution.stages if stage in ("", execution.stage) else (*execution.stages, Stage(stage))
    measures = {name: snapshot[name] for name in _METRIC_KEYS if to_finite_float(snapshot.get(name)) is not None}
    measures |= {
        name: value for name, value in dict(snapshot.get("metric") or {}).items() if to_finite_float(value) is not None
    }
    training = execution.training
    if measures and not training.values:
        training = TrainingProgress()
        training.add(Event("", "", "", 1, kinds.METRIC, 0.0, 0.0, measures))
    progress = execution.progress
    if snapshot.get("done") is not None:
        progress = {"stage": stage, "done": snapshot["done"], "total": snapshot.get("total"), "unit": "bytes"}
    saved = snapshot.get("checkpoint") or execution.checkpoint
    return copy_with(execution, stages=stages, progress=progress, training=training, checkpoint=saved)
