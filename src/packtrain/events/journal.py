"""The journal: one emitter's events as JSON lines in an append-only file."""

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
from packtrain.fileutil import durable_mkdir, sync_folder

_UNSYNCED_KINDS = frozenset({kinds.PROGRESS, kinds.METRIC, kinds.STEP_STARTED})


class Journal:
    """Writes the events of one emitter; thread-safe. Important events are on disk when `emit` returns."""

    def __init__(self, path: Path, run: str, job: str, emitter: str, redactor: Redactor) -> None:
        self.path, self.run, self.job, self.emitter = path, run, job, emitter
        self._redactor = redactor
        self._lock = threading.Lock()
        self._seq = 0
        self._listener: Callable[[Event], None] | None = None
        durable_mkdir(path.parent)
        self._has_partial_line = _ends_mid_line(path)  # written by an earlier emitter that was killed
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115
        sync_folder(path.parent)

    def set_listener(self, listener: Callable[[Event], None]) -> None:
        """Call `listener` with every event from now on, in order, from any thread. It must not block."""
        self._listener = listener

    def emit(self, kind: str, /, **data: Any) -> Event:
        """Append an event with redacted data. Raises OSError if it cannot be written."""
        with self._lock:
            self._seq += 1
            redacted = self._redactor.redact_value(data)
            event = Event(self.run, self.job, self.emitter, self._seq, kind, time.time(), time.monotonic(), redacted)
            if self._listener is not None:  # first, because writing fails on a full disk
                self._listener(event)
            self._write((event.to_json() + "\n").encode("utf-8", "replace"))
            if kind not in _UNSYNCED_KINDS:
                os.fsync(self._file.fileno())
        return event

    def close(self) -> None:
        self._file.close()

    def _write(self, line: bytes) -> None:
        """Write a line. After a partial write (full disk) the next event starts a new line, so only one is lost."""
        line = b"\n" + line if self._has_partial_line else line
        self._has_partial_line = (self._file.write(line) or 0) < len(line)
        if self._has_partial_line:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))


def _ends_mid_line(path: Path) -> bool:
    """Return whether the last line of the file lacks a newline."""
    try:
        with open(path, "rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except OSError:  # the file is missing or empty
        return False


class JournalReader:
    """Reads a journal that may still grow. `offset` is where the next read starts, also in a later process."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path, self.offset = path, offset
        self.n_invalid_lines = 0  # skipped lines that are not events

    def read(self) -> list[Event]:
        """Return the events of all new complete lines; an incomplete last line is read later."""
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
