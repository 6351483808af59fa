"""The journal: an emitter's events as JSON lines in a file of its own, appended, never rewritten."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from packtrain.errors import FormatError
from packtrain.events import kinds
from packtrain.events.event import Event
from packtrain.events.redact import Redactor

_UNSYNCED_KINDS = frozenset({kinds.PROGRESS, kinds.METRIC, kinds.STEP_STARTED})


class Journal:
    """Writes one emitter's events; safe for threads. What matters is on the disk when `emit` returns."""

    def __init__(self, path: Path, run: str, job: str, emitter: str, redactor: Redactor) -> None:
        self.path, self.run, self.job, self.emitter = path, run, job, emitter
        self._redactor = redactor
        self._lock = threading.Lock()
        self._seq = 0
        self._listener: Callable[[Event], None] | None = None
        path.parent.mkdir(parents=True, exist_ok=True)
        self._has_partial_line = _ends_mid_line(path)  # by an emitter before, that was killed
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115

    def set_listener(self, listener: Callable[[Event], None]) -> None:
        """It hears every event from now on, in their order, from any thread; it must not wait."""
        self._listener = listener

    def emit(self, kind: str, /, **data: Any) -> Event:
        with self._lock:
            self._seq += 1
            clean = self._redactor.redact_value(data)
            event = Event(self.run, self.job, self.emitter, self._seq, kind, time.time(), time.monotonic(), clean)
            if self._listener is not None:  # before the disk, which may be full
                self._listener(event)
            self._write((event.to_json() + "\n").encode("utf-8", "replace"))
            if kind not in _UNSYNCED_KINDS:
                os.fsync(self._file.fileno())
        return event

    def close(self) -> None:
        self._file.close()

    def _write(self, line: bytes) -> None:
        """A full disk may take half a line; the next one then starts afresh, lest both be lost."""
        line = b"\n" + line if self._has_partial_line else line
        self._has_partial_line = (self._file.write(line) or 0) < len(line)
        if self._has_partial_line:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))


def _ends_mid_line(path: Path) -> bool:
    """Whether its last line has no end."""
    try:
        with open(path, "rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except OSError:  # it does not exist, or is empty
        return False


class JournalReader:
    """Reads a journal that may still grow; `offset` is where to go on, in this process or the next."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path, self.offset = path, offset
        self.n_invalid_lines = 0  # lines that are no events: counted and skipped

    def read(self) -> list[Event]:
        """The new complete lines; an unfinished last line waits for its end."""
        try:
            with open(self.path, "rb") as file:
                file.seek(self.offset)
                data = file.read()
        except FileNotFoundError:
            return []
        complete = data[: data.rfind(b"\n") + 1]
        self.offset += len(complete)
        return [event for line in complete.splitlines() if (event := self._parse(line)) is not None]

    def _parse(self, line: bytes) -> Event | None:
        try:
            return Event.from_json(line.decode("utf-8", "replace"))
        except FormatError:
            self.n_invalid_lines += 1
            return None
