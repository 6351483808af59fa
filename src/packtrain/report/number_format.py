"""Formats numbers for people: 4 h 57 min, 761 h, 44%, 12 MB/s."""

from __future__ import annotations

_CONTROL_CHARS = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0)), "\ufffd")  # C0 and C1: terminals interpret them
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0


def format_duration_coarse(seconds: float) -> str:
    """Format a duration with two units at most: 4 h 57 min, 37 min, 1 min 23 s, 42 s."""
    if seconds < 59.5:
        return f"{seconds:.0f} s" if seconds >= 9.5 or seconds == 0 else f"{seconds:.2g} s"
    if seconds < 9.5 * _MINUTE:
        minutes, remaining_s = divmod(round(seconds), 60)
        return f"{minutes} min {remaining_s} s" if remaining_s else f"{minutes} min"
    minutes = round(seconds / _MINUTE)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"
    return f"{seconds / _HOUR:,.0f} h" if seconds < 1000 * _HOUR else f"{seconds / _DAY:,.0f} d"


def format_hours(seconds: float) -> str:
    """Format a sum in hours, so that sums can be compared. Sums below 0.1 h are formatted as durations."""
    hours = seconds / _HOUR
    if hours < 0.1:
        return format_duration_coarse(seconds)
    return f"{hours:,.0f} h" if hours >= 99.5 else f"{hours:.1f} h"


def format_percent(fraction: float) -> str:
    """Format a fraction: 44%, 1.2%, <0.1%."""
    if 0 < fraction < 0.001:
        return "<0.1%"
    return f"{fraction:.1%}" if fraction < 0.0995 and f"{fraction:.1%}" != "0.0%" else f"{fraction:.0%}"


def format_rate(bytes_per_s: float) -> str:
    """Format a transfer rate: 12 MB/s."""
    for unit, size in (("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)):
        if bytes_per_s >= size:
            return f"{bytes_per_s / size:.3g} {unit}"
    return f"{bytes_per_s:.0f} B/s"


def replace_control_chars(text: str) -> str:
    """Replace control characters in untrusted text, so that a terminal does not interpret them."""
    return text if text.isprintable() else text.translate(_CONTROL_CHARS)
