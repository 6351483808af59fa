"""One event of an HTCondor event log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

JobId = tuple[int, int]
"""Cluster and proc; a proc of -1 means the whole cluster."""

EventTuple = tuple[int, int, JobId, float, bytes, "Mapping[str, Any] | None"]
"""The fields of a JobEvent, in its order.

A log may have millions of events, and most readers need only their times. A plain tuple is created four times as fast.
"""


class JobEvent(NamedTuple):
    """One event. Its offset and the name of its log identify it."""

    offset: int  # where it begins in the log, in bytes
    event_type: int  # see event_types
    job_id: JobId
    timestamp: float  # Unix time
    raw_body: bytes  # the text after the time; b"" in the JSON and XML formats
    ad: Mapping[str, Any] | None = None  # all attributes, in the JSON and XML formats

    @property
    def cluster(self) -> int:
        return self.job_id[0]

    @property
    def proc(self) -> int:
        return self.job_id[1]

    @property
    def body(self) -> str:
        """The text after the time."""
        return self.raw_body.decode("utf-8", "replace")

    @property
    def first_line(self) -> str:
        """The first line of the body."""
        return self.raw_body.partition(b"\n")[0].decode("utf-8", "replace")

    @property
    def detail_lines(self) -> tuple[str, ...]:
        """The other lines of the body, without surrounding whitespace."""
        return tuple(line.strip() for line in self.body.split("\n")[1:])

    @property
    def first_detail_line(self) -> str:
        """The first of these lines that is not empty, or ""."""
        return next((line for line in self.detail_lines if line), "")

    def attribute(self, name: str) -> str:
        """Return the value of a line `Name = "value"` or `Name: value`, or "" if there is none."""
        for line in self.detail_lines:
            key, separator, value = line.partition("=") if "=" in line else line.partition(":")
            if separator and key.strip() == name:
                return value.strip().strip('"')
        return ""


class UnreadableEvent(NamedTuple):
    """A part of a log that could not be parsed."""

    line: int  # line number, from 1
    text: str  # a message with an excerpt
