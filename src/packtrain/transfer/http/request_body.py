"""Bodies of requests: a file, a slice of a file, or bytes. Files are read while they are sent."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Union

from packtrain.transfer.progress import OnBytesSent, ignore_bytes_sent


@dataclass(frozen=True)
class FileSlice:
    """A range of bytes of a file."""

    path: Path
    start: int
    length: int


RequestBody = Union[Path, FileSlice, bytes]


def body_length(body: RequestBody) -> int:
    """Return the length of a body in bytes."""
    if isinstance(body, bytes):
        return len(body)
    return body.length if isinstance(body, FileSlice) else body.stat().st_size


class RequestBodyReader:
    """Reads a body and reports the bytes that were sent."""

    def __init__(self, file: BinaryIO, length: int, on_bytes_sent: OnBytesSent) -> None:
        self._file, self._remaining_bytes, self._on_bytes_sent = file, length, on_bytes_sent

    def read(self, size: int = -1, /) -> bytes:
        data = self._file.read(self._remaining_bytes if size < 0 else min(size, self._remaining_bytes))
        self._remaining_bytes -= len(data)
        if data:
            self._on_bytes_sent(len(data))
        return data


@contextlib.contextmanager
def open_body(body: RequestBody, on_bytes_sent: OnBytesSent = ignore_bytes_sent) -> Iterator[RequestBodyReader]:
    """Open a body for reading."""
    with _open_file(body) as file:
        yield RequestBodyReader(file, body_length(body), on_bytes_sent)


def _open_file(body: RequestBody) -> BinaryIO:
    import io

    if isinstance(body, bytes):
        return io.BytesIO(body)
    if isinstance(body, Path):
        return open(body, "rb")
    file = open(body.path, "rb")  # noqa: SIM115 - closed by `open_body`
    file.seek(body.start)
    return file
