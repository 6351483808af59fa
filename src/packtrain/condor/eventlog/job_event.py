"""One event of a user log, and the numbers of events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

SUBMIT, EXECUTE, EXECUTABLE_ERROR, CHECKPOINTED, EVICTED, TERMINATED, IMAGE_SIZE = 0, 1, 2, 3, 4, 5, 6
SHADOW_EXCEPTION, GENERIC, ABORTED, SUSPENDED, UNSUSPENDED, HELD, RELEASED = 7, 8, 9, 10, 11, 12, 13
REMOTE_ERROR, DISCONNECTED, RECONNECTED, RECONNECT_FAILED, JOB_AD = 21, 22, 23, 24, 28
CLUSTER_SUBMIT, CLUSTER_REMOVE, FACTORY_PAUSED, FACTORY_RESUMED = 35, 36, 37, 38
FILE_TRANSFER, DATAFLOW_SKIPPED = 40, 46

JobId = tuple[int, int]


EventTuple = tuple[int, int, JobId, float, bytes, "Mapping[str, Any] | None"]
"""The fields of a Record, in its order. There are millions, and of most nobody asks for more than when they were: a
plain tuple is made four times as fast."""


class JobEvent(NamedTuple):
    """`offset` is where it begins: with the log's name, its identity."""

    offset: int
    event_type: int
    job_id: JobId  # cluster and proc; -1: the whole cluster
    timestamp: float
    raw_body: bytes  # what stands behind the time; b"" in the forms of ads
    ad: Mapping[str, Any] | None = None  # in the forms of ads

    @property
    def cluster(self) -> int:
        return self.job_id[0]

    @property
    def proc(self) -> int:
        return self.job_id[1]

    @property
    def body(self) -> str:
        return self.raw_body.decode("utf-8", "replace")

    @property
    def first_line(self) -> str:
        """The first line."""
        return self.raw_body.partition(b"\n")[0].decode("utf-8", "replace")

    @property
    def detail_lines(self) -> tuple[str, ...]:
        """The others."""
        return tuple(line.strip() for line in self.body.split("\n")[1:])

    def attribute(self, name: str) -> str:
        """The value of a line `Name = "value"` or `Name: value`; "" if there is none."""
        for line in self.detail_lines:
            key, mark, value = line.partition("=") if "=" in line else line.partition(":")
            if mark and key.strip() == name:
                return value.strip().strip('"')
        return ""


class UnreadableEvent(NamedTuple):
    """A place of a log that cannot be read."""

    line: int
    text: str
