"""Capture of what programs print: from their pipes, redacted, to files, with the last line kept for messages."""

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
_TAIL_BYTES = 4096  # how much of the output is kept to find the last line
_MAX_LINE_CHARS = 300
_CONTROL_CHARS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")


class OutputCapture:
    """Receives output in chunks and keeps only its end. Secrets are redacted even across chunk boundaries."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._pending = b""
        self._tail = b""

    def feed(self, data: bytes) -> None:
        ready, self._pending = self._redactor.redact_partial(self._pending + data)
        self._write(ready)

    def close(self) -> None:
        remainder, self._pending = self._redactor.redact_bytes(self._pending), b""
        self._write(remainder)

    def last_line(self) -> str:
        """Return the last line that is not empty, without control characters."""
        lines = (_CONTROL_CHARS.sub("", line).strip() for line in self._tail.decode("utf-8", "replace").splitlines())
        return next((line for line in reversed(list(lines)) if line), "")[:_MAX_LINE_CHARS]

    def _write(self, data: bytes) -> None:
        self._tail = (self._tail + data)[-_TAIL_BYTES:]


class UserLog:
    """A file of the user that also receives the output, while the program runs. A full disk ends it silently.

    Args:
        path: The file; its folder is created.
        append: Keep what the file contains.
    """

    def __init__(self, path: Path, append: bool) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | (0 if append else os.O_TRUNC)
        self._fd: int | None = os.open(path, flags, 0o666)

    def write(self, data: bytes) -> None:
        try:
            while data and self._fd is not None:
                data = data[os.write(self._fd, data) :]
        except OSError:
            self.close()

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class LogFile(OutputCapture):
    """Writes the complete output to a file. A full disk ends the log, not the program."""

    def __init__(self, redactor: Redactor, path: Path, copy: UserLog | None = None) -> None:
        super().__init__(redactor)
        self.path, self._copy = path, copy
        self.write_error: OSError | None = None
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - the pump closes it when the pipe ends

    @property
    def size(self) -> int:
        return self.path.stat().st_size

    def close(self) -> None:
        super().close()
        self._file.close()
        if self._copy is not None:
            self._copy.close()

    def _write(self, data: bytes) -> None:
        super()._write(data)
        if self._copy is not None:
            self._copy.write(data)
        while data and self.write_error is None:
            try:
                data = data[self._file.write(data) :]
            except OSError as error:
                self.write_error = error


class PipePump(threading.Thread):
    """Forwards data from pipes (by descriptor) to captures until all pipes are closed."""

    def __init__(self, captures: Mapping[int, OutputCapture]) -> None:
        super().__init__(name="pump", daemon=True)
        self._captures = captures
        self._wake_reader, self._wake_writer = os.pipe()

    def wait_until_closed(self, timeout_s: float) -> bool:
        """Wait at most `timeout_s` seconds and return whether all pipes are closed."""
        self.join(timeout_s)
        return not self.is_alive()

    def abort(self) -> None:
        """Stop, although a process still holds the pipes open."""
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
