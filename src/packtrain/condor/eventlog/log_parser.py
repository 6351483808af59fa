"""Bytes as they come, cut into parts by what ends an event. What a part is, its form knows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import pairwise

from packtrain.condor.eventlog.job_event import EventTuple, UnreadableEvent
from packtrain.condor.eventlog.timestamps import TimestampParser

_MAX_PENDING_BYTES = 1 << 24  # no event is that large: this is no log


class EventLogParser(ABC):
    """Feed it bytes in pieces of any size; it gives each event once, as the fields of a Record. Offsets count the end
    of a line as one byte."""

    END_MARKER: bytes  # of an event: a line, with the ends of the line before it and of its own

    def __init__(self, timestamps: TimestampParser, offset: int = 0) -> None:
        self._timestamps, self.offset = timestamps, offset  # of what is pending
        self._line_number = 1
        self._pending = b""
        self.unreadable: list[UnreadableEvent] = []

    @abstractmethod
    def _parse_events(self, data: bytes) -> list[EventTuple]:
        """Of parts that are complete, without the end of the last."""

    def feed(self, data: bytes) -> list[EventTuple]:
        self._pending = self._pending + data if self._pending else data
        if b"\r" in self._pending:
            self._pending = self._pending.replace(b"\r\n", b"\n")
        end = self._pending.rfind(self.END_MARKER)
        if end < 0:
            self._discard_oversized()
            return []
        whole, self._pending = self._pending[:end], self._pending[end + len(self.END_MARKER) :]
        found = self._parse_events(whole)
        self.offset += len(whole) + len(self.END_MARKER)
        self._line_number += whole.count(b"\n") + 2
        return found

    def finish(self) -> list[EventTuple]:
        """Nothing will follow: a last line needs no end."""
        found = self.feed(b"\n") if self._pending.rstrip(b"\r").endswith(self.END_MARKER[:-1]) else []
        text = self._pending.decode("utf-8", "replace")
        if not self._is_blank(text):
            self._add_unreadable(self._line_number, f"unfinished, still being written or cut off: {excerpt(text)}")
        self._pending = b""
        return found

    def _discard_oversized(self) -> None:
        if len(self._pending) > _MAX_PENDING_BYTES:
            self._add_unreadable(self._line_number, f"no event within {len(self._pending) >> 20} MB")
            gone, self._pending = self._pending[: -len(self.END_MARKER)], self._pending[-len(self.END_MARKER) :]
            self.offset += len(gone)
            self._line_number += gone.count(b"\n")

    def _skip_noise(self, part: bytes, starts: list[int], data: bytes, offset: int) -> None:
        """The last start begins the event of a part; what is before it is noise, or was never finished."""
        edges = [0, *starts] if starts else [0, len(part)]
        for start, end in pairwise(edges):
            text = part[start:end].decode("utf-8", "replace")
            if not self._is_blank(text):
                self._add_unreadable(self._line_number_at(data, offset + start), f"not a whole event: {excerpt(text)}")

    @staticmethod
    def _is_blank(text: str) -> bool:
        return not text.strip()

    def _line_number_at(self, data: bytes, offset: int) -> int:
        return self._line_number + data.count(b"\n", 0, offset - self.offset)

    def _add_unreadable(self, line_number: int, text: str) -> None:
        self.unreadable.append(UnreadableEvent(line_number, text))


def excerpt(text: str) -> str:
    """For a person to recognize it by."""
    line = next((line.strip() for line in text.split("\n") if line.strip()), "")
    return line if len(line) <= 60 else line[:59] + "…"
