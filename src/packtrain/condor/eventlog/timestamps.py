"""The times of user logs as seconds since 1970.

2026-11-16 02:13:28.125Z    with or without fractions and zone; without a zone it is local time
11/16 02:13:28              until HTCondor 8.8: without a year
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta

DAY_S = 86400.0


class TimestampParser:
    """`newest` is a time that no event is later than, such as when the file was last written: it tells the year where
    the log does not. Events come in order, so the minute before is mostly the minute now. `between`: no event was
    before or after these."""

    def __init__(self, latest_at: float, valid_range: tuple[float, float] = (-math.inf, math.inf)) -> None:
        self._latest_at, self._valid_range = latest_at, valid_range
        self._minute_cache: dict[str, float] = {}

    def parse_minute(self, text: str, zone: str) -> float:
        """The beginning of a minute, `YYYY-MM-DD HH:MM` or `MM/DD HH:MM`. Raises ValueError."""
        known = self._minute_cache.get(text + zone)
        if known is None:
            if len(self._minute_cache) > 10_000:
                self._minute_cache.clear()
            known = self._minute_cache[text + zone] = self._parse_checked(text, zone)
        return known

    def _parse_checked(self, text: str, zone: str) -> float:
        found, (first, last) = self._parse(text, zone), self._valid_range
        if not first <= found <= last:
            raise ValueError(f"not then: {text}")
        return found

    def _parse(self, text: str, zone: str) -> float:
        if "/" in text:
            return self._parse_without_year(text, zone)
        return _to_unix_time(f"{text[:10]} {text[11:]}", zone)

    def _parse_without_year(self, text: str, zone: str) -> float:
        """In the last year before `newest` in which it is not later; the 29th of February may be years ago."""
        year = datetime.fromtimestamp(self._latest_at).year + 1
        for candidate in range(year, year - 9, -1):
            try:
                found = _to_unix_time(f"{candidate:04}-{text[:2]}-{text[3:5]} {text[6:]}", zone)
            except ValueError:
                continue
            if found <= self._latest_at + DAY_S:
                return found
        raise ValueError(f"no date: {text}")


def _to_unix_time(text: str, zone: str) -> float:
    if not zone:
        return datetime.fromisoformat(text).timestamp()
    return datetime.fromisoformat(f"{text}+00:00").timestamp() - _utc_offset(zone).total_seconds()


def _utc_offset(zone: str) -> timedelta:
    """Of `Z`, `+01:00`, `-0530`."""
    if zone == "Z":
        return timedelta(0)
    digits = zone[1:].replace(":", "")
    size = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return -size if zone[0] == "-" else size
