"""Numbers as text for people: 3 min 20 s, 162 MB, 45.3%."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NONFINITE_VALUES = ("nan", "inf", "-inf")  # JSON has no numbers for them
_SIZE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
# Training metrics that are shown first; others follow under their own names.
_METRIC_ORDER = ("epoch", "step", "loss", "accuracy", "test_loss", "test_accuracy")
_HIDDEN_METRICS = frozenset({"total_steps", "epochs", "seconds"})
_MIN_WAIT_SHOWN_S = 60.0
_RATE_SUFFIXES = ("_per_second", "_per_s")


def format_size(n_bytes: float | None) -> str:
    """Return a byte count with a decimal unit, e.g. `162 MB`."""
    if n_bytes is None:
        return "?"
    value = float(n_bytes)
    for unit in _SIZE_UNITS:
        if value < 1000 or unit == _SIZE_UNITS[-1]:
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" or value >= 99.5 else f"{value:.1f} {unit}"


def format_wait(since: float, now: float) -> str:
    """Return `, for 3 h 20 min`, or an empty string for a wait of less than a minute."""
    return f", for {format_duration(now - since)}" if since and now - since >= _MIN_WAIT_SHOWN_S else ""


def format_duration(seconds: float | None) -> str:
    """Return a duration with at most two units, e.g. `3 min 20 s`."""
    if seconds is None:
        return "?"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    rounded = round(seconds)
    if rounded < 60:
        return f"{rounded} s"
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60:02d} s"
    if rounded < 86400 * 2:
        return f"{rounded // 3600} h {rounded % 3600 // 60:02d} min"
    return f"{rounded // 86400} d {rounded % 86400 // 3600} h"


def format_age(age_s: float) -> str:
    """Return `now` or `3 min 20 s ago`."""
    return "now" if age_s < 1 else f"{format_duration(age_s)} ago"


def format_metrics(values: Mapping[str, Any]) -> str:
    """Return `epoch 2/2 · loss 1.234 · accuracy 45.6% · 812 images/s`."""
    return " · ".join(text for text, _ in format_metric_list(values))


def format_metric_list(values: Mapping[str, Any]) -> list[tuple[str, bool]]:
    """Return each metric as text, and False for values that are not finite, such as a loss of NaN."""
    others = sorted(
        (key for key in values if key not in _METRIC_ORDER and key not in _HIDDEN_METRICS), key=is_rate_metric
    )
    keys = [key for key in (*_METRIC_ORDER, *others) if key in values]
    return [(_format_metric(key, values[key], values), values[key] not in NONFINITE_VALUES) for key in keys]


def is_rate_metric(name: str) -> bool:
    """Return True for metrics such as `images_per_s`."""
    return name.endswith(_RATE_SUFFIXES)


def format_progress(fraction: float | None, remaining_s: float | None) -> str:
    """Return `40% · 3 min 20 s left`."""
    parts = [
        "" if fraction is None else f"{fraction:.0%}",
        f"{format_duration(remaining_s)} left" if remaining_s else "",
    ]
    return " · ".join(part for part in parts if part)


def format_final_metrics(values: Mapping[str, Any]) -> str:
    """Return `accuracy 46.2% · loss 1.586 · epoch 2/2`: the results, most important first."""
    order = sorted(values, key=lambda key: ("accuracy" not in key, "loss" not in key))
    results = {key: values[key] for key in order if key == "epoch" or "accuracy" in key or "loss" in key}
    return " · ".join(_format_metric(key, value, values) for key, value in results.items()) or format_metrics(values)


def _format_metric(key: str, value: Any, values: Mapping[str, Any]) -> str:
    if is_rate_metric(key):
        return (
            f"{value:,.0f} {_rate_unit(key)}/s" if isinstance(value, (int, float)) else f"{_rate_unit(key)}/s {value}"
        )
    name = key.replace("_", " ")
    if key == "epoch" and "epochs" in values:
        return f"epoch {value}/{values['epochs']}"
    if key == "step" and "total_steps" in values:
        return f"step {value}/{values['total_steps']}"
    if key.endswith("accuracy") and isinstance(value, float) and value <= 1:
        return f"{name} {value:.1%}"
    return f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"


def _rate_unit(key: str) -> str:
    return next(key[: -len(end)] for end in _RATE_SUFFIXES if key.endswith(end)).replace("_", " ")
