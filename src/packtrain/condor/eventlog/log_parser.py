"""The base class of the parsers: splits a stream of bytes into parts at the end markers of events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import pairwise

from packtrain.condor.eventlog.job_event import EventTuple, UnreadableEvent
from packtrain.condor.eventlog.timestamps import TimestampParser

_MAX_PENDING_BYTES = 1 << 24  # no event is that large: the file is not a log


class EventLogParser(ABC):
    """Parses bytes in chunks of any size, and returns each event once.

    Offsets count `\\r\\n` as one byte.
    """

    END_MARKER: bytes  # the last line of an event, with the newlines before and after it

    def __init__(self, timestamps: TimestampParser, offset: int = 0) -> None:
        self._timestamps, self.offset = timestamps, offset  # offset of the pending bytes
        self._line_number = 1
        self._pending = b""
        self.unreadable: list[UnreadableEvent] = []

    @abstractmethod
    def _parse_events(self, data: bytes) -> list[EventTuple]:
        """Return the events of complete parts. `data` does not include the last end marker."""

    def feed(self, data: bytes) -> list[EventTuple]:
        """Parse a chunk, and return the events that it completes."""
        self._pending = self._pending + data if self._pending else data
        if b"\r" in self._pending:
            self._pending = self._pending.replace(b"\r\n", b"\n")
        end = self._pending.rfind(self.END_MARKER)
        if end < 0:
            self._discard_oversized()
            return []
        complete, self._pending = self._pending[:end], self._pending[end + len(self.END_MARKER) :]
        events = self._parse_events(complete)
        self.offset += len(complete) + len(self.END_MARKER)
        self._line_number += complete.count(b"\n") + 2
        return events

    def finish(self) -> list[EventTuple]:
        """Parse the end of the log. The last line may lack its newline."""
        events = self.feed(b"\n") if self._pending.rstrip(b"\r").endswith(self.END_MARKER[:-1]) else []
        text = self._pending.decode("utf-8", "replace")
        if not self._is_blank(text):
            self._add_unreadable(self._line_number, f"truncated event: {excerpt(text)}")
        self._pending = b""
        return events

    def _discard_oversized(self) -> None:
        if len(self._pending) > _MAX_PENDING_BYTES:
            self._add_unreadable(self._line_number, f"no event within {len(self._pending) >> 20} MB")
            split = len(self._pending) - len(self.END_MARKER)
            discarded, self._pending = self._pending[:split], self._pending[split:]
            self.offset += len(discarded)
            self._line_number += discarded.count(b"\n")

    def _skip_noise(self, part: bytes, starts: list[int], data: bytes, offset: int) -> None:
        """Record everything before the last start in a part as unreadable: noise, or events that were never completed.

        Args:
            part: The bytes between two end markers.
            starts: Positions in the part where an event may begin.
            data: All bytes of this call of `_parse_events`.
            offset: Offset of the part in the log.
        """
        boundaries = [0, *starts] if starts else [0, len(part)]
        for start, end in pairwise(boundaries):
            text = part[start:end].decode("utf-8", "replace")
            if not self._is_blank(text):
                self._add_unreadable(self._line_number_at(data, offset + start), f"incomplete event: {excerpt(text)}")

    @staticmethod
    def _is_blank(text: str) -> bool:
        return not text.strip()

    def _line_number_at(self, data: bytes, offset: int) -> int:
        return self._line_number + data.count(b"\n", 0, offset - self.offset)

    def _add_unreadable(self, line_number: int, text: str) -> None:
        self.unreadable.append(UnreadableEvent(line_number, text))


def excerpt(text: str) -> str:
    """Return the first non-empty line of a text, shortened to 60 characters."""
    line = next((line.strip() for line in text.split("\n") if line.strip()), "")
    return line if len(line) <= 60 else line[:59] + "…"
