"""The user log of a run, read as it grows. Tolerant: what is not understood is skipped, not fatal."""

from __future__ import annotations

import time
from pathlib import Path

from packtrain.condor.eventlog.job_event import Raw, Record
from packtrain.condor.eventlog.text_format import TextReader
from packtrain.condor.eventlog.timestamps import Clock


class LogReader:
    """Gives each record once; an unfinished one waits for its end."""

    def __init__(self, path: Path) -> None:
        self.path, self._taken = path, 0  # how many bytes of it
        self._reader = TextReader(Clock(time.time()))

    @property
    def grown(self) -> bool:
        try:
            return self.path.stat().st_size > self._reader.offset
        except OSError:
            return False

    def read(self) -> list[Record]:
        try:
            with open(self.path, "rb") as file:
                file.seek(self._taken)
                data = file.read()
        except OSError:
            return []
        self._taken += len(data)
        found = self._reader.feed(data)
        self._reader.broken.clear()
        return _made(found)


def records(data: bytes, offset: int = 0) -> list[Record]:
    """The records of whole log text that begins at `offset`."""
    reader = TextReader(Clock(time.time()), offset)
    return _made(reader.feed(data) + reader.end())


def _made(raws: list[Raw]) -> list[Record]:
    return [Record(*raw) for raw in raws]
