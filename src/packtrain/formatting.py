"""Numbers and untrusted text as text for people: 1 h 20 min, 162 MB, 45%."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# What terminals and browsers interpret: C0, DEL, C1, marks that reorder text; and halves of surrogate pairs.
CONTROL_CHARS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
NONFINITE_VALUES = ("nan", "inf", "-inf")  # JSON has no numbers for them
_SIZE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_MINUTE_S, _HOUR_S = 60.0, 3600.0
# Training metrics that are shown first; others follow under their own names.
_METRIC_ORDER = ("epoch", "step", "loss", "accuracy", "test_loss", "test_accuracy")
_HIDDEN_METRICS = frozenset({"total_steps", "epochs", "seconds"})
_RATE_SUFFIXES = ("_per_second", "_per_s")


def format_size(n_bytes: float | None) -> str:
    """Return a byte count with a decimal unit, e.g. `162 MB` or `1.4 GB`."""
    if n_bytes is None:
        return "?"
    value = float(n_bytes)
    for unit in _SIZE_UNITS:
        if value < 999.5 or unit == _SIZE_UNITS[-1]:
            break
        value /= 1000
    return f"{value:,.0f} {unit}" if unit == "B" else f"{_round(value)} {unit}"


def format_rate(bytes_per_s: float) -> str:
    """Return a transfer rate, e.g. `12.5 MB/s`."""
    return f"{format_size(bytes_per_s)}/s"


def format_percent(fraction: float) -> str:
    """Return a fraction as `44%`, `1.2%` or `<0.1%`."""
    if 0 < fraction < 0.001:
        return "<0.1%"
    return f"{fraction:.0%}" if fraction >= 0.0995 else f"{_round(100 * fraction)}%"


def format_duration(seconds: float | None) -> str:
    """Return a duration with at most two units, e.g. `3 min 20 s` or `1 h 20 min`."""
    if seconds is None:
        return "?"
    if seconds < 9.95:
        return f"{_round(max(seconds, 0.0))} s"
    if seconds < 10 * _MINUTE_S - 0.5:
        return _join_units(round(seconds), 60, "min", "s")
    if seconds < 48 * _HOUR_S - 30:
        return _join_units(round(seconds / _MINUTE_S), 60, "h", "min")
    return _join_units(round(seconds / _HOUR_S), 24, "d", "h")


def format_slot_hours(seconds: float) -> str:
    """Return a sum of slot time: like a duration, but in whole hours above 10 h, so that sums can be compared."""
    return format_duration(seconds) if seconds < 10 * _HOUR_S - 30 else f"{seconds / _HOUR_S:,.0f} h"


def pluralize(number: int, noun: str) -> str:
    """Return `1 job`, `2 jobs`, `1,000 jobs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_wait(since: float, now: float) -> str:
    """Return `, for 3 h 20 min`, or an empty string for a wait of less than a minute."""
    return f", for {format_duration(now - since)}" if since and now - since >= _MINUTE_S else ""


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
        "" if fraction is None else format_percent(fraction),
        f"{format_duration(remaining_s)} left" if remaining_s else "",
    ]
    return " · ".join(part for part in parts if part)


def format_final_metrics(values: Mapping[str, Any]) -> str:
    """Return `accuracy 46.2% · loss 1.586 · epoch 2/2`: the results, most important first."""
    order = sorted(values, key=lambda key: ("accuracy" not in key, "loss" not in key))
    results = {key: values[key] for key in order if key == "epoch" or "accuracy" in key or "loss" in key}
    return " · ".join(_format_metric(key, value, values) for key, value in results.items()) or format_metrics(values)


def replace_control_chars(text: str, keep: str = "") -> str:
    """Write control characters in untrusted text as escapes such as \\x1b, except those in `keep`."""
    return text if text.isprintable() else CONTROL_CHARS.sub(lambda match: _escape_char(match[0], keep), text)


def _escape_char(char: str, keep: str) -> str:
    return char if char in keep else f"\\x{ord(char):02x}" if char < "\u0100" else f"\\u{ord(char):04x}"


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


def _join_units(count: int, ratio: int, large: str, small: str) -> str:
    n_large, n_small = divmod(count, ratio)
    return " ".join(f"{n:,} {unit}" for n, unit in ((n_large, large), (n_small, small)) if n)


def _round(value: float) -> str:
    """Round to one decimal, or to none if it is zero or the value is large."""
    return f"{value:,.0f}" if value >= 99.5 else f"{round(value, 1):g}"
