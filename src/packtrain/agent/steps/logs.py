"""What steps say: from their pipes, redacted, into files; the last words are kept for the failure's sentence."""

from __future__ import annotations

import os
import re
import selectors
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from packtrain.events import Redactor

_READ_BYTES = 1 << 16
_TAIL_BYTES = 4096  # bytes of which the last words are taken
_MAX_LINE_CHARS = 300
_MAX_NAME_CHARS = 180  # file systems take 255 bytes
_CONTROL_CHARS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")


class OutputCapture:
    """Takes a stream in pieces; forgets all but its last words. A secret cut in two is still seen."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._pending = b""
        self._tail = b""

    def feed(self, data: bytes) -> None:
        ready, self._pending = self._redactor.redact_partial(self._pending + data)
        self._write(ready)

    def close(self) -> None:
        rest, self._pending = self._redactor.redact_bytes(self._pending), b""
        self._write(rest)

    def last_line(self) -> str:
        """The last line that says something."""
        lines = (_CONTROL_CHARS.sub("", line).strip() for line in self._tail.decode("utf-8", "replace").splitlines())
        return next((line for line in reversed(list(lines)) if line), "")[:_MAX_LINE_CHARS]

    def _write(self, data: bytes) -> None:
        self._tail = (self._tail + data)[-_TAIL_BYTES:]


class LogFile(OutputCapture):
    """Keeps the whole stream in a file. A disk that is full costs the log, not the step."""

    def __init__(self, redactor: Redactor, path: Path) -> None:
        super().__init__(redactor)
        self.path = path
        self.write_error: OSError | None = None
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - closed by the pump at the stream's end

    def close(self) -> None:
        super().close()
        self._file.close()

    def _write(self, data: bytes) -> None:
        super()._write(data)
        while data and self.write_error is None:
            try:
                data = data[self._file.write(data) :]
            except OSError as error:
                self.write_error = error


class PipePump(threading.Thread):
    """Carries what comes out of pipes (by descriptor) to captures, until all are at their end."""

    def __init__(self, captures: Mapping[int, OutputCapture]) -> None:
        super().__init__(name="pump", daemon=True)
        self._captures = captures
        self._wake_reader, self._wake_writer = os.pipe()

    def wait_until_closed(self, timeout_s: float) -> bool:
        """Whether all pipes came to their end in this time."""
        self.join(timeout_s)
        return not self.is_alive()

    def abort(self) -> None:
        """Stop, though somebody still holds the pipes."""
        with suppress(BrokenPipeError):
            os.write(self._wake_writer, b"!")
        self.join()
        os.close(self._wake_writer)

    def run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for pipe in (self._wake_reader, *self._captures):
                selector.register(pipe, selectors.EVENT_READ)
            while len(selector.get_map()) > 1:
                ready = [key.fd for key, _ in selector.select()]
                for pipe in ready:
                    if pipe in self._captures and not self._forward(pipe):
                        selector.unregister(pipe)
                if self._wake_reader in ready:
                    break
        for capture in self._captures.values():
            capture.close()
        os.close(self._wake_reader)

    def _forward(self, pipe: int) -> bool:
        data = os.read(pipe, _READ_BYTES)
        self._captures[pipe].feed(data)
        return bool(data)


class LogNames:
    """A file name for each step's path, e.g. `sweep.2.train`. No two paths get one name."""

    def __init__(self) -> None:
        self._paths_by_name: dict[str, str] = {}
        self._lock = threading.Lock()

    def name_for(self, path: str) -> str:
        plain = re.sub(r"[^A-Za-z0-9_.-]", "_", path.replace("/", ".")).lstrip(".")[:_MAX_NAME_CHARS] or "_"
        name, number = plain, 1
        with self._lock:
            while self._paths_by_name.setdefault(name, path) != path:
                number += 1
                name = f"{plain}-{number}"
        return name
