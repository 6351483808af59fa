"""Tar archives, read once from beginning to end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Optional

from packtrain.errors import FailedError
from packtrain.transfer.archive import tar_header
from packtrain.transfer.archive.byte_stream import BLOCK, Flow
from packtrain.transfer.archive.extract_dir import SMALL
from packtrain.transfer.archive.safe_extractor import Landing
from packtrain.transfer.archive.tar_header import Header, HeaderError

Stop = Callable[[], None]
LandFile = Optional[Callable[[Landing, str, bool, Flow], None]]
"""Lands a member that is a file in another way than as a file. It need not read all of the data."""

_REFUSED = {
    tar_header.DEVICE: "a device or pipe",
    tar_header.SPARSE: "a sparse file, which packtrain cannot unpack: pack it anew without `--sparse`",
}


def untar(flow: Flow, landing: Landing, stop: Stop, land_file: LandFile = None) -> None:
    """Raises FailedError: archive_unsafe, archive_broken, archive_too_large, truncated, disk_full."""
    with reading(landing.archive):
        _Tar(flow, landing, stop, land_file).run()


@contextlib.contextmanager
def reading(archive: str) -> Iterator[None]:
    """Damage of whatever kind becomes `truncated` or `archive_broken`."""
    import lzma
    import zlib

    try:
        yield
    except EOFError as error:
        raise _cut(archive) from error
    except (lzma.LZMAError, zlib.error, OSError, ValueError) as error:
        raise FailedError("archive_broken", f"{archive} cannot be read: {error}") from error


def _cut(archive: str) -> FailedError:
    return FailedError("truncated", f"{archive} ends before its end: it was cut")


class _Tar:
    def __init__(self, flow: Flow, landing: Landing, stop: Stop, land_file: LandFile) -> None:
        self._flow, self._landing, self._stop, self._land_file = flow, landing, stop, land_file
        self._defaults: dict[str, str] = {}  # attributes for all members that follow

    def run(self) -> None:
        for header in iter(self._member, None):
            self._stop()
            self._land(header)
        while len(self._flow.some()):  # a compressed stream has its checksum at the very end
            self._stop()

    def _member(self) -> Header | None:
        """The next member with all that headers before it say of it; None at the end of the archive."""
        header = self._header()
        if header is None or (header.kind in _LANDS and not self._defaults):
            return header
        known = dict(self._defaults)
        while header.kind in _SAYING:
            self._say(header, known)
            header = self._header()
            if header is None:
                raise EOFError("the member that a header announces is missing")
        with self._at_header():
            return tar_header.amended(header, known)

    def _header(self) -> Header | None:
        block = self._flow.read(tar_header.SIZE)
        if len(block) < tar_header.SIZE:
            raise EOFError("a whole archive ends with a block of zeros")
        if block == tar_header.END:
            return None
        with self._at_header():
            return tar_header.parse(block)

    @contextlib.contextmanager
    def _at_header(self) -> Iterator[None]:
        try:
            yield
        except HeaderError as error:
            words = f"{self._landing.archive} has {error} at byte {self._flow.position - tar_header.SIZE}"
            raise FailedError("archive_broken", words) from error

    def _say(self, header: Header, known: dict[str, str]) -> None:
        data = self._extra(header)
        with self._at_header():
            if header.kind == tar_header.NAME:
                known["path"] = tar_header.long_text(data)
            elif header.kind == tar_header.LINK:
                known["linkpath"] = tar_header.long_text(data)
            elif header.kind == tar_header.ATTRIBUTES:
                known.update(tar_header.attributes(data))
            elif header.kind == tar_header.DEFAULTS:
                self._defaults.update(tar_header.attributes(data))
                known.update(self._defaults)

    def _extra(self, header: Header) -> bytes:
        if header.size > tar_header.LARGEST:
            raise FailedError("archive_broken", f"{self._landing.archive} has a header of {header.size} bytes")
        data = self._flow.read(header.size)
        self._flow.skip(-header.size % tar_header.SIZE)
        if len(data) < header.size:
            raise EOFError("a header is cut")
        return data

    def _land(self, header: Header) -> None:
        kind, name = header.kind, header.name
        if kind == tar_header.FILE:
            self._file(header)
        elif kind == tar_header.FOLDER:
            self._landing.folder(name)
        elif kind == tar_header.SYMLINK:
            self._landing.symlink(name, header.link)
        elif kind == tar_header.HARDLINK:
            self._landing.hardlink(name, header.link)
        else:
            self._landing.refuse(name, _REFUSED[kind])

    def _file(self, header: Header) -> None:
        size, flow = header.size, self._flow
        if size > SMALL or self._land_file:
            self._large(header)
        else:
            views = flow.take(size)
            if flow.ended:
                raise EOFError("a member is cut")
            self._landing.small(header.name, header.executable, views, size)
        flow.skip(-size % tar_header.SIZE)

    def _large(self, header: Header) -> None:
        end = self._flow.position + header.size
        data = Flow(_heeding(self._stop, self._flow.within(header.size)))
        if self._land_file:
            self._land_file(self._landing, header.name, header.executable, data)
        else:
            self._landing.file(header.name, header.executable, data)
        self._flow.skip(end - self._flow.position)
        if self._flow.position < end:
            raise EOFError("a member is cut")


_LANDS = frozenset(
    {tar_header.FILE, tar_header.FOLDER, tar_header.SYMLINK, tar_header.HARDLINK, tar_header.DEVICE, tar_header.SPARSE}
)
_SAYING = frozenset({tar_header.NAME, tar_header.LINK, tar_header.ATTRIBUTES, tar_header.DEFAULTS, tar_header.LABEL})


def _heeding(stop: Stop, data: Flow) -> Callable[[], memoryview]:
    """Large members, too, are left when it is time."""

    def more() -> memoryview:
        stop()
        return data.some(BLOCK)

    return more
