"""Numbers in words that people read: 3 min 20 s, 162 MB, 45.3%."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NOT_FINITE = ("nan", "inf", "-inf")  # JSON has no numbers for them
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
# How much of a training metric is shown, and how; others follow by their own names.
_METRICS = ("epoch", "step", "loss", "accuracy", "test_loss", "test_accuracy")
_HIDDEN = frozenset({"total_steps", "epochs", "seconds"})
_LONG_S = 60.0
_RATES = ("_per_second", "_per_s")


def size(count: float | None) -> str:
    if count is None:
        return "?"
    value = float(count)
    for unit in _UNITS:
        if value < 1000 or unit == _UNITS[-1]:
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" or value >= 99.5 else f"{value:.1f} {unit}"


def waited(since: float, now: float) -> str:
    """, for 3 h 20 min; nothing of what is short."""
    return f", for {duration(now - since)}" if since and now - since >= _LONG_S else ""


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400 * 2:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def ago(seconds: float) -> str:
    return "now" if seconds < 1 else f"{duration(seconds)} ago"


def metric(data: Mapping[str, Any]) -> str:
    """epoch 2/2 · loss 1.234 · accuracy 45.6% · 812 images/s"""
    return " · ".join(text for text, _ in metrics(data))


def metrics(data: Mapping[str, Any]) -> list[tuple[str, bool]]:
    """Each value in words, and whether all is well with it: a loss of NaN is not."""
    others = sorted((key for key in data if key not in _METRICS and key not in _HIDDEN), key=is_rate)
    shown = [key for key in (*_METRICS, *others) if key in data]
    return [(_one(key, data[key], data), data[key] not in NOT_FINITE) for key in shown]


def is_rate(key: str) -> bool:
    return key.endswith(_RATES)


def ahead(fraction: float | None, left_s: float | None) -> str:
    """40% · 3 min 20 s left"""
    parts = ["" if fraction is None else f"{fraction:.0%}", f"{duration(left_s)} left" if left_s else ""]
    return " · ".join(part for part in parts if part)


def result(data: Mapping[str, Any]) -> str:
    """accuracy 46.2% · loss 1.586 · epoch 2/2: what came out, first things first"""
    order = sorted(data, key=lambda key: ("accuracy" not in key, "loss" not in key))
    kept = {key: data[key] for key in order if key == "epoch" or "accuracy" in key or "loss" in key}
    return " · ".join(_one(key, value, data) for key, value in kept.items()) or metric(data)


def _one(key: str, value: Any, data: Mapping[str, Any]) -> str:
    if is_rate(key):
        return f"{value:,.0f} {_rated(key)}/s" if isinstance(value, (int, float)) else f"{_rated(key)}/s {value}"
    name = key.replace("_", " ")
    if key == "epoch" and "epochs" in data:
        return f"epoch {value}/{data['epochs']}"
    if key == "step" and "total_steps" in data:
        return f"step {value}/{data['total_steps']}"
    if key.endswith("accuracy") and isinstance(value, float) and value <= 1:
        return f"{name} {value:.1%}"
    return f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"


def _rated(key: str) -> str:
    return next(key[: -len(end)] for end in _RATES if key.endswith(end)).replace("_", " ")
