"""Log the metrics of a training program.

With packtrain, each call appends one JSON line to the file $PACKTRAIN_METRICS, which the agent turns into metric
events (docs/formats/events.md). Without packtrain, it prints one line to stdout.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, SupportsFloat, Union

MetricValue = Union[int, float, str]  # a string for numbers that JSON lacks: nan, inf, -inf

_TOTAL_KEYS = {"epoch": "epochs", "step": "total_steps"}
_METRIC_FORMATS = {"loss": "{:.3f}", "accuracy": "{:.1%}"}


def log_metrics(
    *,
    step: SupportsFloat | None = None,
    epoch: SupportsFloat | None = None,
    loss: SupportsFloat | None = None,
    accuracy: SupportsFloat | None = None,
    total_steps: SupportsFloat | None = None,
    epochs: SupportsFloat | None = None,
    **metrics: SupportsFloat,
) -> None:
    """Log metrics. Scalars of torch and numpy are converted to numbers.

    In a distributed training only rank 0 logs ($RANK). A line that cannot be written is dropped, so that a full disk
    does not end the training.

    Args:
        step: The number of completed steps.
        epoch: The current epoch, counted from 0.
        loss: The loss.
        accuracy: The accuracy, as a fraction from 0 to 1.
        total_steps: The number of steps of the training. With it, views show a progress bar.
        epochs: The number of epochs of the training.
        **metrics: Other numbers, by name.

    Raises:
        TypeError: A value is not a number.
    """
    if _rank() > 0:
        return
    named = {"epoch": epoch, "epochs": epochs, "step": step, "total_steps": total_steps}
    all_metrics = {**named, "loss": loss, "accuracy": accuracy, **metrics}
    values = {name: _to_json_number(name, value) for name, value in all_metrics.items() if value is not None}
    path = os.environ.get("PACKTRAIN_METRICS")
    if path:
        append_line(path, json.dumps(values))
    else:
        sys.stdout.write(_format_metrics(values) + "\n")
        sys.stdout.flush()


def _rank() -> int:
    text = os.environ.get("RANK", "")
    return int(text) if text.isdigit() else 0


def _to_json_number(name: str, value: Any) -> MetricValue:
    if hasattr(value, "item"):  # a torch or numpy scalar
        value = value.item()
    if isinstance(value, int):
        return int(value)
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"log_metrics({name}=…) takes a number, but got {value!r}") from None
    return number if math.isfinite(number) else str(number)


def append_line(path: str, line: str) -> None:
    """Append with a single write, so that lines of several processes do not mix.

    A line that cannot be written is dropped, so that a full disk does not end the training.
    """
    with suppress(OSError):
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.write(fd, (line + "\n").encode())
        finally:
            os.close(fd)


def _format_metrics(values: Mapping[str, MetricValue]) -> str:
    """Return a line such as `epoch 0/2  step 120/156  loss 1.234  accuracy 45.6%`."""
    totals = {name: f"/{values[total]}" for name, total in _TOTAL_KEYS.items() if total in values}
    names = (name for name in values if name not in _TOTAL_KEYS.values())
    return "  ".join(f"{name} {_format_metric(name, values[name])}{totals.get(name, '')}" for name in names)


def _format_metric(name: str, value: MetricValue) -> str:
    if isinstance(value, str):
        return value
    return _METRIC_FORMATS.get(name, "{:.4g}" if isinstance(value, float) else "{}").format(value)
