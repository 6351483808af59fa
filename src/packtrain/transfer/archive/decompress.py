"""Streaming decompression, also of concatenated streams (`cat a.gz b.gz` is a valid gz file)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from packtrain.transfer.archive.byte_stream import CHUNK_BYTES, BytesLike, ByteStream, prepend
from packtrain.transfer.archive.formats import FORMATS_BY_NAME


def decompress(compressed: ByteStream, compression: str) -> ByteStream:
    """Return the decompressed stream; `compression` is one of COMPRESSIONS, "zst", or "" for none."""
    return ByteStream(_StreamDecompressor(compressed, compression).read_next) if compression else compressed


class _StreamDecompressor:
    def __init__(self, compressed: ByteStream, compression: str) -> None:
        self._compressed, self._magic = compressed, FORMATS_BY_NAME[compression].magic
        self._make_decompressor = _DECOMPRESSORS[compression]
        self._decompressor = self._make_decompressor()

    def read_next(self) -> BytesLike:
        """Return decompressed bytes; raises EOFError if the compressed data ends early."""
        while True:
            if self._decompressor.eof and not self._start_next_stream():
                return b""
            data: bytes = self._decompressor.read_chunk(self._compressed)
            if data:
                return data

    def _start_next_stream(self) -> bool:
        """Return whether another stream follows; padding and trailing garbage are skipped."""
        self._compressed = _skip_padding(prepend(self._decompressor.unused_data, self._compressed))
        if not self._compressed.peek(max(map(len, self._magic))).startswith(self._magic):
            self._compressed.drain()
            return False
        self._decompressor = self._make_decompressor()
        return True


def _skip_padding(compressed: ByteStream) -> ByteStream:
    while True:
        chunk = bytes(compressed.read_chunk())
        unpadded = chunk.lstrip(b"\0")
        if unpadded or not chunk:
            return prepend(unpadded, compressed)


class _GzipDecompressor:
    def __init__(self) -> None:
        import zlib

        self._decompressor = zlib.decompressobj(wbits=31)
        self._has_pending_output = False  # zlib may hold output that did not fit into the last chunk

    @property
    def eof(self) -> bool:
        return self._decompressor.eof

    @property
    def unused_data(self) -> bytes:
        return self._decompressor.unused_data

    def read_chunk(self, compressed: ByteStream) -> bytes:
        tail = self._decompressor.unconsumed_tail
        data = self._decompressor.decompress(
            tail if tail or self._has_pending_output else _read_compressed(compressed), CHUNK_BYTES
        )
        self._has_pending_output = len(data) == CHUNK_BYTES
        return data


class _BufferingDecompressor:
    """A decompressor of bz2, lzma or zstd, which share one interface."""

    def __init__(self, decompressor: Any) -> None:
        self._decompressor = decompressor

    @property
    def eof(self) -> bool:
        return bool(self._decompressor.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._decompressor.unused_data)

    def read_chunk(self, compressed: ByteStream) -> bytes:
        return bytes(
            self._decompressor.decompress(
                _read_compressed(compressed) if self._decompressor.needs_input else b"", CHUNK_BYTES
            )
        )


def _make_bz2_decompressor() -> _BufferingDecompressor:
    import bz2

    return _BufferingDecompressor(bz2.BZ2Decompressor())


def _make_xz_decompressor() -> _BufferingDecompressor:
    import lzma

    return _BufferingDecompressor(lzma.LZMADecompressor(lzma.FORMAT_XZ))


def _make_zstd_decompressor() -> _BufferingDecompressor:
    from packtrain.transfer.archive.zstd import make_zstd_decompressor

    return _BufferingDecompressor(make_zstd_decompressor())


_DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    "gz": _GzipDecompressor,
    "bz2": _make_bz2_decompressor,
    "xz": _make_xz_decompressor,
    "zst": _make_zstd_decompressor,
}


def _read_compressed(compressed: ByteStream) -> memoryview:
    chunk = compressed.read_chunk(CHUNK_BYTES >> 2)
    if not len(chunk):
        raise EOFError("the compressed data is truncated")
    return chunk
