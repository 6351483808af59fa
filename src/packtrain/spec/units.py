"""Parse durations and sizes such as `20h`, `1h30m` and `50GB`. Plain numbers are seconds and bytes."""

from __future__ import annotations

import re

_SECONDS_PER_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_SIZE_PREFIXES = "kmgtp"
_BINARY_UNITS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
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


def to_workflow_size(n_bytes: int) -> str | int:
    """Return a size as workflow files have it, without rounding: `4GiB`, or a number if no unit divides it."""
    return next((f"{n_bytes // unit}{name}" for unit, name in _BINARY_UNITS if n_bytes % unit == 0), n_bytes)
