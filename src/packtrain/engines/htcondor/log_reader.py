"""The user log of a run, read as it grows. Tolerant: what is not understood is skipped, not fatal."""

from __future__ import annotations

import time
from pathlib import Path

from packtrain.condor.eventlog.job_event import EventTuple, JobEvent
from packtrain.condor.eventlog.text_format import TextLogParser
from packtrain.condor.eventlog.timestamps import TimestampParser


class EventLogReader:
    """Gives each record once; an unfinished one waits for its end."""

    def __init__(self, path: Path) -> None:
        self.path, self._bytes_read = path, 0  # how many bytes of it
        self._parser = TextLogParser(TimestampParser(time.time()))

    @property
    def has_grown(self) -> bool:
        try:
            return self.path.stat().st_size > self._parser.offset
        except OSError:
            return False

    def read(self) -> list[JobEvent]:
        try:
            with open(self.path, "rb") as file:
                file.seek(self._bytes_read)
                data = file.read()
        except OSError:
            return []
        self._bytes_read += len(data)
        found = self._parser.feed(data)
        self._parser.unreadable.clear()
        return _to_job_events(found)


def parse_events(data: bytes, offset: int = 0) -> list[JobEvent]:
    """The records of whole log text that begins at `offset`."""
    reader = TextLogParser(TimestampParser(time.time()), offset)
    return _to_job_events(reader.feed(data) + reader.finish())


def _to_job_events(event_tuples: list[EventTuple]) -> list[JobEvent]:
    return [JobEvent(*raw) for raw in event_tuples]
