"""Decompression on the way, for streams that follow one another too (`cat a.gz b.gz` is a gz file)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from packtrain.transfer.archive.byte_stream import BLOCK, Flow, Piece

MAGIC = {"gz": b"\x1f\x8b", "bz2": b"BZh", "xz": b"\xfd7zXZ\0"}


def decompressed(packed: Flow, compression: str) -> Flow:
    """The plain bytes; `compression` is a key of MAGIC, or "" for none."""
    return Flow(_Decompressing(packed, compression).more) if compression else packed


class _Decompressing:
    def __init__(self, packed: Flow, compression: str) -> None:
        self._packed, self._magic = packed, MAGIC[compression]
        self._new = _DECOMPRESSORS[compression]
        self._one = self._new()

    def more(self) -> Piece:
        """Raises EOFError where the packed bytes end too early."""
        while True:
            if self._one.eof and not self._follows():
                return b""
            data: bytes = self._one.some(self._packed)
            if data:
                return data

    def _follows(self) -> bool:
        """Whether another stream follows this one. Padding, and whatever else is no stream, is passed over."""
        self._packed = _without_padding(_joined(self._one.rest, self._packed))
        if self._packed.peek(len(self._magic)) != self._magic:
            self._packed.drain()
            return False
        self._one = self._new()
        return True


def _without_padding(packed: Flow) -> Flow:
    while True:
        piece = bytes(packed.some())
        rest = piece.lstrip(b"\0")
        if rest or not piece:
            return _joined(rest, packed)


def _joined(first: bytes, packed: Flow) -> Flow:
    waiting = [first] if first else []
    return Flow(lambda: waiting.pop() if waiting else packed.some())


class _Gz:
    def __init__(self) -> None:
        import zlib

        self._one = zlib.decompressobj(wbits=31)
        self._full = False  # more may come of what it has

    @property
    def eof(self) -> bool:
        return self._one.eof

    @property
    def rest(self) -> bytes:
        return self._one.unused_data

    def some(self, packed: Flow) -> bytes:
        tail = self._one.unconsumed_tail
        data = self._one.decompress(tail if tail or self._full else _fed(packed), BLOCK)
        self._full = len(data) == BLOCK
        return data


class _Other:
    """bz2 and xz."""

    def __init__(self, one: Any) -> None:
        self._one = one

    @property
    def eof(self) -> bool:
        return bool(self._one.eof)

    @property
    def rest(self) -> bytes:
        return bytes(self._one.unused_data)

    def some(self, packed: Flow) -> bytes:
        return bytes(self._one.decompress(_fed(packed) if self._one.needs_input else b"", BLOCK))


def _bz2() -> _Other:
    import bz2

    return _Other(bz2.BZ2Decompressor())


def _xz() -> _Other:
    import lzma

    return _Other(lzma.LZMADecompressor(lzma.FORMAT_XZ))


_DECOMPRESSORS: dict[str, Callable[[], Any]] = {"gz": _Gz, "bz2": _bz2, "xz": _xz}


def _fed(packed: Flow) -> memoryview:
    piece = packed.some(BLOCK >> 2)
    if not len(piece):
        raise EOFError("the compressed data ends before its end")
    return piece
