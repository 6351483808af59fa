"""Numbers in the words of others: a log may hold anything in their place. Pure."""

from __future__ import annotations

import math

_MOST = 1e18  # seconds, bytes, GPUs: nobody has more, and sums of them stay numbers


def amount_of(value: object) -> float | None:
    """What can be counted with; None of anything else (text, true, NaN, less than nothing)."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _MOST:
        return None
    return float(value)


def whole_of(value: object) -> int | None:
    found = amount_of(value)
    return None if found is None else math.floor(found)
