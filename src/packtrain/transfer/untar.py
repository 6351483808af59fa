"""Tar archives, read once from beginning to end, compressed or not."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from packtrain.errors import FailedError
from packtrain.transfer.landing import BLOCK, Landing, Readable

if TYPE_CHECKING:
    import tarfile

Stop = Callable[[], None]

_HEADER = 512
_LARGEST_HEADER = 1 << 24  # names and attributes; a larger one is an attack on our memory


class Forward:
    """What tarfile needs of a file, over a stream that only goes forward.

    Remembers the last header it gave: tarfile ends without a word at a damaged or missing one.
    """

    def __init__(self, stream: Readable, stop: Callable[[], None]) -> None:
        self._stream, self._stop = stream, stop
        self._position = 0
        self.last = b""
        self.ended = False

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _LARGEST_HEADER:
            raise FailedError("archive_broken", f"the archive has a header of {size} bytes")
        self._stop()
        data = self._exactly(size)
        if size == _HEADER:
            self.last = data
        return data

    def _exactly(self, size: int) -> bytes:
        pieces = []
        while size:
            piece = self._stream.read(size)
            if not piece:
                self.ended = True
                break
            pieces.append(piece)
            size -= len(piece)
        data = b"".join(pieces)
        self._position += len(data)
        return data

    def tell(self) -> int:
        return self._position

    def seek(self, position: int) -> None:
        while self._position < position and not self.ended:
            self._stop()
            self._exactly(min(BLOCK, position - self._position))

    def drain(self) -> None:
        """To the very end, where compressed streams have their checksum."""
        while not self.ended:
            self._stop()
            self._exactly(BLOCK)


@contextlib.contextmanager
def decompressed(path: Path, compression: str) -> Iterator[tuple[Readable, BinaryIO]]:
    """The plain bytes of a file, and the file below, whose position tells how far we are."""
    with open(path, "rb") as raw:
        yield _OPENERS[compression](raw), raw


def _gz(raw: BinaryIO) -> Readable:
    import gzip

    return cast(Readable, gzip.GzipFile(fileobj=raw))


def _bz2(raw: BinaryIO) -> Readable:
    import bz2

    return bz2.BZ2File(raw)


def _xz(raw: BinaryIO) -> Readable:
    import lzma

    return lzma.LZMAFile(raw)


_OPENERS: dict[str, Callable[[BinaryIO], Readable]] = {"": lambda raw: raw, "gz": _gz, "bz2": _bz2, "xz": _xz}


@contextlib.contextmanager
def reading(archive: str, forward: Forward | None = None) -> Iterator[None]:
    """Damage of whatever kind becomes `truncated` or `archive_broken`."""
    import lzma
    import tarfile
    import zlib

    try:
        yield
    except EOFError as error:
        raise _cut(archive) from error
    except (tarfile.TarError, lzma.LZMAError, zlib.error, OSError, ValueError) as error:
        if forward is not None and forward.ended:
            raise _cut(archive) from error
        raise FailedError("archive_broken", f"{archive} cannot be read: {error}") from error


def _cut(archive: str) -> FailedError:
    return FailedError("truncated", f"{archive} ends before its end: it was cut")


def untar(stream: Readable, archive: str, landing: Landing, landed: Callable[[Path], None], stop: Stop) -> None:
    """`landed` is told of each file."""
    import tarfile

    forward = Forward(stream, stop)
    with reading(archive, forward):
        with tarfile.TarFile(fileobj=cast(BinaryIO, forward)) as tar:
            for member in _members(tar):
                _land(tar, member, landing, landed)
        _check_end(archive, forward)
        forward.drain()


def _members(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    while True:
        member = tar.next()
        if member is None:
            return
        yield member
        tar.members.clear()  # type: ignore[attr-defined]  # else a million members stay in memory


def _check_end(archive: str, forward: Forward) -> None:
    """A whole archive ends with a block of zeros."""
    if len(forward.last) < _HEADER:
        raise _cut(archive)
    if forward.last.strip(b"\0"):
        raise FailedError("archive_broken", f"{archive} has a damaged header at byte {forward.tell() - _HEADER}")


def _land(tar: tarfile.TarFile, member: tarfile.TarInfo, landing: Landing, landed: Callable[[Path], None]) -> None:
    if member.isdir():
        landing.folder(member.name)
    elif member.issym():
        landing.symlink(member.name, member.linkname)
    elif member.islnk():
        landing.hardlink(member.name, member.linkname)
    elif member.isreg():
        data = cast(Readable, tar.extractfile(member))
        landed(landing.file(member.name, bool(member.mode & 0o100), data))
    else:
        landing.refuse(member.name, "a device or pipe")
