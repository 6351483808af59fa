"""Bodies of requests: a file, a piece of one, or a few bytes; read as they are sent, never held in memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Union

Sent = Callable[[int], None]
"""Told how many bytes more are on their way; may raise to end the upload."""


def unwatched(count: int) -> None:
    """For whoever does not want to know."""


@dataclass(frozen=True)
class Piece:
    """So many bytes of a file, from a position on."""

    path: Path
    start: int
    length: int


Body = Union[Path, Piece, bytes]


def length_of(body: Body) -> int:
    if isinstance(body, bytes):
        return len(body)
    return body.length if isinstance(body, Piece) else body.stat().st_size


class Outgoing:
    """What a body is read from."""

    def __init__(self, file: BinaryIO, length: int, sent: Sent) -> None:
        self._file, self._left, self._sent = file, length, sent

    def read(self, size: int = -1, /) -> bytes:
        data = self._file.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(data)
        if data:
            self._sent(len(data))
        return data


@contextlib.contextmanager
def opened(body: Body, sent: Sent = unwatched) -> Iterator[Outgoing]:
    with _file(body) as file:
        yield Outgoing(file, length_of(body), sent)


def _file(body: Body) -> BinaryIO:
    import io

    if isinstance(body, bytes):
        return io.BytesIO(body)
    if isinstance(body, Path):
        return open(body, "rb")
    file = open(body.path, "rb")  # noqa: SIM115 - closed by `opened`
    file.seek(body.start)
    return file
