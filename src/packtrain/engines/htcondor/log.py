"""The user log of a run, read as it grows. Pure and tolerant: what is not understood is skipped, not fatal.

001 (012.003.000) 2026-11-16 02:13:28 Job executing on host: <127.0.0.1:9618?…>
    SlotName: slot1_1@site2
    GLIDEIN_ResourceName = "PDX-Coeus-CE1"
...
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

SUBMIT, EXECUTE, EVICTED, TERMINATED, SHADOW_EXCEPTION, GENERIC, ABORTED = 0, 1, 4, 5, 7, 8, 9
HELD, RELEASED, REMOTE_ERROR, DISCONNECTED, RECONNECTED, RECONNECT_FAILED = 12, 13, 21, 22, 23, 24
CLUSTER_SUBMIT, CLUSTER_REMOVE = 35, 36

_END = b"\n...\n"
_HEAD = re.compile(
    r"(?P<code>\d{3}) \((?P<cluster>\d+)\.(?P<proc>-?\d+)\.-?\d+\) "
    r"(?P<when>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d|\d\d/\d\d \d\d:\d\d:\d\d)\S* ?(?P<text>.*)"
)


@dataclass(frozen=True)
class Record:
    """One event of the log. `offset` is where it begins: with the log's name, its identity."""

    offset: int
    code: int
    cluster: int
    proc: int  # -1: the whole cluster
    when: float
    text: str  # what stands behind the time
    lines: tuple[str, ...] = ()

    def attribute(self, name: str) -> str:
        """The value of a line `Name = "value"` or `Name: value`; "" if there is none."""
        for line in self.lines:
            key, mark, value = line.partition("=") if "=" in line else line.partition(":")
            if mark and key.strip() == name:
                return value.strip().strip('"')
        return ""


class LogReader:
    """Gives each record once; an unfinished one waits for its end."""

    def __init__(self, path: Path) -> None:
        self.path, self.offset = path, 0

    @property
    def grown(self) -> bool:
        try:
            return self.path.stat().st_size > self.offset
        except OSError:
            return False

    def read(self) -> list[Record]:
        try:
            with open(self.path, "rb") as file:
                file.seek(self.offset)
                data = file.read()
        except OSError:
            return []
        complete = data[: data.rfind(_END) + len(_END)] if _END in data else b""
        found = list(records(complete, self.offset))
        self.offset += len(complete)
        return found


def records(data: bytes, offset: int = 0) -> Iterator[Record]:
    """The records of whole log text that begins at `offset`."""
    for part in data.split(_END):
        record = _record(part, offset)
        if record is not None:
            yield record
        offset += len(part) + len(_END)


def _record(data: bytes, offset: int) -> Record | None:
    first, *rest = data.decode("utf-8", "replace").split("\n")
    head = _HEAD.fullmatch(first)
    if head is None:
        return None
    return Record(
        offset,
        int(head["code"]),
        int(head["cluster"]),
        int(head["proc"]),
        _time(head["when"]),
        head["text"],
        tuple(line.strip() for line in rest),
    )


def _time(text: str) -> float:
    """The access point's own clock, local time; an old format without a year, or nonsense, is no time."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0
