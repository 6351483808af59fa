"""Parse and format durations and sizes such as `20h`, `1h30m` and `50GB`. Plain numbers are seconds and bytes."""

from __future__ import annotations

import re

_SECONDS_PER_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_SIZE_PREFIXES = "kmgtp"
_DURATION_PATTERN = re.compile(r"(?:\d{1,9}(?:\.\d{1,6})?\s*[smhdw]\s*)+", re.ASCII)
_DURATION_PART_PATTERN = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])", re.ASCII)
_NUMBER_PATTERN = re.compile(r"\d{1,18}(?:\.\d{1,6})?", re.ASCII)
_SIZE_PATTERN = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*([kmgtp]?)(i?)b?", re.ASCII | re.IGNORECASE)


def parse_duration(text: str) -> float:
    """Return a duration in seconds. Raises ValueError."""
    text = text.strip().lower()
    if _NUMBER_PATTERN.fullmatch(text):
        return float(text)
    if not _DURATION_PATTERN.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration; write for example 90s, 20m, 1h30m or 2d")
    return float(sum(float(number) * _SECONDS_PER_UNIT[unit] for number, unit in _DURATION_PART_PATTERN.findall(text)))


def parse_size(text: str) -> int:
    """Return a size in bytes (1 kB = 1000, 1 KiB = 1024). Raises ValueError."""
    match = _SIZE_PATTERN.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{text.strip()!r} is not a size; write for example 500MB, 50GB or 2TiB")
    number, prefix, binary = match.groups()
    power = _SIZE_PREFIXES.index(prefix.lower()) + 1 if prefix else 0
    return int(float(number) * (1024 if binary else 1000) ** power)


def parse_megabytes(text: str) -> int:
    """Return a size in megabytes; a plain number is megabytes. Raises ValueError."""
    return int(text) if re.fullmatch(r"\d{1,15}", text.strip(), re.ASCII) else parse_size(text) // 1_000_000


def format_size(n_bytes: float) -> str:
    """Format a size: `1.4 GB`."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if n_bytes < 1000:
            return f"{n_bytes:.0f} {unit}" if unit == "B" or n_bytes >= 100 else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.1f} PB"


def format_duration(duration_s: float) -> str:
    """Format a duration with its two largest units: `1h30m`."""
    if duration_s < 60:
        return f"{duration_s:g}s"
    parts = []
    remaining_s = round(duration_s)
    for unit in ("d", "h", "m", "s"):
        count, remaining_s = divmod(remaining_s, _SECONDS_PER_UNIT[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2])
