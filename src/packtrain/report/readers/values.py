"""Parses numbers from untrusted logs and journals. The HTCondor reader and the agent timelines share it."""

from __future__ import annotations

import math

_MAX_AMOUNT = 1e18  # seconds, bytes or GPUs; larger values are invalid, and sums of these stay finite


def parse_amount(value: object) -> float | None:
    """Return a finite number >= 0, or None for anything else (text, booleans, NaN, negative numbers)."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _MAX_AMOUNT:
        return None
    return float(value)


def parse_count(value: object) -> int | None:
    """Return a number >= 0 rounded down to an integer, or None for anything else."""
    amount = parse_amount(value)
    return None if amount is None else math.floor(amount)
