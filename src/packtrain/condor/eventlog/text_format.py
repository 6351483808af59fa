"""Parses event logs in the text format.

    001 (012.003.000) 2026-11-16 02:13:28 Job executing on host: <127.0.0.1:9618?…>
        SlotName: slot1_1@site2
        GLIDEIN_ResourceName = "PDX-Coeus-CE1"
    ...

An event ends with a line of three dots. Text between events is noise: it is recorded and skipped. A head inside an
event begins another event, because the process that wrote the first one died.
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
    """Parses logs in the text format.

    Parts of heads (types, job ids, times) repeat often. Each is parsed once with the pattern and then cached by its
    bytes, because a lookup is several times faster.
    """

    END_MARKER = b"\n...\n"

    def __init__(self, timestamps: TimestampParser, offset: int = 0) -> None:
        super().__init__(timestamps, offset)
        self._type_cache: dict[bytes, int] = {}
        self._job_id_cache: dict[bytes, JobId] = {}
        self._time_cache: dict[bytes, float] = {}

    def _parse_events(self, data: bytes) -> list[EventTuple]:
        # This is the hot loop: locals are faster than attributes.
        events: list[EventTuple] = []
        append, offset, marker_size = events.append, self.offset, len(self.END_MARKER)
        types, ids, times = self._type_cache, self._job_id_cache, self._time_cache
        parts = data.split(self.END_MARKER)
        is_clean = _has_no_inner_heads(data, len(parts))
        for part in parts:
            id_end = part.find(b")")
            head_end = id_end + 22
            if is_clean or b"\n0" not in part:
                try:
                    job_id, timestamp = ids[part[5:id_end]], times[part[id_end:head_end]]
                    append((offset, types[part[:5]], job_id, timestamp, part[head_end:], None))
                except KeyError:
                    events += self._parse_event(part, offset, data)
            else:
                events += self._parse_noisy(part, offset, data)
            offset += len(part) + marker_size
        return events

    def _parse_event(self, part: bytes, offset: int, data: bytes) -> list[EventTuple]:
        """Parse an event with the pattern."""
        head = _HEAD.match(part)
        event = self._event_from_head(part, head, offset) if head else None
        return [event] if event is not None else self._parse_noisy(part, offset, data)

    def _parse_noisy(self, part: bytes, offset: int, data: bytes) -> list[EventTuple]:
        """Parse the last event of a part that may contain noise or incomplete events."""
        starts = [match.start() for match in _LINE_HEAD.finditer(part) if _HEAD.match(part, match.start())]
        self._skip_noise(part, starts, data, offset)
        head = _HEAD.match(part, starts[-1]) if starts else None
        if head is None:
            return []
        event = self._event_from_head(part, head, offset + starts[-1])
        if event is None:
            text = part[starts[-1] :].decode("utf-8", "replace")
            line_number = self._line_number_at(data, offset + starts[-1])
            self._add_unreadable(line_number, f"invalid time or job id: {excerpt(text)}")
        return [event] if event is not None else []

    def _event_from_head(self, part: bytes, head: re.Match[bytes], offset: int) -> EventTuple | None:
        event_type, cluster, proc, minute, second, fraction, zone = head.groups()
        try:
            timestamp = self._timestamps.parse_minute(minute.decode(), (zone or b"").decode()) + int(second)
            job_id = (int(cluster), int(proc))
        except ValueError:  # also for numbers of thousands of digits
            return None
        if not zone and not fraction and len(minute) == 16 and head.end() < len(part):
            self._cache_head(part[head.start() : head.end()], int(event_type), job_id, timestamp)
        return (offset, int(event_type), job_id, timestamp + float(fraction or 0), part[head.end() :], None)

    def _cache_head(self, head: bytes, event_type: int, job_id: JobId, timestamp: float) -> None:
        id_end = head.find(b")")
        for cache in (self._job_id_cache, self._time_cache):
            if len(cache) > _MAX_CACHED:
                cache.clear()
        self._type_cache[head[:5]] = event_type
        self._job_id_cache[head[5:id_end]] = job_id
        self._time_cache[head[id_end:]] = timestamp

    @staticmethod
    def _is_blank(text: str) -> bool:
        return _BLANK.fullmatch(text) is not None


def _has_no_inner_heads(data: bytes, n_parts: int) -> bool:
    """Return whether only the first line of each part begins with a 0, as heads do.

    Two counts over all data are much faster than a search in each part.
    """
    return data.count(b"\n0") == data.count(TextLogParser.END_MARKER + b"0") == n_parts - 1
