"""Parses the times of event logs to Unix time.

2026-11-16 02:13:28.125Z    fraction and zone are optional; without a zone it is local time
11/16 02:13:28              until HTCondor 8.8: without a year
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta

DAY_S = 86400.0
_MAX_CACHED = 10_000


class TimestampParser:
    """Parses times and caches them by the minute, because most events are in the same minute as the one before.

    Args:
        latest_at: No event is later than this Unix time, for example the modification time of the file. It gives the
            year of times without a year.
        valid_range: Times outside this range are rejected.
    """

    def __init__(self, latest_at: float, valid_range: tuple[float, float] = (-math.inf, math.inf)) -> None:
        self._latest_at, self._valid_range = latest_at, valid_range
        self._minute_cache: dict[str, float] = {}

    def parse_minute(self, text: str, zone: str) -> float:
        """Return the beginning of a minute, `YYYY-MM-DD HH:MM` or `MM/DD HH:MM`. Raises ValueError."""
        timestamp = self._minute_cache.get(text + zone)
        if timestamp is None:
            if len(self._minute_cache) > _MAX_CACHED:
                self._minute_cache.clear()
            timestamp = self._minute_cache[text + zone] = self._parse_checked(text, zone)
        return timestamp

    def _parse_checked(self, text: str, zone: str) -> float:
        timestamp, (first, last) = self._parse(text, zone), self._valid_range
        if not first <= timestamp <= last:
            raise ValueError(f"timestamp out of range: {text}")
        return timestamp

    def _parse(self, text: str, zone: str) -> float:
        if "/" in text:
            return self._parse_without_year(text, zone)
        return _to_unix_time(f"{text[:10]} {text[11:]}", zone)

    def _parse_without_year(self, text: str, zone: str) -> float:
        """Return the time in the newest year in which it is not in the future; February 29 may be years ago."""
        year = datetime.fromtimestamp(self._latest_at).year + 1
        for candidate in range(year, year - 9, -1):
            try:
                timestamp = _to_unix_time(f"{candidate:04}-{text[:2]}-{text[3:5]} {text[6:]}", zone)
            except ValueError:
                continue
            if timestamp <= self._latest_at + DAY_S:
                return timestamp
        raise ValueError(f"invalid date: {text}")


def _to_unix_time(text: str, zone: str) -> float:
    if not zone:
        return datetime.fromisoformat(text).timestamp()
    return datetime.fromisoformat(f"{text}+00:00").timestamp() - _utc_offset(zone).total_seconds()


def _utc_offset(zone: str) -> timedelta:
    """Return the UTC offset of `Z`, `+01:00` or `-0530`."""
    if zone == "Z":
        return timedelta(0)
    digits = zone[1:].replace(":", "")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return -offset if zone[0] == "-" else offset
