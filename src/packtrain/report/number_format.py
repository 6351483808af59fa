"""Figures as a person reads them: 4 h 57 min, 761 h, 44%, 12 MB/s. Pure."""

from __future__ import annotations

_CONTROL_CHARS = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0)), "\ufffd")  # C0 and C1: terminals obey them
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0


def format_duration_coarse(seconds: float) -> str:
    """4 h 57 min, 37 min, 1 min 23 s, 42 s: as exact as a person wants it."""
    if seconds < 59.5:
        return f"{seconds:.0f} s" if seconds >= 9.5 or seconds == 0 else f"{seconds:.2g} s"
    if seconds < 9.5 * _MINUTE:
        whole, rest = divmod(round(seconds), 60)
        return f"{whole} min {rest} s" if rest else f"{whole} min"
    minutes = round(seconds / _MINUTE)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"
    return f"{seconds / _HOUR:,.0f} h" if seconds < 1000 * _HOUR else f"{seconds / _DAY:,.0f} d"


def format_hours(seconds: float) -> str:
    """Sums, which people compare: always in hours, unless there is less than a tenth of one."""
    hours = seconds / _HOUR
    if hours < 0.1:
        return format_duration_coarse(seconds)
    return f"{hours:,.0f} h" if hours >= 99.5 else f"{hours:.1f} h"


def format_percent(fraction: float) -> str:
    """44%, 1.2%, under 0.1%"""
    if 0 < fraction < 0.001:
        return "<0.1%"
    return f"{fraction:.1%}" if fraction < 0.0995 and f"{fraction:.1%}" != "0.0%" else f"{fraction:.0%}"


def format_rate(bytes_per_s: float) -> str:
    """12 MB/s"""
    for unit, size in (("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)):
        if bytes_per_s >= size:
            return f"{bytes_per_s / size:.3g} {unit}"
    return f"{bytes_per_s:.0f} B/s"


def replace_control_chars(text: str) -> str:
    """Words of others, such that no terminal takes a part of them for an order."""
    return text if text.isprintable() else text.translate(_CONTROL_CHARS)
