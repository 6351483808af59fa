"""How a training program tells how it is doing.

Under packtrain each report is one JSON line in the file that $PACKTRAIN_METRICS names, which the agent
turns into METRIC events (docs/formats/events.md); without packtrain it is a tidy line on stdout.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping
from typing import Any, SupportsFloat, Union

MetricValue = Union[int, float, str]  # a string only for what JSON has no number for: nan, inf, -inf

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
    """Report any of these, and other numbers by name; torch and numpy scalars are welcome.

    `step` and `epoch` count from 1, up to `total_steps` and `epochs`, which let views show a bar;
    `accuracy` is a fraction of 1. In distributed training only rank 0 speaks ($RANK).
    A full disk never ends a training: a report that cannot be written is dropped.
    """
    if _rank() > 0:
        return
    named = {"epoch": epoch, "epochs": epochs, "step": step, "total_steps": total_steps}
    given = {**named, "loss": loss, "accuracy": accuracy, **metrics}
    values = {name: _to_json_number(name, value) for name, value in given.items() if value is not None}
    path = os.environ.get("PACKTRAIN_METRICS")
    if path:
        _append_line(path, json.dumps(values))
    else:
        sys.stdout.write(_format_metrics(values) + "\n")
        sys.stdout.flush()


def _rank() -> int:
    text = os.environ.get("RANK", "")
    return int(text) if text.isdigit() else 0


def _to_json_number(name: str, value: Any) -> MetricValue:
    if hasattr(value, "item"):  # a scalar of torch or numpy
        value = value.item()
    if isinstance(value, int):
        return int(value)
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"report({name}=…) takes a number, but got {value!r}") from None
    return number if math.isfinite(number) else str(number)


def _append_line(path: str, line: str) -> None:
    """One write in append mode: lines of several processes never mix."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.write(file, (line + "\n").encode())
        finally:
            os.close(file)
    except OSError:
        pass  # see report's docstring


def _format_metrics(values: Mapping[str, MetricValue]) -> str:
    """`epoch 1/2  step 120/156  loss 1.234  accuracy 45.6%`"""
    totals = {name: f"/{values[total]}" for name, total in _TOTAL_KEYS.items() if total in values}
    told = (name for name in values if name not in _TOTAL_KEYS.values())
    return "  ".join(f"{name} {_format_metric(name, values[name])}{totals.get(name, '')}" for name in told)


def _format_metric(name: str, value: MetricValue) -> str:
    if isinstance(value, str):
        return value
    return _METRIC_FORMATS.get(name, "{:.4g}" if isinstance(value, float) else "{}").format(value)
