"""Converts the values of accounting fields: times, durations, sizes and lists of resources (TRES)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime

_UNSET = frozenset({"", "none", "unknown", "n/a", "invalid", "none assigned", "(null)", "unlimited", "partition_limit"})
_MIN_TIME, _MAX_TIME = 6.3e8, 4.1e9  # 1990 to 2099
MAX_AMOUNT = 1e18  # sums of these stay finite
_DURATION = re.compile(r"(?:(?:(\d{1,9})-)?(\d{1,9}):)?(\d{1,9}):(\d{1,9}(?:\.\d{1,9})?)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMGTPE]?)B?([nc]?)")
_UNITS = {unit: 1024**power for power, unit in enumerate(("", "K", "M", "G", "T", "P", "E"))}


def is_unset(text: str) -> bool:
    """Return whether Slurm prints this text for a value that does not exist."""
    return text.strip().lower() in _UNSET


def parse_time(text: str) -> float | None:
    """Return a Unix time; None if it is unset. A time without a zone is local. Raises ValueError."""
    if is_unset(text) or text == "0":
        return None
    try:
        time = float(text) if text.isascii() and text.isdigit() else datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        time = math.nan
    if not _MIN_TIME <= time <= _MAX_TIME:
        raise ValueError(f"{text!r} is not a time")
    return time


def parse_duration_s(text: str) -> float | None:
    """Return `[[D-]HH:]MM:SS[.mmm]` or a number of seconds as seconds; None if it is unset. Raises ValueError."""
    if is_unset(text):
        return None
    if text.isascii() and text.isdigit():
        return parse_number(text)
    match = _DURATION.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is not a duration")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def parse_number(text: str) -> float | None:
    """Return a number >= 0; None if it is unset. Raises ValueError."""
    if is_unset(text):
        return None
    match = _SIZE.fullmatch(text)
    if not match or match[3]:
        raise ValueError(f"{text!r} is not a number")
    number = float(match[1]) * (1000 ** list(_UNITS).index(match[2]))  # counts: 1.5K is 1500
    return _check_amount(number, text)


def _check_amount(number: float, text: str) -> float:
    """Return the number, or raise ValueError if it is impossible."""
    if not 0 <= number <= MAX_AMOUNT:
        raise ValueError(f"{text!r} is too large")
    return number


def parse_memory_bytes(text: str, cpus: float = 1, nodes: float = 1, default_unit: str = "") -> float | None:
    """Return a size such as 70032K as bytes; None if it is unset. Raises ValueError.

    Versions before 21.08 print requested memory by node (4Gn) or by CPU (2Gc).
    """
    if is_unset(text):
        return None
    match = _SIZE.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is not a size")
    factor = {"n": nodes, "c": cpus}.get(match[3], 1.0)
    return _check_amount(float(match[1]) * _UNITS[match[2] or default_unit] * factor, text)


def parse_tres(text: str) -> dict[str, str]:
    """Return the resources of a list such as `cpu=4,gres/gpu:a100=2,mem=2000M`."""
    pairs = (part.partition("=") for part in text.split(",") if "=" in part)
    return {name: value for name, _, value in pairs}


def count_gpus(tres: Mapping[str, str]) -> float:
    """Return the number of GPUs: of all kinds, if Slurm counts them together, else the sum over the kinds."""
    if "gres/gpu" in tres:
        return parse_number(tres["gres/gpu"]) or 0.0
    return sum(parse_number(value) or 0.0 for name, value in tres.items() if name.startswith("gres/gpu:"))
