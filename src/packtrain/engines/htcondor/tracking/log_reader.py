"""Reads the event log of a run as it grows. Unreadable parts of the log are skipped."""

from __future__ import annotations

import time
from pathlib import Path

from packtrain.condor.eventlog.job_event import JobEvent
from packtrain.condor.eventlog.text_format import TextLogParser
from packtrain.condor.eventlog.timestamps import TimestampParser


class EventLogReader:
    """Returns each event of a log once. An event that is still being written is returned when it is complete."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._bytes_read = 0
        self._parser = TextLogParser(TimestampParser(time.time()))

    @property
    def has_grown(self) -> bool:
        """Whether the file is larger than the events that were read."""
        try:
            return self.path.stat().st_size > self._parser.offset
        except OSError:
            return False

    def read(self) -> list[JobEvent]:
        """Return the new events."""
        try:
            with open(self.path, "rb") as file:
                file.seek(self._bytes_read)
                data = file.read()
        except OSError:
            return []
        self._bytes_read += len(data)
        events = self._parser.feed(data)
        self._parser.unreadable.clear()
        return [JobEvent(*event) for event in events]
