"""The agent's own log: redacted lines for people to read."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from pathlib import Path

from packtrain.events import Redactor


class AgentLog:
    """Appends lines to a file. A write error never ends an attempt."""

    def __init__(self, path: Path, redactor: Redactor) -> None:
        self._redactor = redactor
        self._lock = threading.Lock()
        self._file = open(path, "a", encoding="utf-8", errors="surrogateescape")  # noqa: SIM115

    def write(self, message: str) -> None:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        with self._lock, suppress(OSError):
            self._file.write(f"{stamp} {self._redactor.redact_text(message)}\n")
            self._file.flush()


class WarningHandler(logging.Handler):
    """Writes log records of packtrain's other packages to the agent's log, from the level WARNING on."""

    def __init__(self, log: AgentLog) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        self._log.write(f"{record.name}: {record.getMessage()}")
