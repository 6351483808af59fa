"""Numbers in the words of others: a log may hold anything in their place. Pure."""

from __future__ import annotations

import math

_MAX_AMOUNT = 1e18  # seconds, bytes, GPUs: nobody has more, and sums of them stay numbers


def parse_amount(value: object) -> float | None:
    """What can be counted with; None of anything else (text, true, NaN, less than nothing)."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _MAX_AMOUNT:
        return None
    return float(value)


def parse_count(value: object) -> int | None:
    found = parse_amount(value)
    return None if found is None else math.floor(found)
