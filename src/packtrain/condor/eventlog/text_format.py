"""The text form, from bytes as they come.

    001 (012.003.000) 2026-11-16 02:13:28 Job executing on host: <127.0.0.1:9618?…>
        SlotName: slot1_1@site2
        GLIDEIN_ResourceName = "PDX-Coeus-CE1"
    ...

An event ends with a line of three dots. What stands between the events is noise: it is counted and skipped. A head
inside of an event begins another one, since the first was never finished (its writer died).
"""

from __future__ import annotations

import re

from packtrain.condor.eventlog.job_event import EventTuple, JobId
from packtrain.condor.eventlog.log_parser import EventLogParser, excerpt
from packtrain.condor.eventlog.timestamps import TimestampParser

_HEAD = re.compile(
    rb"(\d{3}) \((\d+)\.(-?\d+)\.-?\d+\) (\d{4}-\d\d-\d\d[ T]\d\d:\d\d|\d\d/\d\d \d\d:\d\d):(\d\d)"
    rb"(\.\d+)?(Z|[+-]\d\d:?\d\d)?(?: |$)",
    re.MULTILINE,
)
_LINE_HEAD = re.compile(rb"^\d{3} \(", re.MULTILINE)
_BLANK = re.compile(r"[\s.]*")
_MAX_CACHED = 50_000


class TextLogParser(EventLogParser):
    """Heads are much alike. What was once read by the pattern (a code, a job's number, a time) is known by its bytes
    from then on, and looking it up is several times faster than the pattern is."""

    END_MARKER = b"\n...\n"

    def __init__(self, timestamps: TimestampParser, offset: int = 0) -> None:
        super().__init__(timestamps, offset)
        self._type_cache: dict[bytes, int] = {}
        self._job_id_cache: dict[bytes, JobId] = {}
        self._time_cache: dict[bytes, float] = {}

    def _parse_events(self, data: bytes) -> list[EventTuple]:
        """The hot loop."""
        found: list[EventTuple] = []
        add, offset, size = found.append, self.offset, len(self.END_MARKER)
        codes, keys, times = self._type_cache, self._job_id_cache, self._time_cache
        parts = data.split(self.END_MARKER)
        clean = _has_no_inner_heads(data, len(parts))
        for part in parts:
            named = part.find(b")")
            told = named + 22
            if clean or b"\n0" not in part:
                try:
                    add((offset, codes[part[:5]], keys[part[5:named]], times[part[named:told]], part[told:], None))
                except KeyError:
                    found += self._parse_event(part, offset, data)
            else:
                found += self._parse_noisy(part, offset, data)
            offset += len(part) + size
        return found

    def _parse_event(self, part: bytes, offset: int, data: bytes) -> list[EventTuple]:
        """By the pattern."""
        head = _HEAD.match(part)
        raw = self._event_from_head(part, head, offset) if head else None
        return [raw] if raw is not None else self._parse_noisy(part, offset, data)

    def _parse_noisy(self, part: bytes, offset: int, data: bytes) -> list[EventTuple]:
        starts = [found.start() for found in _LINE_HEAD.finditer(part) if _HEAD.match(part, found.start())]
        self._skip_noise(part, starts, data, offset)
        head = _HEAD.match(part, starts[-1]) if starts else None
        if head is None:
            return []
        raw = self._event_from_head(part, head, offset + starts[-1])
        if raw is None:
            text = part[starts[-1] :].decode("utf-8", "replace")
            self._add_unreadable(
                self._line_number_at(data, offset + starts[-1]), f"no such time or job: {excerpt(text)}"
            )
        return [raw] if raw is not None else []

    def _event_from_head(self, part: bytes, head: re.Match[bytes], offset: int) -> EventTuple | None:
        code, cluster, proc, minute, second, fraction, zone = head.groups()
        try:
            when = self._timestamps.parse_minute(minute.decode(), (zone or b"").decode()) + int(second)
            key = (int(cluster), int(proc))
        except ValueError:  # Python refuses numbers of thousands of digits, too
            return None
        if not zone and not fraction and len(minute) == 16 and head.end() < len(part):
            self._cache_head(part[head.start() : head.end()], int(code), key, when)
        return (offset, int(code), key, when + float(fraction or 0), part[head.end() :], None)

    def _cache_head(self, head: bytes, event_type: int, job_id: JobId, timestamp: float) -> None:
        named = head.find(b")")
        for known in (self._job_id_cache, self._time_cache):
            if len(known) > _MAX_CACHED:
                known.clear()
        self._type_cache[head[:5]] = event_type
        self._job_id_cache[head[5:named]] = job_id
        self._time_cache[head[named:]] = timestamp

    @staticmethod
    def _is_blank(text: str) -> bool:
        return _BLANK.fullmatch(text) is not None


def _has_no_inner_heads(data: bytes, n_parts: int) -> bool:
    """Whether no line begins with a 0, as heads do, but the first of each part. Two counts are much faster than a look
    into each part."""
    return data.count(b"\n0") == data.count(TextLogParser.END_MARKER + b"0") == n_parts - 1
