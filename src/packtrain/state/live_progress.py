"""How far a running attempt is, where its agent can only be seen through the engine: bytes, epoch, loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packtrain.events import Event, kinds
from packtrain.state.execution import Attempt, Stage, changed
from packtrain.state.training_progress import Training, number

_MEASURES = ("step", "total_steps", "epoch", "epochs", "loss")


def glimpsed(attempt: Attempt, seen: Mapping[str, Any]) -> Attempt:
    """The attempt with what was seen of it; its own words, where they say more, count."""
    if not attempt.live or seen.get("decision") != attempt.decision:
        return attempt
    stage = str(seen.get("stage") or attempt.stage)
    stages = attempt.stages if stage in ("", attempt.stage) else (*attempt.stages, Stage(stage))
    measures = {name: seen[name] for name in _MEASURES if number(seen.get(name)) is not None}
    measures |= {name: value for name, value in dict(seen.get("metric") or {}).items() if number(value) is not None}
    training = attempt.training
    if measures and not training.values:
        training = Training()
        training.add(Event("", "", "", 1, kinds.METRIC, 0.0, 0.0, measures))
    progress = attempt.progress
    if seen.get("done") is not None:
        progress = {"stage": stage, "done": seen["done"], "total": seen.get("total"), "unit": "bytes"}
    saved = seen.get("checkpoint") or attempt.checkpoint
    return changed(attempt, stages=stages, progress=progress, training=training, checkpoint=saved)
