"""Zip archives whose members are stored as they are. The directory at the end names them; where the bytes begin, only
the header before each tells."""

from __future__ import annotations

import io
import stat
import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from packtrain.errors import FailedError
from packtrain.indexing.archive_map import Chain, Chart
from packtrain.indexing.archive_reader import Remote
from packtrain.indexing.grouping import File, refused_packed
from packtrain.indexing.read_window import Window
from packtrain.indexing.tar_members import FILE, Member
from packtrain.indexing.tar_scanner import tidy
from packtrain.indexing.task_pool import Crew

if TYPE_CHECKING:
    import zipfile

Told = Callable[[int, int], None]

_LOCAL = struct.Struct("<4s22xHH")  # signature, …, lengths of the name and of what is extra
_LOCAL_SIGNATURE = b"PK\x03\x04"
_STORED, _ENCRYPTED = 0, 0x1
_AT_ONCE = 4 << 20
_CHAIN_MEMBERS = 512


class Zip:
    def __init__(self, remote: Remote, chart: Chart, crew: Crew, told: Told) -> None:
        self._remote, self._chart, self._crew, self._told = remote, chart, crew, told
        self._infos: list[zipfile.ZipInfo] = []

    def draw(self, walks: int) -> None:
        self._infos = sorted(self._samples(), key=lambda info: info.header_offset)
        for first in range(0, len(self._infos), _CHAIN_MEMBERS):
            self._crew.do(self._look, self._infos[first : first + _CHAIN_MEMBERS])

    def _samples(self) -> Iterator[zipfile.ZipInfo]:
        for info in self._directory():
            mode = info.external_attr >> 16
            if info.is_dir() or stat.S_IFMT(mode) not in (0, stat.S_IFREG):
                continue
            if info.flag_bits & _ENCRYPTED:
                raise FailedError("unsupported", f"{info.filename!r} in {self._remote.shown} is encrypted")
            if info.compress_type != _STORED:
                raise refused_packed(f"{info.filename!r} in {self._remote.shown}")
            yield info

    def _directory(self) -> list[zipfile.ZipInfo]:
        import zipfile

        name = self._remote.shown
        try:
            with zipfile.ZipFile(_Seekable(self._remote)) as directory:
                return directory.infolist()
        except zipfile.BadZipFile as error:
            if "not a zip file" in str(error):
                raise FailedError("truncated", f"{name} has no directory at its end: it was cut") from None
            raise FailedError("archive_broken", f"{name} cannot be read: {error}") from None
        except (ValueError, NotImplementedError, struct.error) as error:
            raise FailedError("archive_broken", f"{name} cannot be read: {error}") from None

    def _look(self, infos: list[zipfile.ZipInfo]) -> None:
        window, chain = Window(self._remote.read, self._remote.size), Chain(infos[0].header_offset)
        for info in infos:
            self._crew.check()
            known = self._chart.find(info.header_offset)
            offset = known[0].offsets[known[1]] if known else self._data_of(info, window)
            behind = offset + info.file_size
            chain.add(Member(info.header_offset, behind, FILE, info.filename, offset, info.file_size))
            window.passed(behind - info.header_offset)
            self._told(behind - info.header_offset, 1)
        self._chart.add(chain)

    def _data_of(self, info: zipfile.ZipInfo, window: Window) -> int:
        words = f"{self._remote.shown} has no header for {info.filename!r} at byte {info.header_offset}"
        try:
            header = window.get(info.header_offset, _LOCAL.size)
        except EOFError:
            raise FailedError("archive_broken", words) from None
        signature, name, extra = _LOCAL.unpack(header)
        offset: int = info.header_offset + _LOCAL.size + name + extra
        if signature != _LOCAL_SIGNATURE or offset + info.file_size > self._remote.size:
            raise FailedError("archive_broken", words)
        return offset

    def files(self) -> Iterator[File]:
        """The last of several that have the same name is the one that stays."""
        found: dict[str, File] = {}
        for info in self._infos:
            known = self._chart.find(info.header_offset)
            assert known is not None
            name, offset = tidy(info.filename), known[0].offsets[known[1]]
            found.pop(name, None)
            found[name] = File(name, name.rpartition("/")[0], offset, info.file_size)
        return iter(found.values())


class _Seekable(io.RawIOBase):
    """The archive as Python's zipfile wants it."""

    def __init__(self, remote: Remote) -> None:
        self._remote, self._at = remote, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._remote.size}[whence]
        if base + offset < 0:
            raise OSError("before the beginning")
        self._at = base + offset
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        stop = self._remote.size if size is None or size < 0 else min(self._remote.size, self._at + size)
        pieces = [self._remote.read(at, min(stop, at + _AT_ONCE)) for at in range(self._at, stop, _AT_ONCE)]
        self._at = max(self._at, stop)
        return b"".join(pieces)
