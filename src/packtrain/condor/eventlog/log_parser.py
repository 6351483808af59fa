"""Bytes as they come, cut into parts by what ends an event. What a part is, its form knows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import pairwise

from packtrain.condor.eventlog.job_event import Broken, Raw
from packtrain.condor.eventlog.timestamps import Clock

_MOST_PENDING = 1 << 24  # no event is that large: this is no log


class PartReader(ABC):
    """Feed it bytes in pieces of any size; it gives each event once, as the fields of a Record. Offsets count the end
    of a line as one byte."""

    END: bytes  # of an event: a line, with the ends of the line before it and of its own

    def __init__(self, clock: Clock, offset: int = 0) -> None:
        self._clock, self.offset = clock, offset  # of what is pending
        self._line = 1
        self._pending = b""
        self.broken: list[Broken] = []

    @abstractmethod
    def _raws(self, whole: bytes) -> list[Raw]:
        """Of parts that are complete, without the end of the last."""

    def feed(self, data: bytes) -> list[Raw]:
        self._pending = self._pending + data if self._pending else data
        if b"\r" in self._pending:
            self._pending = self._pending.replace(b"\r\n", b"\n")
        end = self._pending.rfind(self.END)
        if end < 0:
            self._forget_what_is_no_log()
            return []
        whole, self._pending = self._pending[:end], self._pending[end + len(self.END) :]
        found = self._raws(whole)
        self.offset += len(whole) + len(self.END)
        self._line += whole.count(b"\n") + 2
        return found

    def end(self) -> list[Raw]:
        """Nothing will follow: a last line needs no end."""
        found = self.feed(b"\n") if self._pending.rstrip(b"\r").endswith(self.END[:-1]) else []
        text = self._pending.decode("utf-8", "replace")
        if not self._is_nothing(text):
            self._skip(self._line, f"unfinished, still being written or cut off: {start_of(text)}")
        self._pending = b""
        return found

    def _forget_what_is_no_log(self) -> None:
        if len(self._pending) > _MOST_PENDING:
            self._skip(self._line, f"no event within {len(self._pending) >> 20} MB")
            gone, self._pending = self._pending[: -len(self.END)], self._pending[-len(self.END) :]
            self.offset += len(gone)
            self._line += gone.count(b"\n")

    def _skip_before(self, part: bytes, starts: list[int], whole: bytes, offset: int) -> None:
        """The last start begins the event of a part; what is before it is noise, or was never finished."""
        edges = [0, *starts] if starts else [0, len(part)]
        for start, end in pairwise(edges):
            text = part[start:end].decode("utf-8", "replace")
            if not self._is_nothing(text):
                self._skip(self._line_of(whole, offset + start), f"not a whole event: {start_of(text)}")

    @staticmethod
    def _is_nothing(text: str) -> bool:
        return not text.strip()

    def _line_of(self, whole: bytes, offset: int) -> int:
        return self._line + whole.count(b"\n", 0, offset - self.offset)

    def _skip(self, line: int, text: str) -> None:
        self.broken.append(Broken(line, text))


def start_of(text: str) -> str:
    """For a person to recognize it by."""
    line = next((line.strip() for line in text.split("\n") if line.strip()), "")
    return line if len(line) <= 60 else line[:59] + "…"
